"""From record batches to the arrays that samples are made of, one block of rows at a time."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from headstart.data.blocks import in_blocks
from headstart.data.samples import Samples
from headstart.data.tables.encoding import MISSING, MISSING_CATEGORY, CategoryColumn, Encoding, NumberColumn
from headstart.data.tables.identifiers import MAX_CATEGORIES, misplaced_texts
from headstart.data.tables.labels import Kind, Labels, LabelSummary, label_chunk
from headstart.data.tables.reading import Source
from headstart.data.tables.roles import Roles, holding
from headstart.data.tables.spans import LARGEST, Span
from headstart.data.tables.values import absent, dictionary, numbers_of, ordered_dictionary, sortable
from headstart.errors import UsageError

__all__ = ["Matrix", "RawRows", "RowSink", "Taken", "read_rows", "stored_rows", "take_in"]

BLOCK_ROWS = 8192
"""Rows that are written at a time: columns of them, one after the other, while the block stays in the cache."""


class RowSink(Protocol):
    """Where stored rows go."""

    def block(self, rows: int) -> np.ndarray:
        """Room for the next rows."""

    def put(self, block: np.ndarray) -> None:
        """The room, filled."""

    def whole(self) -> np.ndarray:
        """All rows that were put, to read and to write."""


class Matrix:
    """Rows in memory; there is room for as many as were announced."""

    def __init__(self, rows: int, columns: int):
        # JAX uses NumPy's memory as it is where it begins at a multiple of 64 bytes, and copies it elsewhere.
        room = np.empty(rows * columns + 16, np.float32)
        first = -room.ctypes.data % 64 // 4
        self.values, self.filled = room[first : first + rows * columns].reshape(rows, columns), 0

    def block(self, rows: int) -> np.ndarray:
        """Room for the next rows."""
        return self.values[self.filled : self.filled + rows]

    def put(self, block: np.ndarray) -> None:
        """The room, filled."""
        self.filled += len(block)

    def whole(self) -> np.ndarray:
        """All rows that were put."""
        return self.values[: self.filled]


@dataclass
class _Categories:
    """The categories of a column so far, numbered as they came."""

    numbers: dict[str, int] = field(default_factory=dict)
    first_rows: dict[str, int] = field(default_factory=dict)


@dataclass
class _Batch:
    """A record batch without the rows that are left out, and where its rows are in the source."""

    data: pa.RecordBatch
    start: int
    kept: np.ndarray | None

    def row(self, i: int) -> int:
        return self.start + int(i if self.kept is None else self.kept[i])


@dataclass(frozen=True, eq=False)
class RawRows:
    """Rows as they were read, before it is settled how their columns are stored: texts are numbered as they came."""

    source: Source
    roles: Roles
    drop_missing: bool
    x: np.ndarray
    spans: dict[str, Span]
    """Of the columns of numbers."""
    categories: dict[str, _Categories]
    """Of the columns of texts."""
    labels: list[pa.Array]
    columns: dict[str, np.ndarray | pa.DictionaryArray]
    """Whose each row is, and what groups or orders rows."""

    def settle(self, columns: Sequence[NumberColumn | CategoryColumn]) -> np.ndarray:
        """The rows as these columns store them. What was read is overwritten, so that this can be done once."""
        offsets = {j: c.offset for j, c in enumerate(columns) if isinstance(c, NumberColumn) and c.offset}
        if offsets:
            self._write_less(offsets)
        for j, column in enumerate(columns):
            if isinstance(column, CategoryColumn):
                self._number_anew(j, self.categories[column.name], column.categories)
        return self.x

    def _write_less(self, offsets: dict[int, float]) -> None:
        """Write some columns again, less their offsets."""
        needed = Roles(self.roles.client, self.roles.label, tuple(self.roles.features[j] for j in offsets))
        start = 0
        for batch in kept_batches(self.source, needed, self.drop_missing):
            for j, offset in offsets.items():
                values = numbers_of(batch.data.column(self.roles.features[j])).astype(np.float64) - offset
                self.x[start : start + len(values), j] = np.where(np.isnan(values), MISSING, values)
            start += len(batch.data)

    def _number_anew(self, j: int, found: _Categories, names: Sequence[str]) -> None:
        """Number a column's categories by a list of them; those that it lacks are -1."""
        number = {name: i for i, name in enumerate(names)}
        place = np.empty(len(found.numbers), np.float32)
        place[list(found.numbers.values())] = [number.get(name, -1) for name in found.numbers]
        if not np.array_equal(place, np.arange(len(place))):
            for start in range(0, len(self.x), BLOCK_ROWS):
                block = self.x[start : start + BLOCK_ROWS, j]
                block[:] = place[block.astype(np.int64)]


@dataclass(frozen=True, eq=False)
class Taken:
    """A table's rows as arrays: what they hold, whose they are, and what is known of the columns before any fit."""

    x: np.ndarray
    labels: Labels
    columns: dict[str, np.ndarray | pa.DictionaryArray]
    encoding: Encoding

    def samples(self, name: str) -> Samples:
        """The rows as samples, whose transform is not fitted yet."""
        labels = self.labels
        return Samples(name, self.x, labels.y, labels.classes, columns=self.columns, target=labels.target)


def take_in(source: Source, roles: Roles, sink: RowSink, kind: Kind, drop_missing: bool) -> Taken:
    """Read a source once (and columns of a narrow range twice) into a sink; texts become numbers of categories."""
    numeric = [name for name in roles.features if holding(source.schema.field(name).type) == "numbers"]
    raw = read_rows(source, roles, sink, numeric, drop_missing)
    if not len(raw.x):
        raise UsageError(f"{source.name} has no rows.", "Give a table with samples.")
    columns: list[NumberColumn | CategoryColumn] = []
    for name in roles.features:
        if name in raw.spans:
            extent = raw.spans[name].extent()
            if extent.empty:
                raise UsageError(
                    f"{source.name}: column {name!r} has no values at all.", "Leave it out with features = [...]."
                )
            columns.append(NumberColumn(name, offset=extent.offset))
        else:
            _check_not_numbers(name, raw.categories[name], source)
            # In alphabetical order, so that numbers do not depend on the order of the rows.
            columns.append(CategoryColumn(name, tuple(sorted(raw.categories[name].numbers))))
    target = LabelSummary.of(raw.labels, source, roles.label).target(kind, source.name, roles.label)
    return Taken(raw.settle(columns), target.labels(raw.labels), raw.columns, Encoding(tuple(columns)))


def read_rows(source: Source, roles: Roles, sink: RowSink, numeric: Collection[str], drop_missing: bool) -> RawRows:
    """Read a source once into a sink, and note what its columns hold; ``numeric`` are the features that are numbers."""
    numbers = {j: Span() for j, name in enumerate(roles.features) if name in numeric}
    texts = {j: _Categories() for j, _ in enumerate(roles.features) if j not in numbers}
    coded: dict[str, list[pa.Array]] = {c: [] for c in (roles.client, roles.group) if c is not None}
    ordered: list[pa.Array] = []
    labels: list[pa.Array] = []
    for batch in kept_batches(source, roles, drop_missing):
        data = batch.data
        for column, chunks in coded.items():
            chunks.append(dictionary(data.column(column)))
        if roles.order is not None:
            _check_order(data.column(roles.order), batch, source, roles.order)
            ordered.append(sortable(data.column(roles.order)))
        labels.append(label_chunk(data.column(roles.label)))
        values = {j: numbers_of(data.column(roles.features[j])) for j in numbers}
        codes = {
            j: _category_codes(data.column(roles.features[j]), roles.features[j], known, batch, source)
            for j, known in texts.items()
        }
        room = sink.block(len(data))

        def write(
            part: slice,
            batch: _Batch = batch,
            room: np.ndarray = room,
            values: dict[int, np.ndarray] = values,
            codes: dict[int, np.ndarray] = codes,
        ) -> dict[int, Span]:
            for j, numbers_of_texts in codes.items():
                room[part, j] = numbers_of_texts[part]

            def place(j: int, i: int) -> str:
                return _place(source, batch, part.start + i, roles.features[j])

            return {j: _write_numbers(room[part], j, of[part], partial(place, j)) for j, of in values.items()}

        for spans in in_blocks(write, len(data), BLOCK_ROWS):
            for j, span in spans.items():
                numbers[j] = numbers[j].joined(span)
        sink.put(room)
    known: dict[str, np.ndarray | pa.DictionaryArray] = {
        column: ordered_dictionary(chunks, source, column) for column, chunks in coded.items() if chunks
    }
    if ordered and roles.order is not None:
        known[roles.order] = np.concatenate([chunk.to_numpy(zero_copy_only=False) for chunk in ordered])
    by_name = {roles.features[j]: span for j, span in numbers.items()}
    categories = {roles.features[j]: found for j, found in texts.items()}
    return RawRows(source, roles, drop_missing, sink.whole(), by_name, categories, labels, known)


def stored_rows(encoding: Encoding, source: Source) -> np.ndarray:
    """Rows of a further table as an encoding stores them, for a client that comes later."""
    missing = [column.name for column in encoding.columns if column.name not in source.schema.names]
    if missing:
        raise UsageError(f"{source.name} has no column {missing[0]!r}.", "Give the columns that training had.")
    blocks = []
    start = 0
    for data in source.batches([column.name for column in encoding.columns]):
        batch = _Batch(data, start, None)
        block = np.empty((len(data), len(encoding.columns)), np.float32)
        for j, column in encoding.numbers:
            if holding(data.column(column.name).type) not in ("numbers", "nothing"):
                raise UsageError(f"{source.name}: column {column.name!r} holds no numbers.", "It did in training.")
            values = numbers_of(data.column(column.name))
            if column.offset:
                values = values.astype(np.float64) - column.offset
            _write_numbers(block, j, values, lambda i, c=column, b=batch: _place(source, b, i, c.name))  # type: ignore[misc]
        for j, category in encoding.categories:
            number = {value: i for i, value in enumerate(category.categories)}
            block[:, j] = _mapped(data.column(category.name), lambda value, n=number: n.get(value, -1))  # type: ignore[misc]
        blocks.append(block)
        start += len(data)
    return np.concatenate([np.empty((0, len(encoding.columns)), np.float32), *blocks])


def kept_batches(source: Source, roles: Roles, drop_missing: bool) -> Iterator[_Batch]:
    """The batches, without rows of no client or no label; such rows are an error unless they are to be dropped."""
    start = 0
    for data in source.batches(roles.all):
        kept = None
        for column in (roles.client, roles.label):
            values = data.column(column)
            lacking = absent(values)
            if lacking is None:
                continue
            if not drop_missing:
                first = int(np.flatnonzero(lacking)[0])
                raise UsageError(
                    f"{source.place(start + first)} has no {'client' if column == roles.client else 'label'} "
                    f"(column {column!r}).",
                    "Fill it in, or drop such rows with drop_missing = true.",
                )
            kept = ~lacking if kept is None else kept & ~lacking
        if kept is None:
            yield _Batch(data, start, None)
        else:
            yield _Batch(data.filter(pa.array(kept)), start, np.flatnonzero(kept))
        start += len(data)


def _write_numbers(block: np.ndarray, j: int, values: np.ndarray, place: Callable[[int], str]) -> Span:
    """Write numbers into a column, checking that they are finite; NaN is a missing one."""
    if not len(values):
        return Span()
    low, high = values.min(), values.max()
    if low >= -LARGEST and high <= LARGEST:
        block[:, j] = values
    else:
        missing = np.isnan(values)
        bad = np.flatnonzero(~missing & ~(np.abs(values) <= LARGEST))
        if bad.size:
            raise UsageError(
                f"{place(int(bad[0]))}: {values[bad[0]]} is not a number that a model can take.",
                "Drop the row, or write a finite number or nothing.",
            )
        block[:, j] = np.where(missing, MISSING, values)
        low = values.min(initial=np.inf, where=~missing)
        high = values.max(initial=-np.inf, where=~missing)
    return Span(float(low), float(high))


def _place(source: Source, batch: _Batch, i: int, column: str) -> str:
    return f"{source.place(batch.row(i))}, column {column!r}"


def _check_order(values: pa.Array, batch: _Batch, source: Source, column: str) -> None:
    lacking = absent(values)
    if lacking is not None:
        raise UsageError(
            f"{source.place(batch.row(int(np.flatnonzero(lacking)[0])))} has no value in column {column!r}.",
            "Fill it in: rows are ordered by it.",
        )


def _category_codes(values: pa.Array, column: str, known: _Categories, batch: _Batch, source: Source) -> np.ndarray:
    """Each row's number among the categories so far, of which there may not be too many."""

    def number(value: str) -> int:
        if value not in known.numbers and len(known.numbers) >= MAX_CATEGORIES:
            raise UsageError(
                f"{source.name}: column {column!r} has more than {MAX_CATEGORIES} different texts "
                f"(from {min(known.numbers)!r} to {max(known.numbers)!r}).",
                "Each would be a feature. Leave the column out with features = [...] (an id tells a model nothing), "
                "or merge rare values.",
            )
        return known.numbers.setdefault(value, len(known.numbers))

    codes = _mapped(values, number)
    for value, code in known.numbers.items():
        if value not in known.first_rows:
            known.first_rows[value] = batch.row(int(np.flatnonzero(codes == code)[0]))
    return codes


def _mapped(values: pa.Array, number: Any) -> np.ndarray:
    """A number for every text, the texts looked up once a batch."""
    encoded = dictionary(values)
    codes = np.asarray(encoded.indices.fill_null(len(encoded.dictionary)))
    used = np.flatnonzero(np.bincount(codes, minlength=len(encoded.dictionary) + 1))
    texts = [None if i == len(encoded.dictionary) else encoded.dictionary[i].as_py() for i in used.tolist()]
    table = np.zeros(len(encoded.dictionary) + 1, np.float32)
    table[used] = [number(MISSING_CATEGORY if text is None else str(text)) for text in texts]
    return table[codes]


def _check_not_numbers(column: str, known: _Categories, source: Source) -> None:
    """Refuse a column of numbers that a few texts have crept into."""
    others = misplaced_texts(value for value in known.numbers if value != MISSING_CATEGORY)
    if others:
        row = min(known.first_rows[value] for value in others)
        text = next(value for value in others if known.first_rows[value] == row)
        raise UsageError(
            f"{source.place(row)}, column {column!r}: {text!r} among numbers.",
            "Write a number or nothing there; for a category, write all values as words.",
        )
