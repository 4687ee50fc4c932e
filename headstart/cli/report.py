"""`headstart report`: what runs have found, as a page, as Markdown or here in the terminal."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from headstart.cli.options import Debug

__all__ = ["report"]


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Run directories, of one run or of several.")],
    out: Annotated[
        Path | None,
        typer.Option(
            help="The file to write: .html, .md or .txt; left out, `report.html` in the run's folder (of several runs, "
            "here)."
        ),
    ] = None,
    format: Annotated[
        Literal["html", "markdown", "terminal"],
        typer.Option(help="What to make, where there is no --out to say; `terminal` prints it here."),
    ] = "html",
    open: Annotated[bool, typer.Option("--open", help="Show the page in a browser.")] = False,
    data: Annotated[
        bool,
        typer.Option(help="Read the runs' data again, to say how much each client has and how unlike it is."),
    ] = True,
    debug: Debug = False,
) -> None:
    """Show what runs have found: curves, every client before and after, fairness, cost, settings.

    `headstart report runs/mine --open` makes one page that works offline, of a run that may still be going on.

    `headstart report runs/a runs/b --out both.html` puts the methods of several runs side by side.

    `headstart report runs/mine --format terminal` prints it here.

    From Python: `hs.report.make_report("runs/mine").save("runs/mine/report.html")`; `terminal()` is what Rich prints.
    """
    import headstart as hs
    from headstart.cli.terminal import console, escape

    with console.status("Reading the record" + (" and the data" if data else "")):
        made = hs.report.make_report(runs, with_data=data)
    if out is None and format == "terminal":
        console.print(made.terminal())
        return
    if out is None:
        folder = runs[0] if len(runs) == 1 else Path()
        out = folder / f"report{'.md' if format == 'markdown' else '.html'}"
    made.save(out)
    console.print(f"Report: {escape(str(out))}")
    if open:
        typer.launch(out.resolve().as_uri())
