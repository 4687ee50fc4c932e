"""The hosts of a run: what the first one decides for all, what all bring together, and how they end together."""

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np

from headstart.hosts.lines import DONE, FAILED, Line

__all__ = ["Crew", "crew", "set_crew"]

ENDED = 1
"""The exit code of a host that ends because another one has."""
PATIENCE = 5.0
"""Seconds that an error of a collective waits for the news of which host it was."""


class Crew:
    """This host among all of them. The first one has a line to every other; sums of rounds go their own way.

    Everything here is asked of all hosts in the same order.
    """

    def __init__(self, index: int, names: Sequence[str]):
        self.index, self.names = index, tuple(names)
        self.resume: str | None = None
        """The command that goes on with the run, once there is one."""
        self._lines: list[Line] = []
        self._leaving = threading.Lock()

    @property
    def count(self) -> int:
        """How many hosts there are."""
        return len(self.names)

    @property
    def leads(self) -> bool:
        """Whether this is the first host, which writes the record."""
        return self.index == 0

    def connect(self, lines: Sequence[Line]) -> None:
        """Take the lines to the others: of the first host to all in order, of any other to the first."""
        self._lines = list(lines)
        for line in lines:
            line.listen()

    def agree(self, value: Any = None) -> Any:
        """What the first host says, as JSON has it."""
        if not self.leads:
            return json.loads(self._lines[0].hear())
        message = json.dumps(value).encode()
        for line in self._lines:
            line.tell(message)
        return json.loads(message)

    def led(self, find: Callable[[], Any]) -> Any:
        """What the first host finds, while the others wait."""
        return self.agree(find() if self.leads else None)

    def gather(self, own: bytes) -> list[bytes]:
        """What every host brings, in their order, at the first one; nothing at the others."""
        if self.leads:
            return [own, *(line.hear() for line in self._lines)]
        self._lines[0].tell(own)
        return []

    def exchange(self, own: bytes) -> list[bytes]:
        """What every host brings, in their order, at all of them."""
        all_ = self.gather(own)
        if not self.leads:
            return [self._lines[0].hear() for _ in self.names]
        for line in self._lines:
            for each in all_:
                line.tell(each)
        return all_

    def hand_out(self, parts: Sequence[bytes] | None) -> bytes:
        """To every host its part of what the first one has."""
        if not self.leads:
            return self._lines[0].hear()
        assert parts is not None
        for line, part in zip(self._lines, parts[1:], strict=True):
            line.tell(part)
        return parts[0]

    def numbers(self, own: float) -> list[float]:
        """A number of every host."""
        return [float(np.frombuffer(each, np.float64)[0]) for each in self.exchange(np.float64(own).tobytes())]

    def finish(self) -> None:
        """Say that all is done, and wait until everybody has."""
        for line in self._lines:
            line.tell(b"", DONE)
        for line in self._lines:
            line.done.wait()

    def fail(self, reason: str) -> None:
        """Tell the others that this host ends, and why."""
        with self._leaving:
            for line in self._lines:
                line.tell(f"Host {self._name(self.index)} ended with an error: {reason}".encode(), FAILED)

    @contextmanager
    def blamed(self, *errors: type[Exception]) -> Iterator[None]:
        """Errors of a collective, which only knows that a host has gone, wait for the line that knows which one."""
        try:
            yield
        except errors:
            threading.Event().wait(PATIENCE)
            raise

    def ended(self, line: Line, reason: str) -> NoReturn:
        """Another host has ended: say so to the rest, and end."""
        with self._leaving:
            other = self._lines.index(line) + 1 if self.leads else 0
            said = reason or f"Host {self._name(other)} has gone without a word; it was killed, or cannot be reached."
            for rest in self._lines:
                if rest is not line:
                    rest.tell(said.encode(), FAILED)
            sys.stdout.flush()
            sys.stderr.write(f"\nError: {said}\n  This host ends, too; all up to the last checkpoint is kept.\n")
            if self.resume is not None:
                sys.stderr.write(f"  Go on, with as many hosts as there are, with: {self.resume}\n")
            sys.stderr.flush()
            os._exit(ENDED)

    def _name(self, index: int) -> str:
        return f"{index} ({self.names[index]})"


_crew: Crew | None = None


def crew() -> Crew | None:
    """The hosts that this process has joined; ``None`` where it is alone."""
    return _crew


def set_crew(joined: Crew) -> None:
    """Be one of some hosts from now on."""
    global _crew
    _crew = joined
