"""Several worker processes side by side, each on cores of its own."""

import json
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

from headstart_papers.record import Unit

__all__ = ["Failure", "Silent", "Watcher", "run_all"]

TRIES = 2
"""How often a unit is tried whose worker dies, of the machine's lack of memory, say."""


@dataclass(frozen=True)
class Failure:
    """A unit that could not be run, and why."""

    unit: Unit
    problem: str


class Watcher(Protocol):
    """Who is told how the work goes on; called from several threads."""

    def begins(self, units: int, left: int, workers: int) -> None:
        """So many units there are, so many of them have no result yet, and so many workers run them."""

    def started(self, worker: int, unit: Unit) -> None:
        """A worker has taken a unit."""

    def progress(self, worker: int, done: int, rounds: int) -> None:
        """Rounds done of the unit that a worker has."""

    def ended(self, worker: int, unit: Unit, failure: Failure | None) -> None:
        """A unit is done, or cannot be."""


class Silent:
    """A watcher that tells nobody."""

    def begins(self, units: int, left: int, workers: int) -> None:
        pass

    def started(self, worker: int, unit: Unit) -> None:
        pass

    def progress(self, worker: int, done: int, rounds: int) -> None:
        pass

    def ended(self, worker: int, unit: Unit, failure: Failure | None) -> None:
        pass


def run_all(
    units: Sequence[Unit],
    folder: Path,
    jobs: int,
    watcher: Watcher,
    environment: dict[str, str] | None = None,
    checkpoint_seconds: float = 30.0,
) -> list[Failure]:
    """Run units, ``jobs`` at a time. What is refused once (missing data, say) is not tried for its experiment again."""
    folder.mkdir(parents=True, exist_ok=True)
    shared = _Shared(deque(units), checkpoint_seconds)
    workers = [
        _Worker(number, shared, folder, watcher, {**os.environ, **(environment or {}), **_cores(number, jobs)})
        for number in range(min(jobs, len(units)))
    ]
    try:
        for worker in workers:
            worker.start()
        for worker in workers:
            while not worker.idle.wait(0.2):  # in short waits, so that Ctrl-C is heard
                pass
    finally:
        shared.stopped = True
        for worker in workers:
            worker.end()
    return shared.failures


def _cores(number: int, jobs: int) -> dict[str, str]:
    """A share of the cores, so that workers do not take turns on one while another is free."""
    cores = sorted(os.sched_getaffinity(0))
    share = len(cores) // jobs
    if share == 0:
        return {}
    return {"HEADSTART_CORES": ",".join(str(core) for core in cores[number * share : (number + 1) * share])}


class _Outcome(NamedTuple):
    """How a unit ended in a process."""

    problem: str | None = None
    refused: bool = False
    """Whether the settings or the data are at fault, as they would be in the experiment's other units."""
    died: bool = False
    """Whether the process died, so that another try may help."""


class _Shared:
    """The units to do and what went wrong, shared by the threads that drive workers."""

    def __init__(self, units: deque[Unit], checkpoint_seconds: float):
        self.units = units
        self.checkpoint_seconds = checkpoint_seconds
        self.failures: list[Failure] = []
        self.stopped = False
        self._refused: set[str] = set()
        self._lock = threading.Lock()

    def take(self) -> Unit | None:
        with self._lock:
            while self.units and not self.stopped:
                unit = self.units.popleft()
                if unit.experiment not in self._refused:
                    return unit
            return None

    def fail(self, failure: Failure, refused: bool) -> None:
        with self._lock:
            self.failures.append(failure)
            if refused:
                self._refused.add(failure.unit.experiment)


class _Worker(threading.Thread):
    """Drives one process."""

    def __init__(self, number: int, shared: _Shared, folder: Path, watcher: Watcher, environment: dict[str, str]):
        super().__init__(daemon=True)
        self.number, self.shared, self.folder, self.watcher = number, shared, folder, watcher
        self.environment = environment
        self.log = folder / f"worker-{number}.log"
        self.process: subprocess.Popen[str] | None = None
        self.idle = threading.Event()
        """Set once there is nothing left to do. Not ``is_alive``, which Ctrl-C in a ``join`` makes false at once."""

    def run(self) -> None:
        try:
            while (unit := self.shared.take()) is not None:
                self._see_through(unit)
        finally:
            self._say("stop")
            self.idle.set()

    def _see_through(self, unit: Unit) -> None:
        """Have a unit run, again if its process dies, and tell how it ended."""
        self.watcher.started(self.number, unit)
        outcome = _Outcome()
        for _ in range(TRIES):
            outcome = self._do(unit)
            if not outcome.died or self.shared.stopped:
                break
        if self.shared.stopped:
            return
        failure = None if outcome.problem is None else Failure(unit, outcome.problem)
        if failure is not None:
            self.shared.fail(failure, outcome.refused)
        self.watcher.ended(self.number, unit, failure)

    def end(self) -> None:
        """End the process, at once if it is at work."""
        if self.process is None:
            return
        if not self.idle.is_set():
            self.process.kill()
        self.process.wait()

    def _do(self, unit: Unit) -> "_Outcome":
        """Have a unit run."""
        if self.process is None or self.process.poll() is not None:
            self._launch()
        seconds = self.shared.checkpoint_seconds
        self._say(json.dumps({"unit": asdict(unit), "folder": str(self.folder), "checkpoint_seconds": seconds}))
        assert self.process is not None
        assert self.process.stdout is not None
        for line in self.process.stdout:
            message: dict[str, Any] = json.loads(line)
            if message["event"] == "progress":
                self.watcher.progress(self.number, message["done"], message["rounds"])
            elif message["event"] == "finished":
                return _Outcome()
            elif message["event"] in ("refused", "failed"):
                return _Outcome(message["problem"], refused=message["event"] == "refused")
        code = self.process.wait()
        return _Outcome(f"its process ended with code {code}; {self.log} has its last words", died=True)

    def _launch(self) -> None:
        log: IO[str] = self.log.open("a")
        with log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "headstart_papers.worker"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, bufsize=1, env=self.environment,
                start_new_session=True,  # Ctrl-C is for the process that gives the orders
            )  # fmt: skip

    def _say(self, line: str) -> None:
        if self.process is not None and self.process.stdin is not None:
            try:
                self.process.stdin.write(line + "\n")
                self.process.stdin.flush()
            except (BrokenPipeError, ValueError):
                pass  # it has died; whoever reads its answers finds out
