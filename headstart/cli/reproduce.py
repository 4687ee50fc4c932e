"""`headstart reproduce`: run the papers' experiments, go on where they stopped, and show the verdicts."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headstart.cli.options import Debug
from headstart.errors import UsageError

if TYPE_CHECKING:
    from headstart_papers import Failure, Unit

__all__ = ["reproduce"]

FAILED = 1


def reproduce(
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ID]...", help="Experiments (`wang/table3`) or papers (`wang`); left out, all."),
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="So many seeds, instead of what each experiment says.")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Smaller runs, said to be so; all together under 20 minutes on 2 cores.")
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The folder with the data sets; left out, HEADSTART_DATA or the cache."),
    ] = None,
    jobs: Annotated[int | None, typer.Option(help="Processes side by side; left out, one per core.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The folder for results; left out, `reproduction/full` or `reproduction/quick`."),
    ] = None,
    report_only: Annotated[
        bool, typer.Option("--report-only", help="Run nothing; write the reports of what is there.")
    ] = False,
    docs: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write the page over all experiments here, and each one's beside it."),
    ] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Run nothing; compute the numbers on those pages again, and fail on a difference."
        ),
    ] = False,
    list_all: Annotated[bool, typer.Option("--list", help="List the experiments and stop.")] = False,
    debug: Debug = False,
) -> None:
    """Run the papers' tables and figures again, and judge their claims by what comes out.

    `headstart reproduce --list` names all experiments; `headstart reproduce wang/table3` runs one.

    `headstart reproduce --quick --data ~/data` runs all of them, smaller; in full they take hours.

    The same command goes on where it stopped, after Ctrl-C or a crash.

    From Python: `headstart_papers.reproduce("wang/table3", quick=True, data="~/data")`, and
    `headstart_papers.find_experiments()` for the list; `headstart_papers.check_pages()` for `--check`.
    """
    papers = _papers()
    from rich.markup import escape

    from headstart.cli.terminal import console

    if list_all:
        from headstart_papers.report import experiments_table

        console.print(experiments_table(papers.find_experiments()))
        return
    if check:
        differences = papers.check_pages(docs, out)
        for difference in differences:
            console.print(f"[bold red]Differs:[/] {escape(difference)}", soft_wrap=True)
        console.print(
            f"Pages that differ: {len(differences)}. Write them again with --report-only --out DIR --docs FILE."
            if differences
            else "Every number on the pages is that of the results."
        )
        raise typer.Exit(FAILED if differences else 0)
    from headstart_papers.report import claims_table

    try:
        with _Display() as display:
            done = papers.reproduce(
                *(ids or ()), quick=quick, seeds=seeds, data=data, jobs=jobs, out=out, docs=docs,
                report_only=report_only, watcher=display,
            )  # fmt: skip
    except KeyboardInterrupt:
        console.print("Stopped; all that is done is kept. The same command goes on from there.")
        raise
    for assessment in done.assessments:
        console.print(claims_table(assessment))
    console.print(f"Report: {escape(str(done.report))}")
    if docs is not None:
        console.print(f"Page: {escape(str(docs))}")
    for failure in done.failures:
        console.print(
            f"[bold red]Not run:[/] {escape(failure.unit.experiment)}, {escape(failure.unit.name)}: "
            f"{escape(failure.problem)}"
        )
    raise typer.Exit(FAILED if done.failures else 0)


def _papers() -> Any:
    """The package with the papers' experiments, which is no part of the library."""
    try:
        import headstart_papers
    except ModuleNotFoundError as error:
        if error.name != "headstart_papers":
            raise
        raise UsageError(
            "The papers' experiments are not installed: there is no package headstart_papers.",
            "Install headstart again, from a wheel or with `pip install -e .` in its repository.",
        ) from error
    return headstart_papers


class _Display:
    """A bar for all units, and one for each worker's; nothing until there is something to do."""

    def __init__(self) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        from headstart.cli.terminal import console

        self._progress = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console
        )

    def __enter__(self) -> "_Display":
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress.tasks:
            self._progress.stop()

    def begins(self, units: int, left: int, workers: int) -> None:
        if left < units:
            self._progress.console.print(f"{units - left} of {units} units are done already.")
        if left:
            self._all = self._progress.add_task("units", total=left)
            self._workers = [self._progress.add_task("waiting", total=None) for _ in range(workers)]
            self._progress.start()

    def started(self, worker: int, unit: "Unit") -> None:
        from rich.markup import escape

        self._progress.reset(self._workers[worker], total=None, description=escape(f"{unit.experiment} {unit.name}"))

    def progress(self, worker: int, done: int, rounds: int) -> None:
        self._progress.update(self._workers[worker], completed=done, total=rounds)

    def ended(self, worker: int, unit: "Unit", failure: "Failure | None") -> None:
        from rich.markup import escape

        self._progress.advance(self._all)
        if failure is not None:
            self._progress.console.print(f"[red]✗[/] {escape(unit.experiment)} {escape(unit.name)}")
