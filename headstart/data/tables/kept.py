"""The rows of a source that are used: all but those of no client or no label, where such are to be dropped."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headstart.data.tables.numbers import missing_values
from headstart.data.tables.reading import Source
from headstart.data.tables.roles import Roles
from headstart.data.watching import watcher
from headstart.errors import UsageError

__all__ = ["KeptBatch", "kept_batches"]


@dataclass(frozen=True, eq=False)
class KeptBatch:
    """A record batch without the rows that are left out, and where its rows are in the source."""

    data: pa.RecordBatch
    source: Source
    start: int
    kept: np.ndarray | None = None
    left_out: int = 0
    """How many rows of the source's batch are not here."""

    def row(self, i: int) -> int:
        """The number in the source of the batch's row ``i``."""
        return self.start + int(i if self.kept is None else self.kept[i])

    def place(self, i: int, column: str) -> str:
        """Where a value is, for a person."""
        return f"{self.source.place(self.row(i))}, column {column!r}"


def kept_batches(source: Source, roles: Roles, drop_missing: bool) -> Iterator[KeptBatch]:
    """The batches, without rows of no client or no label; such rows are an error unless they are to be dropped."""
    start, told = 0, watcher()
    for data in source.batches(roles.all):
        if told is not None:
            told(f"Taking in {source.name}", start / source.rows if source.rows else None)
        kept = None
        for column, what in ((roles.client, "client"), (roles.label, "label")):
            absent = missing_values(data.column(column))
            if absent is None:
                continue
            if not drop_missing:
                first = int(np.flatnonzero(absent)[0])
                raise UsageError(
                    f"{source.place(start + first)} has no {what} (column {column!r}).",
                    "Fill it in, or leave such rows out with drop_missing = true (--set data.drop_missing=true).",
                )
            kept = ~absent if kept is None else kept & ~absent
        if kept is None:
            yield KeptBatch(data, source, start)
        else:
            there = np.flatnonzero(kept)
            yield KeptBatch(data.filter(pa.array(kept)), source, start, there, len(kept) - len(there))
        start += len(data)
