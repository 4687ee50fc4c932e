"""`headstart watch`: the report on runs, following them while they train."""

from pathlib import Path
from typing import Annotated

import typer

from headstart.cli.options import Debug

__all__ = ["watch"]


def watch(
    runs: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Run directories, of runs that may be going on.")
    ],
    port: Annotated[int, typer.Option(min=0, max=65535, help="A port of this machine; 0 is any that is free.")] = 0,
    open: Annotated[bool, typer.Option("--open", help="Show the page in a browser.")] = False,
    debug: Debug = False,
) -> None:
    """Show runs on a page of this machine that follows them while they train; Ctrl-C ends it, and not the runs.

    `headstart watch runs/mine --open`

    From Python: `hs.report.Watch(["runs/mine"]).serve()`.
    """
    import headstart as hs
    from headstart.cli.terminal import console, escape

    watching = hs.report.Watch(runs, port)
    console.print(f"Watching at {escape(watching.address)}\nCtrl-C ends it.", soft_wrap=True)
    if open:
        typer.launch(watching.address)
    watching.serve()
