"""`headstart bench`: speed and memory on this machine, beside plain PyTorch."""

from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from headstart.cli.options import Debug
from headstart.errors import UsageError

__all__ = ["bench"]


def bench(
    suites: Annotated[
        list[str] | None,
        typer.Option("--suite", metavar="NAME", help="Only this suite; may be given several times. Left out, all."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write everything into this JSON file; suites it has already are replaced."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Tiny work, to try the suites; says nothing about speed.")
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The folder with real data; left out, HEADSTART_DATA, or random data."),
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Undisturbed measurements of each side.")] = 5,
    patience: Annotated[
        float, typer.Option(min=0, help="Seconds that a case waits for other processes to be quiet.")
    ] = 30.0,
    page: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Measure nothing; write the tables of --out's record into this page."),
    ] = None,
    list_all: Annotated[bool, typer.Option("--list", help="List the suites and stop.")] = False,
    debug: Debug = False,
) -> None:
    """Measure rounds, sweeps, evaluation and start-up beside plain PyTorch, and hold them to bars.

    `headstart bench --suite mnist --out bench.json` measures one suite, which takes a minute or more.

    PyTorch is what we compare with: `pip install 'headstart[bench]'`. Without it only our side is measured.

    From Python: `hs.bench.bench(["mnist"]).save("bench.json")`.
    """
    from headstart.bench import SUITES, Bench, load_bench
    from headstart.bench import bench as measure
    from headstart.bench.suites import suite
    from headstart.cli.terminal import console, escape
    from headstart.report import speed_page, speed_table

    if list_all:
        for name in SUITES:
            console.print(f"{name:12} {escape(suite(name).TITLE)}", soft_wrap=True, highlight=False)
        return
    if page is not None:
        if out is None:
            raise UsageError("--page makes tables of a record, and there is none.", "Add --out bench.json.")
        if not page.is_file():
            raise UsageError(f"There is no page {page}.", "Give a Markdown file; its tables are made anew.")
        page.write_text(speed_page(page.read_text(encoding="utf-8"), load_bench(out)), encoding="utf-8")
        console.print(f"Page: {escape(str(page))}")
        return
    if out is not None and not out.absolute().parent.is_dir():
        raise UsageError(f"There is no folder {out.parent} to write {out.name} into.", "Make it first.")
    before = load_bench(out) if out is not None and out.exists() else None
    if find_spec("torch") is None:
        console.print("PyTorch is not installed, so its sides are left out: pip install 'headstart\\[bench]'")
    found = Bench({}, {})
    titles = {name: suite(name).TITLE for name in suites or SUITES}
    for name, title in titles.items():
        # One by one, so that what is done is shown and kept.
        with console.status(f"{name}: {escape(title)}") as status:
            done = measure(
                [name], quick=quick, data=data, repeats=repeats, patience=patience, watch=partial(_told, status)
            )
        found = found.joined(done)
        console.print(speed_table(name, found.suites[name]))
        if out is not None:
            (found if before is None else before.joined(found)).save(out)
    if out is not None:
        console.print(f"Record: {escape(str(out))}")
    console.print(
        f"Bars that do not hold: {escape('; '.join(found.missed))}." if found.missed else "All bars measured hold."
    )


def _told(status: Any, suite: str, case: dict[str, Any]) -> None:
    """Say beside the spinner which case is done."""
    from rich.markup import escape

    status.update(f"{suite}: {escape(case['case'])} is done")
