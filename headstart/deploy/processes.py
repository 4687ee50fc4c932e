"""Processes that are kept running: started, watched, started again, and ended with all that they have started."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from headstart.deploy.events import Events

__all__ = ["HOPELESS", "Child", "Keeper", "alive", "end", "environment", "tail"]

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds before a process that ended is started again: twice as many each time, up to the latter."""
STEADY_SECONDS = 120.0
"""A process that ran so long is started again as if for the first time."""
GRACE_SECONDS = 8.0
"""How long a process may take to end when it is asked to."""
ORPHAN_SECONDS = 2.0
"""How long what it has started may then still take."""
HOPELESS = 5
"""So many times in a row may a process end soon after its start."""
LARGEST_LOG = 50 * 2**20
"""A log that has more bytes when its process is started is put aside, in place of the one put aside before."""


def environment(flower_home: Path) -> dict[str, str]:
    """The environment of Flower's processes: nothing is reported, looked up or installed, and commands are ours."""
    commands = str(Path(sys.executable).parent)
    return {
        **os.environ,
        "PATH": os.pathsep.join([commands, os.environ.get("PATH", os.defpath)]),
        "PYTHONUNBUFFERED": "1",
        "FLWR_HOME": str(flower_home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.25",
    }


@dataclass
class Child:
    """A process to be kept running."""

    name: str
    command: Sequence[str]
    log: Path
    """Where its output goes."""
    env: Mapping[str, str]
    pause: Callable[["Child"], float | None] = lambda child: None
    """How long to wait before it is started again, in seconds; ``None`` for the usual."""
    process: subprocess.Popen | None = field(default=None, init=False)
    starts: int = field(default=0, init=False)
    failures: int = field(default=0, init=False)
    """How often in a row it has ended soon after its start."""
    _began: float = field(default=0.0, init=False)
    _due: float = field(default=0.0, init=False)

    @property
    def running(self) -> bool:
        """Whether it has been started and has not ended."""
        return self.process is not None and self.process.poll() is None

    def tend(self, log: Events | None = None) -> None:
        """Start it if it is not running and its pause is over."""
        now = time.monotonic()
        if self.running:
            return
        if self.process is not None:
            code, self.process = self.process.returncode, None
            self.failures = 1 if now - self._began > STEADY_SECONDS else self.failures + 1
            usual = min(FIRST_PAUSE * 2 ** (self.failures - 1), LONGEST_PAUSE)
            asked = self.pause(self)
            self._due = now + (usual if asked is None else asked)
            if log is not None:
                log.tell("process_ended", process=self.name, reason=_how(code), seconds=round(self._due - now, 1))
        if now >= self._due:
            self._start(now)

    def _start(self, now: float) -> None:
        leash = [sys.executable, "-m", "headstart.deploy.leash", str(os.getpid())]
        self.log.parent.mkdir(parents=True, exist_ok=True)
        if self.log.exists() and self.log.stat().st_size > LARGEST_LOG:
            self.log.replace(self.log.with_suffix(".old"))
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*leash, *self.command], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=dict(self.env),
                start_new_session=True,
            )  # fmt: skip
        self.starts += 1
        self._began = now


class Keeper:
    """Several processes, in the order in which they need one another."""

    def __init__(self, children: Sequence[Child], events: Events | None = None):
        self.children, self._events = list(children), events

    def __enter__(self) -> "Keeper":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __getitem__(self, name: str) -> Child:
        return next(child for child in self.children if child.name == name)

    def tend(self) -> None:
        """Start whatever is not running, once its pause is over."""
        for child in self.children:
            child.tend(self._events)

    def hopeless(self) -> Child | None:
        """A process that ended so often, so soon after each start, that something must be wrong with it."""
        return next((child for child in self.children if child.failures > HOPELESS), None)

    @property
    def pids(self) -> list[int]:
        """Of those that run, the last that was started first."""
        return [child.process.pid for child in reversed(self.children) if child.process is not None and child.running]

    def stop(self) -> None:
        """End all of them, and whatever they have started."""
        end(self.pids)
        for child in self.children:
            if child.process is not None:
                child.process.wait()


def end(pids: Sequence[int], grace: float = GRACE_SECONDS) -> None:
    """Ask processes to end, in this order, and make them and all that they have started end after a while."""
    asked, family = [], []
    for pid in pids:
        try:
            process = psutil.Process(pid)
            family += [process, *process.children(recursive=True)]
            asked.append(process)
        except psutil.NoSuchProcess:
            continue
    for process in asked:
        _tell(process, signal.SIGTERM)
    _waited(asked, grace)
    for process in _waited(family, ORPHAN_SECONDS):
        _tell(process, signal.SIGKILL)
    _waited(family, ORPHAN_SECONDS)


def tail(path: Path, lines: int = 15) -> str:
    """The last lines of a log."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 200 * lines))
            return "\n".join(file.read().decode(errors="replace").splitlines()[-lines:])
    except OSError:
        return ""


def _waited(processes: Sequence[psutil.Process], seconds: float) -> list[psutil.Process]:
    """Those that are still running after so long; one that has ended and is not reaped by its parent is not."""
    until = time.monotonic() + seconds
    while (alive := [process for process in processes if _runs(process)]) and time.monotonic() < until:
        time.sleep(0.05)
    return alive


def alive(pid: int) -> bool:
    """Whether a process runs; one that was killed and not reaped does not."""
    try:
        return _runs(psutil.Process(pid))
    except psutil.NoSuchProcess:
        return False


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _tell(process: psutil.Process, number: signal.Signals) -> None:
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return


def _how(code: int) -> str:
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
