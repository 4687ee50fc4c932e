"""`headstart compare`: methods side by side at equal budgets, with several seeds and tests of the differences."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from headstart.cli.options import PANEL, Client, Debug, Label, Settings
from headstart.errors import UsageError

if TYPE_CHECKING:
    from headstart.comparisons import Comparison

__all__ = ["compare"]

RECORD = ".json"
"""How the file of a comparison ends."""


def compare(
    what: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE|DIR...",
            help="Experiments as TOML files, directories of finished runs, or a comparison's own .json file.",
        ),
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(metavar="A,B,...", help="Algorithms by name, instead of those of the file."),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds each method is trained with.")] = 5,
    at: Annotated[
        Literal["rounds", "samples", "bytes"],
        typer.Option(help="What methods are given equally much of: as much as the first one's rounds cost."),
    ] = "rounds",
    settings: Settings = None,
    tune: Annotated[
        bool | None,
        typer.Option(
            "--tune/--no-tune",
            help="Find each method's step sizes that are not given, and how to adapt, on validation clients first, all "
            "methods with as many tries; with --data of your own that is so unless you say no.",
        ),
    ] = None,
    data: Annotated[
        str | None, typer.Option(metavar="PATH|NAME", help="Your own data, or a data set.", rich_help_panel=PANEL)
    ] = None,
    client: Client = None,
    label: Label = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write a report: .html, .md or .txt, or the comparison itself: .json; left out, it is printed here."
        ),
    ] = None,
    open: Annotated[bool, typer.Option("--open", help="Show the page that was written in a browser.")] = False,
    debug: Debug = False,
) -> None:
    """Compare methods at equal rounds, samples or bytes: means, intervals, paired tests, ranks, who wins where.

    `headstart compare --seeds 5 --out compared.html` compares the methods of the default experiment.

    `headstart compare my.toml --methods per-fedavg,fedavg,reptile --at samples` compares three on your experiment.

    `headstart compare my.toml --tune --out found.json` finds every method its own settings first, and keeps what came
    out; `headstart compare found.json --out page.html` makes a page of it.

    `headstart compare runs/a runs/b runs/c` compares runs that are done; those that differ in the seed alone are seeds
    of the same methods.

    From Python: `hs.compare("my.toml", seeds=5, at="samples")` and `hs.compare_runs(["runs/a", "runs/b"])`, which
    `hs.report.comparison_report(...)` makes a page of.
    """
    import headstart as hs
    from headstart.cli.terminal import console, escape

    found = _found(what or [], methods, seeds, at, settings or [], tune, data, client, label)
    if out is not None and out.suffix == RECORD:
        hs.comparisons.save_comparison(found, out)
        console.print(f"Comparison: {escape(str(out))}")
        return
    made = hs.report.comparison_report(found)
    if out is None:
        console.print(made.terminal())
        return
    made.save(out)
    console.print(f"Report: {escape(str(out))}")
    if open:
        typer.launch(out.resolve().as_uri())


def _found(
    what: list[Path],
    methods: str | None,
    seeds: int,
    at: Literal["rounds", "samples", "bytes"],
    settings: list[str],
    tune: bool | None,
    data: str | None,
    client: str | None,
    label: str | None,
) -> "Comparison":
    import headstart as hs
    from headstart.cli.interrupts import Stop
    from headstart.cli.searching import searching
    from headstart.cli.terminal import bars

    if len(what) == 1 and what[0].suffix == RECORD:
        return hs.comparisons.load_comparison(what[0])
    if what and all(path.is_dir() for path in what):
        extra = [name for name, given in (("--methods", methods), ("--set", settings), ("--data", data)) if given]
        if extra:
            raise UsageError(f"{', '.join(extra)} cannot change runs that are done.", "Leave that out, or name a file.")
        return hs.compare_runs(what, at=at)
    if data is not None and len(what) > 1:
        raise UsageError("--data goes with one experiment.", "Name one file, or none.")
    wanted = None if methods is None else [name.strip() for name in methods.split(",")]
    files: list[Path | None] = [*what] or [None]
    experiments = [hs.comparisons.experiment_of(file, wanted, settings, data, client, label, tune) for file in files]
    with searching(str) as told:
        return hs.compare(
            experiments, seeds=seeds, at=at, methods=wanted, callbacks=bars(str, Stop()), searching=told,
            names=[file.stem if file is not None else "default" for file in files],
        )  # fmt: skip
