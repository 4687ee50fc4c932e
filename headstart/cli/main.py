"""The `headstart` command: `run`, `algorithms`, `--version`."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from headstart.errors import HeadstartError, UsageError

__all__ = ["app", "main"]

app = typer.Typer(
    help="Train one shared model that gives every client a head start.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
console = Console()


def main() -> None:
    """Run the command; a user's mistake is one message and exit code 2, never a traceback."""
    try:
        app(standalone_mode=True)
    except HeadstartError as error:
        if "--debug" in sys.argv:
            raise
        Console(stderr=True, soft_wrap=True).print(f"[bold red]Error:[/] {_escaped(error)}")
        sys.exit(2 if isinstance(error, UsageError) else 1)
    except KeyboardInterrupt:
        Console(stderr=True).print("Stopped.")
        sys.exit(130)


def _escaped(error: HeadstartError) -> str:
    from rich.markup import escape

    return escape(str(error))


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"headstart {version('headstart')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    pass


@app.command()
def run(
    experiment: Annotated[
        Path | None, typer.Argument(help="A TOML file; left out, the default experiment on embedded data.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, such as `--set algorithm.inner_lr=0.02`."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="The seed of all randomness, instead of the file's.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="The folder for the run's record; left out, a new one under `runs/`.")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Continue the run in this folder where it stopped.")
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Train, adapt to every client, and print the comparison.

    `headstart run` alone trains Per-FedAvg and FedAvg on embedded handwritten digits.

    `headstart run my.toml --set train.rounds=1000 --seed 1 --out runs/mine` runs your own experiment.

    `headstart run --resume runs/mine` continues it, bit for bit, after Ctrl-C or a crash.
    """
    from headstart.cli.run import resume_run, start_run

    if resume is not None:
        extra = [n for n, v in (("EXPERIMENT", experiment), ("--set", settings), ("--seed", seed), ("--out", out)) if v]
        if extra:
            raise UsageError(
                f"--resume continues a run as it was configured; {', '.join(extra)} cannot change it.",
                "Leave that out, or start a new run without --resume.",
            )
        code = resume_run(resume, console)
    else:
        code = start_run(experiment, settings or [], seed, out, console)
    raise typer.Exit(code)


@app.command()
def algorithms() -> None:
    """List every algorithm with its paper and its settings."""
    from headstart.cli.catalogue import catalogue

    console.print(catalogue())
