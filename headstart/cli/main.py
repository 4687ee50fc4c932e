"""The `headstart` command: every one of its commands, put together.

A command is a function with a file of its own, which imports what it needs when it is called: so help and completion
start no JAX.
"""

import os
import sys
from typing import Annotated, NoReturn

import typer

from headstart.cli.algorithms import algorithms
from headstart.cli.bench import bench
from headstart.cli.compare import compare
from headstart.cli.data import data_app
from headstart.cli.deploy import deploy_app
from headstart.cli.interrupts import quiet_imports
from headstart.cli.model import adapt, export, inspect, predict
from headstart.cli.plan import plan
from headstart.cli.report import report
from headstart.cli.reproduce import reproduce
from headstart.cli.run import run
from headstart.cli.tune import tune
from headstart.cli.watch import watch
from headstart.errors import CannotWrite, HeadstartError, UsageError

__all__ = ["app", "main"]

app = typer.Typer(
    help="Train one shared model that gives every client a head start.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def main() -> None:
    """Run the command; a user's mistake is one message and exit code 2, never a traceback."""
    try:
        with quiet_imports():
            app(standalone_mode=True)
    except HeadstartError as error:
        if "--debug" in sys.argv:
            raise
        _complain(error)
        _leave(error, 2 if isinstance(error, UsageError) else 1)
    except MemoryError as error:
        if "--debug" in sys.argv:
            raise
        _complain(_no_memory(error))
        _leave(error, 1)
    except OSError as error:
        if "--debug" in sys.argv or error.errno is None:
            raise
        _complain(_no_file(error))
        _leave(error, 1)
    except KeyboardInterrupt:
        sys.stderr.write("Stopped.\n")
        _leave("it was stopped", 130)


def _leave(error: object, code: int) -> NoReturn:
    """End; where other hosts wait for this one, not before they know why, and without waiting for them."""
    if "headstart.hosts" in sys.modules:
        from headstart.hosts import crew

        joined = crew()
        if joined is not None:
            joined.fail(str(error))
            os._exit(code)
    sys.exit(code)


def _no_memory(error: MemoryError) -> HeadstartError:
    reason = f": {error}" if str(error) else ""
    return UsageError(
        f"This takes more memory than there is{reason}.",
        "Lower the numbers of clients, samples or units, or keep the data on disk: see `headstart data prepare`.",
    )


def _no_file(error: OSError) -> HeadstartError:
    what = "A file" if error.filename is None else error.filename
    return CannotWrite(
        f"{what} cannot be read or written: {os.strerror(error.errno or 0)}.", "Make room, or mend the path."
    )


def _complain(error: HeadstartError) -> None:
    from rich.console import Console
    from rich.markup import escape

    Console(stderr=True, soft_wrap=True).print(f"[bold red]Error:[/] {escape(str(error))}")


def _version(wanted: bool) -> None:
    if wanted:
        from headstart import __version__

        typer.echo(f"headstart {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    pass


app.command()(run)
app.command()(tune)
app.command()(adapt)
app.command()(predict)
app.command()(inspect)
app.command()(export)
app.command()(plan)
app.command()(report)
app.command()(compare)
app.command()(watch)
app.command()(reproduce)
app.command()(algorithms)
app.command()(bench)
app.add_typer(data_app, name="data")
app.add_typer(deploy_app, name="deploy")
