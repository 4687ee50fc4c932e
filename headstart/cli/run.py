"""`headstart run`: train, adapt to every client, and print the comparison."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from headstart.cli.hosts import together
from headstart.cli.options import (
    PANEL,
    Client,
    Debug,
    ExperimentFile,
    Features,
    Group,
    HeldOut,
    Kind,
    Label,
    Order,
    Seed,
    Settings,
    Shots,
    column_names,
    number,
)
from headstart.errors import UsageError

if TYPE_CHECKING:
    from headstart.experiment import Experiment, RunResult

__all__ = ["run"]

INTERRUPTED = 130
"""The exit code of a run stopped by Ctrl-C, as shells have it."""


def run(
    experiment: ExperimentFile = None,
    settings: Settings = None,
    seed: Seed = None,
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
            help="Your own data (a CSV or Parquet table, a folder with one file per client, a tree of images, prepared "
            "data), or a data set by name (see `headstart data list`).",
            rich_help_panel=PANEL,
        ),
    ] = None,
    client: Client = None,
    label: Label = None,
    kind: Kind = None,
    features: Features = None,
    group: Group = None,
    order: Order = None,
    held_out: HeldOut = None,
    shots: Shots = None,
    tune: Annotated[
        bool | None,
        typer.Option(
            "--tune/--no-tune",
            help="Find step sizes that are not given, and how to adapt, on validation clients first; with --data of "
            "your own that is so unless you say no.",
        ),
    ] = None,
    plan: Annotated[
        bool,
        typer.Option("--plan", help="Take step sizes, local steps and batch sizes from theory: see `headstart plan`."),
    ] = False,
    watch: Annotated[
        bool,
        typer.Option("--watch", help="Show the report on a page of this machine that follows the run while it trains."),
    ] = False,
    open: Annotated[bool, typer.Option("--open", help="With --watch: show that page in a browser.")] = False,
    epsilon: Annotated[
        float | None, typer.Option(help="With --plan: what the mean squared gradient norm is to be at most.")
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE", help="What each device may use, such as `4GB`; the same as `--set train.memory_limit=4GB`."
        ),
    ] = None,
    hosts: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...",
            help="Compute the run on several machines, on each of which this same command is started: their names, the "
            "first as NAME or NAME:PORT; `cluster` for what Kubernetes says, `alone` to ignore SLURM and Open MPI.",
        ),
    ] = None,
    host: Annotated[
        int | None, typer.Option(help="With --hosts: which of them this one is, from 0 on, if its name does not tell.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Train, adapt to every client, and print the comparison.

    `headstart run` alone trains Per-FedAvg and FedAvg on embedded handwritten digits.

    `headstart run --data people.parquet --client person --label activity` does so on your own table, with step sizes
    that suit it; `--set algorithm.inner_lr=0.1` gives one and leaves the others to the search.

    `headstart run my.toml --set train.rounds=1000 --seed 1 --out runs/mine` runs your own experiment.

    `headstart run my.toml --plan --epsilon 0.1` plans it first, from constants estimated on its data.

    `headstart run my.toml --watch --open` shows the report in a browser, which follows the run.

    `headstart run --resume runs/mine` continues it, bit for bit, after Ctrl-C or a crash.

    `headstart run my.toml --out runs/mine --hosts node1,node2` on both machines runs it on both.

    From Python: `hs.Experiment.from_toml("my.toml", settings=["train.rounds=1000"], seed=1).run("runs/mine")`,
    `hs.Experiment.from_table("people.parquet", client="person", label="activity").run("runs/people")`,
    `hs.Experiment.from_toml("my.toml").planned(epsilon=0.1).experiment.run("runs/mine")`, `hs.resume("runs/mine")`.
    """
    about: dict[str, Any] = {
        "client": client, "label": label, "kind": kind, "features": column_names(features), "group": group,
        "order": order, "held_out": number("--held-out", held_out), "shots": shots,
    }  # fmt: skip
    about = {name: value for name, value in about.items() if value is not None}
    if data is None and about:
        option = next(iter(about)).replace("_", "-")
        raise UsageError(f"--{option} says something about data, but there is no --data.", "Name the data with --data.")
    if open and not watch:
        raise UsageError("--open shows the page of --watch, but there is no --watch.", "Add --watch.")
    if epsilon is not None and not plan:
        raise UsageError("--epsilon is what a plan is to reach, but there is no --plan.", "Add --plan.")
    given = {
        "EXPERIMENT": experiment, "--set": settings, "--seed": seed, "--out": out, "--data": data, "--plan": plan,
        "--tune": tune, "--memory": memory,
    }  # fmt: skip
    extra = [name for name, value in given.items() if value]
    if resume is not None and extra:
        raise UsageError(
            f"--resume continues a run as it was configured; {', '.join(extra)} cannot change it.",
            "Leave that out, or start a new run without --resume.",
        )
    limit = [] if memory is None else [f'train.memory_limit="{memory}"']
    asked = _Asked(experiment, [*(settings or []), *limit], seed, data, about, tune, plan, epsilon)
    folder = resume or out or Path("runs") / datetime.now().strftime("%Y%m%d-%H%M%S")
    with together(hosts, host, f"headstart run --resume {folder}") as crew:
        if crew is not None:
            folder = Path(crew.agree(str(folder)))
        with _page(folder, watch and (crew is None or crew.leads), open):
            code = _run(asked, folder, resumed=resume is not None)
    raise typer.Exit(code)


class _Asked(NamedTuple):
    """An experiment as it is asked for."""

    experiment: Path | None
    settings: list[str]
    seed: int | None
    data: str | None
    about: dict[str, Any]
    """What is said of the data."""
    tune: bool | None
    plan: bool
    epsilon: float | None

    def made(self) -> "Experiment":
        """The experiment."""
        import headstart as hs
        from headstart.cli.terminal import watched_data

        if self.data is None:
            made = hs.Experiment.from_toml(
                self.experiment, settings=self.settings, seed=self.seed, tune=bool(self.tune)
            )
        else:
            chosen = self.about if self.seed is None else {**self.about, "seed": self.seed}
            with watched_data():
                made = hs.Experiment.from_table(
                    self.data, experiment=self.experiment, settings=self.settings,
                    tune=False if self.plan else self.tune, **chosen,
                )  # fmt: skip
        return _planned(made, self.epsilon) if self.plan else made


def _run(asked: _Asked, folder: Path, *, resumed: bool) -> int:
    import headstart as hs

    return _watched(hs.Experiment.from_run(folder) if resumed else asked.made(), folder, resumed=resumed)


@contextmanager
def _page(folder: Path, watch: bool, show: bool) -> Iterator[None]:
    """The page that follows the run, if it is asked for, while the block runs."""
    if not watch:
        yield
        return
    from headstart.cli.terminal import console, escape
    from headstart.report import Watch

    with Watch([folder]).aside() as address:
        console.print(f"Watching at {escape(address)}", soft_wrap=True)
        if show:
            typer.launch(address)
        yield
    console.print(
        f"The page has ended; the same stays as: headstart report {escape(str(folder))} --open", soft_wrap=True
    )


def _planned(experiment: "Experiment", epsilon: float | None) -> "Experiment":
    """Plan, and show it."""
    from headstart.cli.terminal import console, estimating, say
    from headstart.report import bounds_table, estimates_table, plans_table

    with estimating() as progress:
        planned = experiment.planned(epsilon, progress=progress)
    console.print(estimates_table(planned.plans.estimates))
    console.print(plans_table({planned.method: planned.plan}))
    console.print(bounds_table({planned.method: planned.plan}))
    say(planned.notes)
    return planned.experiment


def _watched(experiment: "Experiment", folder: Path, *, resumed: bool) -> int:
    """Run or resume, with bars and Ctrl-C, and print what came out or how to go on."""
    from headstart.cli.interrupts import interruptible
    from headstart.cli.searching import searching
    from headstart.cli.terminal import bars, console, escape, say
    from headstart.hosts import crew
    from headstart.report import method_title

    def title(label: str) -> str:
        return method_title(label, experiment.settings.methods[label].resolved)

    def in_rounds(label: str) -> bool:
        return bool(experiment.settings.methods[label].build().cost().gradients)

    if not resumed:
        say(experiment.notes)
    # Several hosts end together, after the same chunk.
    with interruptible(folder) if crew() is None else interruptible(folder, patience=None) as stop:
        start = experiment.resume if resumed else experiment.run
        with searching(title, stop) as told:
            result = start(folder, callbacks=bars(title, stop, in_rounds), searching=told)
    if result.stopped is None:
        if result.record.path is not None:  # which only the first of several hosts has
            _conclude(result, experiment)
        return 0
    if result.stopped not in result.results:
        console.print(
            f"Stopped in the search for settings of {escape(title(result.stopped))}; what was found is kept.\n"
            f"Go on with: headstart run --resume {escape(str(folder))}"
        )
        return INTERRUPTED
    rounds = experiment.settings.train.rounds
    console.print(
        f"Stopped after round {result.results[result.stopped].rounds} of {rounds} of {escape(title(result.stopped))}; "
        f"all is kept.\nGo on with: headstart run --resume {escape(str(folder))}"
    )
    return INTERRUPTED


def _conclude(result: "RunResult", experiment: "Experiment") -> None:
    from headstart.cli.terminal import console, escape
    from headstart.report import best_model, comparison_table, further_table, naive_note, plot_run

    folder = result.record.path
    assert folder is not None
    console.print(comparison_table(result.record, min(console.width, 80)))
    others = further_table(result.record)
    if others is not None:
        console.print(others)
    naive = naive_note(result.record, experiment.federation)
    if naive is not None:
        console.print(naive)
    picture = folder / "comparison.png"
    try:
        plot_run(result.record, picture)
    except UsageError:
        # The plot extra is not installed; the table has said it all.
        console.print(f"Record: {escape(str(folder))}")
    else:
        console.print(f"Record: {escape(str(folder))}, picture: {escape(str(picture))}", soft_wrap=True)
    model = best_model(result.record)
    if model is not None:
        console.print(f"Model:  {escape(str(model))}", soft_wrap=True)
        console.print("Next:   headstart inspect MODEL, or adapt MODEL --data mine.csv --out MINE")
