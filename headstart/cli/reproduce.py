"""`headstart reproduce`: run the papers' experiments, go on where they stopped, and write the verdicts."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from headstart.core import checks
from headstart.errors import UsageError
from headstart.reproduce.pool import Failure, run_all
from headstart.reproduce.reading import find_experiments
from headstart.reproduce.record import Profile, Unit
from headstart.reproduce.report import claims_table, docs_page, write_reports
from headstart.reproduce.store import Store

__all__ = ["ReproduceOptions", "list_experiments", "reproduce"]

FAILED = 1


@dataclass(frozen=True)
class ReproduceOptions:
    """What is asked for on the command line."""

    ids: tuple[str, ...]
    profile: Profile
    seeds: int | None
    data: Path | None
    jobs: int | None
    out: Path
    docs: Path | None
    report_only: bool


def list_experiments(console: Console) -> None:
    """Show every experiment that can be run."""
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("experiment", no_wrap=True)
    for column in ("place", "mode", "what it shows"):
        table.add_column(column)
    for experiment in find_experiments():
        table.add_row(experiment.id, experiment.place, experiment.mode, experiment.title)
    console.print(table)


def reproduce(options: ReproduceOptions, console: Console) -> int:
    """Run what is not there yet, then write and show the reports."""
    if options.seeds is not None:
        checks.whole("--seeds", options.seeds, 1)
    jobs = len(os.sched_getaffinity(0)) if options.jobs is None else options.jobs
    checks.whole("--jobs", jobs, 1)
    experiments = find_experiments(options.ids)
    store = Store(options.out)
    failures: list[Failure] = []
    if not options.report_only:
        units = [unit for experiment in experiments for unit in experiment.units(options.profile, options.seeds)]
        options.out.mkdir(parents=True, exist_ok=True)
        try:
            with FileLock(options.out / ".lock", timeout=0):
                failures = _run(units, store, jobs, options, console)
        except Timeout as error:
            raise UsageError(
                f"Another process is at work in {options.out}.", "Wait for it, or give another folder with --out."
            ) from error
    for experiment in experiments:
        console.print(claims_table(experiment, options.out, options.profile, options.seeds))
    path = write_reports(experiments, options.out, options.profile, options.seeds)
    console.print(f"Report: {escape(str(path))}")
    if options.docs is not None:
        docs_page(experiments, options.out, options.profile, options.docs, options.seeds)
        console.print(f"Page: {escape(str(options.docs))}")
    for failure in failures:
        console.print(
            f"[bold red]Not run:[/] {escape(failure.unit.experiment)}, {escape(failure.unit.name)}: "
            f"{escape(failure.problem)}"
        )
    return FAILED if failures else 0


def _run(units: list[Unit], store: Store, jobs: int, options: ReproduceOptions, console: Console) -> list[Failure]:
    missing = [unit for unit in units if store.read(unit) is None]
    if len(missing) < len(units):
        console.print(f"{len(units) - len(missing)} of {len(units)} units are done already.")
    if not missing:
        return []
    environment = {} if options.data is None else {"HEADSTART_DATA": str(options.data.resolve())}
    if options.profile == "quick":
        # Short runs spend most of their time compiling, which takes a third less for somewhat slower kernels.
        environment["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_cpu_use_fusion_emitters=false"
    try:
        with _Display(console, len(missing), min(jobs, len(missing))) as display:
            return run_all(missing, store.folder, jobs, display, environment)
    except KeyboardInterrupt:
        console.print("Stopped; all that is done is kept. The same command goes on from there.")
        raise


class _Display:
    """A bar for all units, and one for each worker's."""

    def __init__(self, console: Console, units: int, workers: int):
        self._progress = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console
        )
        self._all = self._progress.add_task("units", total=units)
        self._workers: list[TaskID] = [self._progress.add_task("waiting", total=None) for _ in range(workers)]

    def __enter__(self) -> "_Display":
        self._progress.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._progress.stop()

    def started(self, worker: int, unit: Unit) -> None:
        self._progress.reset(self._workers[worker], total=None, description=escape(f"{unit.experiment} {unit.name}"))

    def progress(self, worker: int, done: int, rounds: int) -> None:
        self._progress.update(self._workers[worker], completed=done, total=rounds)

    def ended(self, worker: int, unit: Unit, failure: Failure | None) -> None:
        self._progress.advance(self._all)
        if failure is not None:
            self._progress.console.print(f"[red]✗[/] {escape(unit.experiment)} {escape(unit.name)}")
