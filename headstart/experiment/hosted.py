"""The run directory of several hosts: the first one writes it, and the others know what is in it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headstart.artifact import Predictor
from headstart.data import Federation, share_of
from headstart.experiment.record import MethodJournal, RunDirectory, RunRecord, read_manifest
from headstart.hosts import Crew, crew
from headstart.simulate import Result
from headstart.simulate.hosted.together import HostedJournal
from headstart.simulate.identity import data_digest

__all__ = ["HostsDirectory", "HostsMethodJournal", "opened", "own_share", "recorded_config"]


@contextmanager
def opened(path: Path, own: Callable[[], RunDirectory]) -> "Iterator[RunDirectory | HostsDirectory]":
    """The run directory; of several hosts the first one has it."""
    joined = crew()
    if joined is not None and not joined.leads:
        yield HostsDirectory(joined, path, None)
        return
    with own() as directory:
        yield directory if joined is None else HostsDirectory(joined, path, directory)


def recorded_config(path: Path) -> dict[str, Any]:
    """The configuration of a recorded run, which only the first of several hosts need be able to read."""
    joined = crew()
    if joined is None:
        return dict(read_manifest(path)["config"])
    config: dict[str, Any] = joined.led(lambda: read_manifest(path)["config"])
    return config


def own_share(federation: Federation) -> Federation:
    """A host's samples, once it needs those of its own clients alone; all of them where there is one host."""
    joined = crew()
    return federation if joined is None else share_of(federation, joined.index, joined.count, data_digest)


class HostsDirectory:
    """What ``RunDirectory`` is for one process; only the first host has one."""

    def __init__(self, crew: Crew, path: Path, own: RunDirectory | None):
        self.path, self._crew, self._own = path, crew, own
        self.manifest: dict[str, Any] = crew.agree(None if own is None else own.manifest)

    @property
    def searched(self) -> bool:
        """Whether its configuration has what a search has found."""
        return "tuning" in self.manifest

    def led(self, find: Callable[[RunDirectory], str | None]) -> str | None:
        """What the first host finds with its directory, while the others wait; all know then what that holds."""
        found: str | None = self._crew.agree(None if self._own is None else find(self._own))
        self.manifest = self._crew.agree(None if self._own is None else self._own.manifest)
        return found

    def journal(self, method: str, keep: int) -> "HostsMethodJournal":
        """The journal of one method of the run."""
        return HostsMethodJournal(
            self._crew, self.path / method, None if self._own is None else self._own.journal(method, keep)
        )

    def record(self, in_memory: Callable[[], RunRecord]) -> RunRecord:
        """The record: the first host's is the folder's, the others' what they know."""
        return in_memory() if self._own is None else self._own.record(in_memory)


class HostsMethodJournal:
    """One method's part of the run directory, for all hosts."""

    def __init__(self, crew: Crew, path: Path, own: MethodJournal | None):
        self.path, self._crew, self._own = path, crew, own
        self.told = HostedJournal(crew, own)
        self.tables = self.told.tables

    @property
    def done(self) -> bool:
        """Whether the method has been trained to the end."""
        return bool(self._crew.agree(None if self._own is None else self._own.done))

    @property
    def restorable(self) -> bool:
        """Whether there is a checkpoint to go on from."""
        return bool(self._crew.agree(None if self._own is None else self._own.restorable))

    @property
    def kept(self) -> Path | None:
        """Where the best round is kept: at the first host alone."""
        return None if self._own is None else self._own.kept

    def agree(self, value: Any) -> Any:
        """What the first host says."""
        return self._crew.agree(value)

    def finish(self, result: Result, model: Predictor | None) -> None:
        """Write what the method leaves."""
        if self._own is not None:
            self._own.finish(result, model)
        self._crew.agree()
