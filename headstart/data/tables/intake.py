"""From record batches to the arrays that samples are made of, one block of rows at a time."""

from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from headstart.data.blocks import in_blocks
from headstart.data.samples import Samples
from headstart.data.tables.categories import Categories
from headstart.data.tables.dictionaries import dictionary_of, ordered_dictionary
from headstart.data.tables.encoding import MISSING, CategoryColumn, Encoding, NumberColumn
from headstart.data.tables.kept import KeptBatch, kept_batches
from headstart.data.tables.labels import Kind, Labels, label_chunk, labels_of
from headstart.data.tables.numbers import Span, as_numbers, missing_values, write_numbers
from headstart.data.tables.reading import Source
from headstart.data.tables.roles import Roles, holding
from headstart.data.tables.sinks import BLOCK_ROWS, RowSink
from headstart.errors import UsageError

__all__ = ["Taken", "take_in"]


@dataclass(frozen=True, eq=False)
class Taken:
    """A table's rows as arrays: what they hold, whose they are, and what is known of the columns before any fit."""

    x: np.ndarray
    labels: Labels
    columns: dict[str, np.ndarray | pa.DictionaryArray]
    encoding: Encoding
    notes: tuple[str, ...] = ()
    """What is to be said of the label and of columns."""

    def samples(self, name: str) -> Samples:
        """The rows as samples, whose transform is not fitted yet."""
        labels = self.labels
        return Samples(name, self.x, labels.y, labels.classes, columns=self.columns, target=labels.target)


def take_in(source: Source, roles: Roles, sink: RowSink, kind: Kind, drop_missing: bool) -> Taken:
    """Read a source once (and columns of a narrow range twice) into a sink; texts become numbers of categories."""
    features, whose = _Features(source, roles, sink), _Whose(source, roles)
    label_chunks: list[pa.Array] = []
    rows = 0
    for batch in kept_batches(source, roles, drop_missing):
        rows += len(batch.data)
        whose.take(batch)
        label_chunks.append(label_chunk(batch.data.column(roles.label)))
        features.take(batch)
    if not rows:
        raise UsageError(f"{source.name} has no rows.", "Give a table with samples.")
    x, encoding = features.stored(drop_missing)
    labels = labels_of(label_chunks, kind, source, roles.label)
    return Taken(x, labels, whose.columns(), encoding, (labels.note, *features.notes()))


class _Features:
    """The columns to predict from, as they are read and stored."""

    def __init__(self, source: Source, roles: Roles, sink: RowSink):
        self.source, self.roles, self.sink = source, roles, sink
        kinds = [holding(source.schema.field(column).type) for column in roles.features]
        self.numbers = {j: Span() for j, kind in enumerate(kinds) if kind in ("numbers", "nothing")}
        self.texts = {j: Categories(column, source) for j, column in enumerate(roles.features) if j not in self.numbers}

    def take(self, batch: KeptBatch) -> None:
        """Write a batch's rows."""
        columns = [batch.data.column(name) for name in self.roles.features]
        values = {j: as_numbers(columns[j]) for j in self.numbers}
        codes = {j: known.codes(columns[j], batch) for j, known in self.texts.items()}
        room = self.sink.block(len(batch.data))

        def write(part: slice) -> dict[int, Span]:
            for j, of in codes.items():
                room[part, j] = of[part]

            def place(j: int, i: int) -> str:
                return batch.place(part.start + i, self.roles.features[j])

            return {j: write_numbers(room[part], j, of[part], partial(place, j)) for j, of in values.items()}

        for spans in in_blocks(write, len(batch.data), BLOCK_ROWS):
            for j, span in spans.items():
                self.numbers[j] = self.numbers[j].joined(span)
        self.sink.put(room)

    def stored(self, drop_missing: bool) -> tuple[np.ndarray, Encoding]:
        """All rows, and what is known of their columns; those of a narrow range are read again, for their offsets."""
        x = self.sink.whole()
        offsets = {j: offset for j, span in self.numbers.items() if not span.empty and (offset := span.offset())}
        if offsets:
            self._write_less(offsets, x, drop_missing)
        columns = tuple(
            NumberColumn(name, offset=offsets.get(j, 0.0))
            if j in self.numbers
            else CategoryColumn(name, self.texts[j].put_in_order(x[:, j]))
            for j, name in enumerate(self.roles.features)
        )
        return x, Encoding(columns)

    def notes(self) -> list[str]:
        """A word about columns that turned out to hold nothing."""
        empty = [self.roles.features[j] for j, span in self.numbers.items() if span.empty]
        return [f"The column {name!r} has no values at all, and tells a model nothing." for name in empty]

    def _write_less(self, offsets: dict[int, float], x: np.ndarray, drop_missing: bool) -> None:
        """Write some columns again, less their offsets."""
        roles = self.roles
        needed = Roles(roles.client, roles.label, tuple(roles.features[j] for j in offsets))
        start = 0
        for batch in kept_batches(self.source, needed, drop_missing):
            for j, offset in offsets.items():
                values = as_numbers(batch.data.column(roles.features[j])).astype(np.float64) - offset
                x[start : start + len(values), j] = np.where(np.isnan(values), MISSING, values)
            start += len(batch.data)


class _Whose:
    """The columns that say whose rows are, what keeps them together, and what orders them."""

    def __init__(self, source: Source, roles: Roles):
        self.source, self.order = source, roles.order
        self.named: dict[str, list[pa.Array]] = {c: [] for c in (roles.client, roles.group) if c is not None}
        self.ordered: list[pa.Array] = []

    def take(self, batch: KeptBatch) -> None:
        """Keep a batch's values."""
        for column, chunks in self.named.items():
            chunks.append(dictionary_of(batch.data.column(column)))
        if self.order is not None:
            self.ordered.append(_sortable(batch, self.order))

    def columns(self) -> dict[str, np.ndarray | pa.DictionaryArray]:
        """The columns of all rows."""
        known: dict[str, np.ndarray | pa.DictionaryArray] = {
            column: ordered_dictionary(chunks, self.source, column) for column, chunks in self.named.items()
        }
        if self.order is not None:
            known[self.order] = np.concatenate([chunk.to_numpy(zero_copy_only=False) for chunk in self.ordered])
        return known


def _sortable(batch: KeptBatch, column: str) -> pa.Array:
    """Times and numbers as numbers that sort alike."""
    values = batch.data.column(column)
    absent = missing_values(values)
    if absent is not None:
        row = batch.row(int(np.flatnonzero(absent)[0]))
        raise UsageError(
            f"{batch.source.place(row)} has no value in column {column!r}.", "Fill it in: rows are ordered by it."
        )
    kind = values.type
    if pa.types.is_timestamp(kind):
        # Units can differ between files.
        return values.cast(pa.timestamp("us", kind.tz), safe=False).cast(pa.int64())
    if pa.types.is_date(kind):
        return values.cast(pa.timestamp("us")).cast(pa.int64())
    if pa.types.is_temporal(kind):
        return values.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
    return values.cast(pa.float64())
