"""From record batches to the arrays that samples are made of, one block of rows at a time."""

from collections.abc import Collection, Sequence
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
from headstart.data.tables.labels import Kind, Labels, LabelSummary, label_chunk
from headstart.data.tables.numbers import as_numbers, missing_values, sortable, write_numbers
from headstart.data.tables.reading import Source
from headstart.data.tables.roles import Roles, holding
from headstart.data.tables.sinks import BLOCK_ROWS, RowSink
from headstart.data.tables.spans import Span
from headstart.errors import UsageError

__all__ = ["RawRows", "Taken", "read_rows", "take_in"]


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
    held = {name: holding(source.schema.field(name).type) for name in roles.features}
    raw = read_rows(source, roles, sink, [name for name in held if held[name] in ("numbers", "nothing")], drop_missing)
    if not len(raw.x):
        which = " that have a client and a label" if raw.left_out else ""
        raise UsageError(f"{source.name} has no rows{which}.", "Give a table with samples.")
    columns = tuple(
        NumberColumn(name, offset=raw.spans[name].extent().offset)
        if name in raw.spans
        else CategoryColumn(name, raw.categories[name].in_order())
        for name in roles.features
    )
    target = LabelSummary.of(raw.labels, source, roles.label).target(kind, source.name, roles.label)
    labels = target.labels(raw.labels)
    empty = [name for name, span in raw.spans.items() if span.empty]
    notes = (
        labels.note,
        *_said_of_left_out(raw),
        *(f"The column {name!r} has no values at all, and tells a model nothing." for name in empty),
    )
    return Taken(raw.settle(columns), labels, raw.columns, Encoding(columns), notes)


def _said_of_left_out(raw: "RawRows") -> tuple[str, ...]:
    if not raw.left_out:
        return ()
    rows, are = ("1 row", "is") if raw.left_out == 1 else (f"{raw.left_out:,} rows", "are")
    total, lacking = raw.left_out + len(raw.x), f"{raw.roles.client!r} or {raw.roles.label!r}"
    return (f"{rows} of {total:,} without {lacking} {are} left out.",)


@dataclass(frozen=True, eq=False)
class RawRows:
    """Rows as they were read, before it is settled how their columns are stored: texts are numbered as they came."""

    source: Source
    roles: Roles
    drop_missing: bool
    x: np.ndarray
    spans: dict[str, Span]
    """Of the columns of numbers."""
    categories: dict[str, Categories]
    """Of the columns of texts."""
    labels: list[pa.Array]
    columns: dict[str, np.ndarray | pa.DictionaryArray]
    """Whose each row is, and what groups or orders rows."""
    left_out: int = 0
    """How many rows had no client or no label."""

    def settle(self, columns: Sequence[NumberColumn | CategoryColumn]) -> np.ndarray:
        """The rows as these columns store them. What was read is overwritten, so that this can be done once."""
        offsets = {j: c.offset for j, c in enumerate(columns) if isinstance(c, NumberColumn) and c.offset}
        if offsets:
            self._write_less(offsets)
        for j, column in enumerate(columns):
            if isinstance(column, CategoryColumn):
                self.categories[column.name].number_anew(self.x[:, j], column.categories)
        return self.x

    def _write_less(self, offsets: dict[int, float]) -> None:
        """Write some columns again, less their offsets."""
        needed = Roles(self.roles.client, self.roles.label, tuple(self.roles.features[j] for j in offsets))
        start = 0
        for batch in kept_batches(self.source, needed, self.drop_missing):
            for j, offset in offsets.items():
                values = as_numbers(batch.data.column(self.roles.features[j])).astype(np.float64) - offset
                self.x[start : start + len(values), j] = np.where(np.isnan(values), MISSING, values)
            start += len(batch.data)


def read_rows(source: Source, roles: Roles, sink: RowSink, numeric: Collection[str], drop_missing: bool) -> RawRows:
    """Read a source once into a sink, and note what its columns hold; ``numeric`` are the features that are numbers."""
    features, whose = _Features(source, roles, sink, numeric), _Whose(source, roles)
    labels: list[pa.Array] = []
    left_out = 0
    for batch in kept_batches(source, roles, drop_missing):
        left_out += batch.left_out
        whose.take(batch)
        labels.append(label_chunk(batch.data.column(roles.label)))
        features.take(batch)
    by_name = {roles.features[j]: span for j, span in features.numbers.items()}
    categories = {known.column: known for known in features.texts.values()}
    return RawRows(
        source, roles, drop_missing, sink.whole(), by_name, categories, labels, whose.columns(), left_out
    )  # fmt: skip


class _Features:
    """The columns to predict from, as they are read and stored."""

    def __init__(self, source: Source, roles: Roles, sink: RowSink, numeric: Collection[str]):
        self.names, self.sink = roles.features, sink
        self.numbers = {j: Span() for j, name in enumerate(roles.features) if name in numeric}
        self.texts = {j: Categories(name, source) for j, name in enumerate(roles.features) if j not in self.numbers}

    def take(self, batch: KeptBatch) -> None:
        """Write a batch's rows."""
        columns = [batch.data.column(name) for name in self.names]
        values = {j: as_numbers(columns[j]) for j in self.numbers}
        codes = {j: known.codes(columns[j], batch) for j, known in self.texts.items()}
        room = self.sink.block(len(batch.data))

        def write(part: slice) -> dict[int, Span]:
            for j, of in codes.items():
                room[part, j] = of[part]

            def place(j: int, i: int) -> str:
                return batch.place(part.start + i, self.names[j])

            return {j: write_numbers(room[part], j, of[part], partial(place, j)) for j, of in values.items()}

        for spans in in_blocks(write, len(batch.data), BLOCK_ROWS):
            for j, span in spans.items():
                self.numbers[j] = self.numbers[j].joined(span)
        self.sink.put(room)


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
            self.ordered.append(_ordering(batch, self.order))

    def columns(self) -> dict[str, np.ndarray | pa.DictionaryArray]:
        """The columns of all rows."""
        known: dict[str, np.ndarray | pa.DictionaryArray] = {
            column: ordered_dictionary(chunks, self.source, column) for column, chunks in self.named.items() if chunks
        }
        if self.order is not None and self.ordered:
            known[self.order] = np.concatenate([chunk.to_numpy(zero_copy_only=False) for chunk in self.ordered])
        return known


def _ordering(batch: KeptBatch, column: str) -> pa.Array:
    """A column that orders rows, all of which must have a value there."""
    values = batch.data.column(column)
    absent = missing_values(values)
    if absent is not None:
        row = batch.row(int(np.flatnonzero(absent)[0]))
        raise UsageError(
            f"{batch.source.place(row)} has no value in column {column!r}.", "Fill it in: rows are ordered by it."
        )
    return sortable(values)
