"""What hosts do together around the rounds: one journal, and one reason to stop."""

import io
import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from headstart.hosts import Crew
from headstart.simulate.callbacks import Callback, Evaluated, Progress, Run
from headstart.simulate.identity import Identity
from headstart.simulate.journal import Journal, Unrecorded
from headstart.simulate.rounds import RunState

__all__ = ["HostedJournal", "Together"]


class HostedJournal:
    """The first host's journal for all of them: it writes and reads, and the others are told."""

    def __init__(self, crew: Crew, journal: Journal | None):
        self._crew = crew
        self._own: Journal = journal if journal is not None and crew.leads else Unrecorded()

    def identify(self, identity: Identity) -> None:
        self._own.identify(identity)

    def rounds(self, table: pa.Table) -> None:
        if self._crew.leads:
            self._own.rounds(table)

    def evaluated(self, table: pa.Table) -> None:
        if self._crew.leads:
            self._own.evaluated(table)

    def checkpoint(self, round_: int, state: RunState) -> None:
        """Everything is kept at the first host; the others wait, so that none is ahead of what is kept."""
        self._own.checkpoint(round_, state)
        self._crew.agree()

    def restore(self, template: RunState) -> tuple[int, RunState] | None:
        found = self._own.restore(template)
        round_ = self._crew.agree(None if found is None else found[0])
        return None if round_ is None else (round_, template if found is None else found[1])

    def tables(self) -> tuple[pa.Table | None, pa.Table | None]:
        first, second = (
            self._crew.hand_out([_packed(table)] * self._crew.count if self._crew.leads else None)
            for table in (self._own.tables() if self._crew.leads else (None, None))
        )
        return _unpacked(first), _unpacked(second)


class Together(Callback):
    """Callbacks of all hosts: what any of them says is the reason to stop for all."""

    def __init__(self, crew: Crew, callbacks: Sequence[Callback]):
        self._crew, self._callbacks = crew, list(callbacks)

    def on_start(self, run: Run, rounds: int) -> None:
        for callback in self._callbacks:
            callback.on_start(run, rounds)

    def on_chunk(self, progress: Progress) -> str | None:
        return self._agreed([callback.on_chunk(progress) for callback in self._callbacks])

    def on_evaluation(self, evaluated: Evaluated) -> str | None:
        return self._agreed([callback.on_evaluation(evaluated) for callback in self._callbacks])

    def on_end(self, result: Any) -> None:
        for callback in self._callbacks:
            callback.on_end(result)

    def on_error(self, error: BaseException) -> None:
        for callback in self._callbacks:
            callback.on_error(error)

    def _agreed(self, reasons: list[str | None]) -> str | None:
        own = next((reason for reason in reasons if reason is not None), None)
        said = [json.loads(each) for each in self._crew.exchange(json.dumps(own).encode())]
        return next((reason for reason in said if reason is not None), None)


def _packed(table: pa.Table | None) -> bytes:
    if table is None:
        return b""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _unpacked(packed: bytes) -> pa.Table | None:
    return pa.ipc.open_stream(packed).read_all() if packed else None
