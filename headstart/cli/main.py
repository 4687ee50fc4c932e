"""The `headstart` command: `run`, `plan`, `reproduce`, `algorithms`, `data`, `--version`."""

import sys
from pathlib import Path
from typing import Annotated, Any

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

DATA_PANEL = "Data"
IN_PANEL: dict[str, Any] = {"rich_help_panel": DATA_PANEL}


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


SETTINGS = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting of the data, such as `--set seed=1`."),
]


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
    data: Annotated[
        str | None,
        typer.Option(
            metavar="PATH|NAME",
            help="Your own data (a CSV or Parquet table, a folder with a file a client, a tree of images, prepared "
            "data), or a data set by name (see `headstart data list`).",
            rich_help_panel=DATA_PANEL,
        ),
    ] = None,
    client: Annotated[str | None, typer.Option(help="The column that says whose a row is.", **IN_PANEL)] = None,
    label: Annotated[str | None, typer.Option(help="The column to predict.", **IN_PANEL)] = None,
    features: Annotated[
        str | None,
        typer.Option(metavar="A,B,...", help="The columns to predict from; left out, all others.", **IN_PANEL),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(help="A column whose groups are never split between training and scores.", **IN_PANEL),
    ] = None,
    order: Annotated[
        str | None, typer.Option(help="A column of times: a client is scored on its last rows.", **IN_PANEL)
    ] = None,
    held_out: Annotated[
        str | None, typer.Option(help="The number or share of clients that never train.", **IN_PANEL)
    ] = None,
    shots: Annotated[
        int | None, typer.Option(help="New clients adapt on so many samples of each class.", **IN_PANEL)
    ] = None,
    plan: Annotated[
        bool,
        typer.Option("--plan", help="Take step sizes, local steps and batch sizes from theory: see `headstart plan`."),
    ] = False,
    epsilon: Annotated[
        float | None, typer.Option(help="With --plan: what the mean squared gradient norm is to be at most.")
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Train, adapt to every client, and print the comparison.

    `headstart run` alone trains Per-FedAvg and FedAvg on embedded handwritten digits.

    `headstart run --data people.parquet --client person --label activity` does so on your own table.

    `headstart run my.toml --set train.rounds=1000 --seed 1 --out runs/mine` runs your own experiment.

    `headstart run my.toml --plan --epsilon 0.1` plans it first, from constants estimated on its data.

    `headstart run --resume runs/mine` continues it, bit for bit, after Ctrl-C or a crash.
    """
    from headstart.cli.own_data import DataOptions
    from headstart.cli.run import resume_run, start_run

    about = {
        "client": client, "label": label, "features": features, "group": group, "order": order, "held_out": held_out,
        "shots": shots,
    }  # fmt: skip
    if data is None and any(value is not None for value in about.values()):
        first = next(name for name, value in about.items() if value is not None).replace("_", "-")
        raise UsageError(f"--{first} says something about data, but there is no --data.", "Name the data with --data.")
    if epsilon is not None and not plan:
        raise UsageError("--epsilon is what a plan is to reach, but there is no --plan.", "Add --plan.")
    if resume is not None:
        given = (
            ("EXPERIMENT", experiment), ("--set", settings), ("--seed", seed), ("--out", out), ("--data", data),
            ("--plan", plan),
        )  # fmt: skip
        extra = [name for name, value in given if value]
        if extra:
            raise UsageError(
                f"--resume continues a run as it was configured; {', '.join(extra)} cannot change it.",
                "Leave that out, or start a new run without --resume.",
            )
        code = resume_run(resume, console)
    else:
        options = None if data is None else DataOptions(data, **about)  # type: ignore[arg-type]
        planning = None
        if plan:
            from headstart.cli.plan import PlanOptions

            planning = PlanOptions(epsilon)
        code = start_run(experiment, settings or [], seed, out, options, planning, console)
    raise typer.Exit(code)


@app.command("plan")
def plan_experiment(
    experiment: Annotated[
        Path | None, typer.Argument(help="A TOML file; left out, the default experiment on embedded data.")
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(help="What the mean squared gradient norm is to be at most; left out, a tenth of the initial."),
    ] = None,
    radius: Annotated[
        float | None,
        typer.Option(help="How far from the initial model constants are to hold; left out, a tenth of its norm."),
    ] = None,
    safety: Annotated[float, typer.Option(help="A factor on all constants, which are found from below.")] = 1.0,
    clients: Annotated[int | None, typer.Option(help="On so many clients constants are estimated (4).")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, such as `--set algorithm.inner_lr=0.02`."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="The seed of all randomness, instead of the file's.")] = None,
    out: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write everything into this file.")] = None,
    picture: Annotated[
        Path | None,
        typer.Option(help="Run Per-FedAvg as planned, and draw its gradient norm beside the bound into this PNG file."),
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="The rounds of that run; left out, the experiment's.")] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Plan step sizes, local steps, rounds and batch sizes by the papers' theorems, for every method they speak of.

    `headstart plan my.toml --epsilon 0.1` estimates the constants of the experiment's losses and prints the plans.

    `headstart plan my.toml --picture bound.png` also puts what is measured beside what is promised.
    """
    from headstart.cli.plan import PlanOptions, show_plan

    options = PlanOptions(epsilon, radius, safety, clients)
    show_plan(experiment, settings or [], seed, options, out, picture, rounds, console)


@app.command("reproduce")
def reproduce_papers(
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
    jobs: Annotated[int | None, typer.Option(help="Processes side by side; left out, one a core.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The folder for results; left out, `reproduction/full` or `reproduction/quick`."),
    ] = None,
    report_only: Annotated[
        bool, typer.Option("--report-only", help="Run nothing; write the reports of what is there.")
    ] = False,
    docs: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write one page of all reports into this Markdown file.")
    ] = None,
    list_all: Annotated[bool, typer.Option("--list", help="List the experiments and stop.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Run the papers' tables and figures again, and judge their claims by what comes out.

    `headstart reproduce --list` names all experiments; `headstart reproduce wang/table3` runs one.

    `headstart reproduce --quick --data ~/data` runs all of them, smaller; in full they take hours.

    The same command goes on where it stopped, after Ctrl-C or a crash.
    """
    from headstart.cli.reproduce import ReproduceOptions, list_experiments, reproduce

    if list_all:
        list_experiments(console)
        return
    out = out or Path("reproduction") / ("quick" if quick else "full")
    options = ReproduceOptions(
        tuple(ids or ()), "quick" if quick else "full", seeds, data, jobs, out, docs, report_only
    )
    raise typer.Exit(reproduce(options, console))


@app.command()
def algorithms() -> None:
    """List every algorithm with its paper and its settings."""
    from headstart.cli.catalogue import catalogue

    console.print(catalogue())


data_app = typer.Typer(
    help="Look at data sets, your own among them, and at how they are dealt out.", no_args_is_help=True
)
app.add_typer(data_app, name="data")


@data_app.command("list")
def list_data() -> None:
    """List the named data sets: what they are, how large, and whether their files are here."""
    from headstart.cli.data import catalogue

    console.print(catalogue())


@data_app.command()
def show(
    data: Annotated[str, typer.Argument(help="A data set's name, or the path of your own data.")],
    settings: SETTINGS = None,
    picture: Annotated[Path | None, typer.Option(help="Draw some samples into this PNG file.")] = None,
) -> None:
    """Show what a data set holds: samples, classes, columns, memory.

    `headstart data show cifar10 --picture cifar10.png`

    `headstart data show people.parquet --set client=person --set label=activity`
    """
    from headstart.cli.data import show_data

    show_data(data, settings or [], picture, console)


@data_app.command()
def partition(
    data: Annotated[str, typer.Argument(help="A data set's name, the path of your own data, or an experiment file.")],
    settings: SETTINGS = None,
    picture: Annotated[Path | None, typer.Option(help="Draw who has what into this PNG file.")] = None,
) -> None:
    """Show how a data set is dealt out to clients: who has what, and how unlike they are.

    `headstart data partition mnist --set partition.name=dirichlet-mixtures --set partition.concentration=0.1`

    `headstart data partition my.toml --picture clients.png`
    """
    from headstart.cli.data import show_partition

    show_partition(data, settings or [], picture, console)


@data_app.command()
def prepare(
    data: Annotated[str, typer.Argument(help="A data set's name, or the path of a table or folder of tables.")],
    out: Annotated[Path, typer.Option(help="The folder to make.")],
    client: Annotated[str | None, typer.Option(help="The column that says whose a row is.")] = None,
    label: Annotated[str | None, typer.Option(help="The column to predict.")] = None,
    features: Annotated[str | None, typer.Option(metavar="A,B,...", help="The columns to predict from.")] = None,
    group: Annotated[str | None, typer.Option(help="A column whose groups stay together.")] = None,
    order: Annotated[str | None, typer.Option(help="A column of times.")] = None,
) -> None:
    """Fetch a named data set, or turn a table larger than memory into a folder whose samples stay on disk.

    `headstart data prepare mnist --out ~/data`

    `headstart data prepare big.parquet --out big --client person --label activity`, then `headstart run --data big`
    """
    from headstart.cli.data import prepare_data

    prepare_data(data, out, client, label, features, group, order, console)
