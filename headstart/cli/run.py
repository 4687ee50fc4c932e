"""`headstart run`: from a configuration to a recorded run and its comparison."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

from headstart import simulate
from headstart.cli.experiment import Experiment, read_experiment, with_settings
from headstart.cli.own_data import DataOptions, fitted
from headstart.cli.startup import prepare_jax
from headstart.data import Federation
from headstart.errors import UsageError
from headstart.report import comparison_table, method_title, plot_run
from headstart.simulate import RunDirectory, load_run, train

if TYPE_CHECKING:
    from headstart.cli.plan import PlanOptions

__all__ = ["resume_run", "start_run"]

INTERRUPTED = 130
"""The exit code of a run stopped by Ctrl-C, as shells have it."""


def start_run(
    path: Path | None,
    settings: list[str],
    seed: int | None,
    out: Path | None,
    data: DataOptions | None,
    plan: "PlanOptions | None",
    console: Console,
) -> int:
    """Check the configuration, open a new run directory, and run."""
    tables = read_experiment(path, "default.toml" if data is None else "own_data.toml")
    if data is not None:
        tables["data"] = data.section()
    tables = with_settings(tables, settings)
    if seed is not None:
        tables["seed"] = seed
    experiment = Experiment.from_tables(tables)
    out = out or Path("runs") / datetime.now().strftime("%Y%m%d-%H%M%S")
    prepare_jax(experiment)
    federation = experiment.federation()
    if data is not None:
        tables = fitted(tables, federation)
        experiment = Experiment.from_tables(tables)
    if plan is not None:
        from headstart.cli.plan import planned

        experiment = Experiment.from_tables(planned(tables, experiment, federation, plan, console))
    # Everything that can be wrong with the data or the settings is found before the folder is made.
    job = _Job(experiment, federation)
    _say_notes(federation, console)
    with RunDirectory.create(out, experiment.resolved, list(experiment.methods)) as directory:
        return job.run(directory, console)


def resume_run(path: Path, console: Console) -> int:
    """Continue a run as its record says."""
    with RunDirectory.open(path) as directory:
        experiment = Experiment.from_tables(directory.manifest["config"])
        prepare_jax(experiment)
        return _Job(experiment, experiment.federation()).run(directory, console)


class _Job:
    """A checked experiment with its data loaded and its algorithms built."""

    def __init__(self, experiment: Experiment, federation: Federation):
        self.experiment = experiment
        self.algorithms = {label: method.build() for label, method in experiment.methods.items()}
        self.federation = federation
        self.problem = experiment.problem(self.federation)
        for algorithm in self.algorithms.values():
            simulate.check(
                algorithm, self.problem, self.federation, experiment.train.cohort, experiment.train.weighting
            )
            experiment.evaluate.adapting(algorithm)

    def run(self, directory: RunDirectory, console: Console) -> int:
        """Train every method that is not done yet; print the comparison, or how to go on."""
        settings = self.experiment.train
        with _interruptible() as stop:
            for label, algorithm in self.algorithms.items():
                journal = directory.journal(label, settings.keep_checkpoints)
                if journal.done:
                    continue
                title = method_title(label, self.experiment.methods[label].resolved)
                with _bar(console, title, settings.rounds, stop) as observe:
                    result = train(
                        algorithm,
                        self.problem,
                        self.federation,
                        rounds=settings.rounds,
                        cohort=settings.cohort,
                        weighting=settings.weighting,
                        seed=self.experiment.seed,
                        evaluation=self.experiment.evaluate,
                        backend=settings.backend,
                        devices=settings.devices,
                        at_once=settings.at_once,
                        chunk=settings.chunk,
                        memory=journal.path / "memory" if settings.memory == "disk" else None,
                        journal=journal,
                        observer=observe,
                    )
                if result.rounds < settings.rounds:
                    console.print(
                        f"Stopped after round {result.rounds} of {settings.rounds} of {escape(title)}; all is kept.\n"
                        f"Go on with: headstart run --resume {escape(str(directory.path))}"
                    )
                    return INTERRUPTED
                journal.finish(result)
        self._conclude(directory, console)
        return 0

    def _conclude(self, directory: RunDirectory, console: Console) -> None:
        record = load_run(directory.path)
        console.print(comparison_table(record))
        picture = directory.path / "comparison.png"
        try:
            plot_run(record, picture)
        except UsageError:
            # The plot extra is not installed; the table has said it all.
            console.print(f"Record: {escape(str(directory.path))}")
        else:
            console.print(f"Record: {escape(str(directory.path))}, picture: {escape(str(picture))}")


def _say_notes(federation: Federation, console: Console) -> None:
    """What a reader of the results should know about how the data was dealt out."""
    if federation.partition is not None:
        for note in federation.partition.notes:
            console.print(f"[dim]•[/] {escape(note)}")


class _Stop:
    """Whether Ctrl-C was pressed: once to finish the chunk, twice to leave at once."""

    requested = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        Console(stderr=True).print("\nFinishing this chunk; press Ctrl-C again to leave at once.")


@contextmanager
def _interruptible() -> Iterator[_Stop]:
    stop = _Stop()
    signals = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, stop) for number in signals}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _bar(console: Console, title: str, rounds: int, stop: _Stop) -> Iterator[Callable[[simulate.Progress], bool]]:
    """A progress bar with round, loss, rounds a second and time left; plain lines where there is no terminal."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]}"),
        TextColumn("{task.fields[speed]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not sys.stdout.isatty()) as bar:
        task = bar.add_task(escape(title), total=rounds, loss="…", speed="compiling")

        def observe(progress: simulate.Progress) -> bool:
            bar.update(
                task,
                completed=progress.round,
                loss=f"{progress.loss:.4f}",
                speed=f"{progress.rounds_per_second:.1f} rounds/s",
            )
            if bar.disable and progress.round == rounds:
                console.print(f"{escape(title)}: {rounds} rounds, loss {progress.loss:.4f}")
            return not stop.requested

        yield observe
