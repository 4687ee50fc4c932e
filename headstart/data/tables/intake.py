"""From record batches to the arrays that samples are made of, one block of rows at a time."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headstart.data.blocks import in_blocks
from headstart.data.samples import Samples, TargetScale
from headstart.data.tables.encoding import MISSING, MISSING_CATEGORY, CategoryColumn, Encoding, NumberColumn
from headstart.data.tables.identifiers import MAX_CATEGORIES, is_number
from headstart.data.tables.reading import Source
from headstart.data.tables.roles import Roles, holding
from headstart.errors import UsageError

__all__ = [
    "Kind",
    "Labels",
    "Matrix",
    "RowSink",
    "Taken",
    "coded_labels",
    "coded_values",
    "stored_rows",
    "take_in",
]

Kind = Literal["auto", "classification", "regression"]

MAX_CLASSES = 100
"""Labels that are whole numbers can be classes when there are no more of them than this."""

FEW_CLASSES = 20
"""Whole numbers are taken for classes, where nobody says what they are, when there are no more of them than this."""

BLOCK_ROWS = 8192
"""Rows that are written at a time: columns of them, one after the other, while the block stays in the cache."""

NARROW = 2.0**-12
"""A column whose range is a smaller part of its magnitude than this is stored less an offset."""


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


@dataclass(frozen=True, eq=False)
class Taken:
    """A table's rows as arrays: what they hold, whose they are, and what is known of the columns before any fit."""

    x: np.ndarray
    labels: "Labels"
    columns: dict[str, np.ndarray | pa.DictionaryArray]
    encoding: Encoding

    def samples(self, name: str) -> Samples:
        """The rows as samples, whose transform is not fitted yet."""
        labels = self.labels
        return Samples(name, self.x, labels.y, labels.classes, columns=self.columns, target=labels.target)


@dataclass(frozen=True, eq=False)
class Labels:
    """Class numbers and what they stand for, or the targets of a regression; and a line that says which."""

    y: np.ndarray
    classes: tuple[str, ...] | None
    note: str
    target: TargetScale = field(default_factory=TargetScale)


@dataclass(frozen=True)
class _Span:
    """The least and greatest value of a column so far."""

    low: float = np.inf
    high: float = -np.inf

    def joined(self, other: "_Span") -> "_Span":
        return _Span(min(self.low, other.low), max(self.high, other.high))

    def offset(self) -> float:
        """What to store the column less of, so that single precision tells its values apart."""
        narrow = self.high - self.low < NARROW * max(abs(self.low), abs(self.high))
        return (self.low + self.high) / 2 if narrow else 0.0


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


def take_in(source: Source, roles: Roles, sink: RowSink, kind: Kind, drop_missing: bool) -> Taken:
    """Read a source once (and columns of a narrow range twice) into a sink; texts become numbers of categories."""
    schema = source.schema
    numbers = {j: _Span() for j, c in enumerate(roles.features) if holding(schema.field(c).type) == "numbers"}
    texts = {j: _Categories() for j, c in enumerate(roles.features) if j not in numbers}
    coded: dict[str, list[pa.Array]] = {c: [] for c in (roles.client, roles.group) if c is not None}
    ordered: list[pa.Array] = []
    labels: list[pa.Array] = []
    taken = 0
    for batch in _batches(source, roles, drop_missing):
        data = batch.data
        taken += len(data)
        for column, chunks in coded.items():
            chunks.append(_dictionary(data.column(column)))
        if roles.order is not None:
            ordered.append(_sortable(data.column(roles.order), batch, source, roles.order))
        labels.append(_label(data.column(roles.label)))
        values = {j: _numbers(data.column(roles.features[j])) for j in numbers}
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
        ) -> dict[int, _Span]:
            for j, numbers_of in codes.items():
                room[part, j] = numbers_of[part]

            def place(j: int, i: int) -> str:
                return _place(source, batch, part.start + i, roles.features[j])

            return {j: _write_numbers(room[part], j, of[part], partial(place, j)) for j, of in values.items()}

        for spans in in_blocks(write, len(data), BLOCK_ROWS):
            for j, span in spans.items():
                numbers[j] = numbers[j].joined(span)
        sink.put(room)
    if not taken:
        raise UsageError(f"{source.name} has no rows.", "Give a table with samples.")
    x = sink.whole()
    offsets = {j: offset for j, span in numbers.items() if (offset := span.offset())}
    if offsets:
        _write_less(source, roles, drop_missing, x, offsets)
    columns: list[NumberColumn | CategoryColumn] = []
    for j, column in enumerate(roles.features):
        if j in numbers:
            if numbers[j].low > numbers[j].high:
                raise UsageError(
                    f"{source.name}: column {column!r} has no values at all.", "Leave it out with features = [...]."
                )
            columns.append(NumberColumn(column, offset=offsets.get(j, 0.0)))
        else:
            columns.append(CategoryColumn(column, _in_order(x, j, column, texts[j], source)))
    known = {column: _ordered_dictionary(chunks, source, column) for column, chunks in coded.items()}
    if roles.order is not None:
        known[roles.order] = np.concatenate([chunk.to_numpy(zero_copy_only=False) for chunk in ordered])
    return Taken(x, _targets(labels, kind, source, roles.label), known, Encoding(tuple(columns)))


def coded_labels(values: Any, kind: Kind, source: Source, column: str) -> Labels:
    """Labels given as an array."""
    return _targets([_label(_array(values, source, column))], kind, source, column)


def coded_values(values: Any, source: Source, column: str) -> pa.DictionaryArray:
    """Values given as an array, as numbers into the distinct ones in order."""
    return _ordered_dictionary([_dictionary(_array(values, source, column))], source, column)


def _array(values: Any, source: Source, column: str) -> pa.Array:
    try:
        return pa.array(values, from_pandas=True)
    except (pa.ArrowException, TypeError) as error:
        raise UsageError(
            f"{source.name}: {column} is no column: {' '.join(str(error).split())}",
            "Give one value a row, of one type.",
        ) from error


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
            values = _numbers(data.column(column.name)) - column.offset
            _write_numbers(block, j, values, lambda i, c=column, b=batch: _place(source, b, i, c.name))  # type: ignore[misc]
        for j, category in encoding.categories:
            number = {value: i for i, value in enumerate(category.categories)}
            block[:, j] = _mapped(data.column(category.name), lambda value, n=number: n.get(value, -1))  # type: ignore[misc]
        blocks.append(block)
        start += len(data)
    return np.concatenate([np.empty((0, len(encoding.columns)), np.float32), *blocks])


def _batches(source: Source, roles: Roles, drop_missing: bool) -> Iterator[_Batch]:
    """The batches, without rows of no client or no label; such rows are an error unless they are to be dropped."""
    start = 0
    for data in source.batches(roles.all):
        kept = None
        for column in (roles.client, roles.label):
            values = data.column(column)
            absent = _absent(values)
            if absent is None:
                continue
            if not drop_missing:
                first = int(np.flatnonzero(absent)[0])
                raise UsageError(
                    f"{source.place(start + first)} has no {'client' if column == roles.client else 'label'} "
                    f"(column {column!r}).",
                    "Fill it in, or drop such rows with drop_missing = true.",
                )
            kept = ~absent if kept is None else kept & ~absent
        if kept is None:
            yield _Batch(data, start, None)
        else:
            yield _Batch(data.filter(pa.array(kept)), start, np.flatnonzero(kept))
        start += len(data)


def _absent(values: pa.Array) -> np.ndarray | None:
    """Which values are missing, or ``None`` where all are there."""
    if pa.types.is_floating(values.type):
        numbers = _numbers(values)
        # A sum is a NaN where a value is one.
        return np.isnan(numbers) if np.isnan(numbers.sum()) else None
    if pa.types.is_null(values.type):
        return np.ones(len(values), bool)
    return np.asarray(values.is_null()) if values.null_count else None


def _numbers(values: pa.Array) -> np.ndarray:
    """Numbers as NumPy has them, missing ones as NaN."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_decimal(values.type) or pa.types.is_null(values.type):
        values = values.cast(pa.float64())
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.uint8())
    return values.to_numpy(zero_copy_only=False)


def _write_numbers(block: np.ndarray, j: int, values: np.ndarray, place: Callable[[int], str]) -> _Span:
    """Write numbers into a column, checking that they are finite; NaN is a missing one."""
    if not len(values):
        return _Span()
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
    return _Span(float(low), float(high))


LARGEST = 2.0**96
"""The largest magnitude of a number; above it are the infinities and, at a distance, what stands for a missing one."""


def _place(source: Source, batch: _Batch, i: int, column: str) -> str:
    return f"{source.place(batch.row(i))}, column {column!r}"


def _write_less(source: Source, roles: Roles, drop_missing: bool, x: np.ndarray, offsets: dict[int, float]) -> None:
    """Write some columns again, less their offsets."""
    needed = Roles(roles.client, roles.label, tuple(roles.features[j] for j in offsets))
    start = 0
    for batch in _batches(source, needed, drop_missing):
        for j, offset in offsets.items():
            values = _numbers(batch.data.column(roles.features[j])).astype(np.float64) - offset
            x[start : start + len(values), j] = np.where(np.isnan(values), MISSING, values)
        start += len(batch.data)


def _dictionary(values: pa.Array) -> pa.DictionaryArray:
    """Values as numbers into a list of distinct ones; whole floats (whole numbers once, with gaps) as whole numbers."""
    if pa.types.is_floating(values.type):
        whole = pc.cast(values, pa.int64(), safe=False)
        if pc.all(pc.equal(whole, values)).as_py() is not False:
            values = whole
    if pa.types.is_null(values.type):
        values = values.cast(pa.string())
    encoded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
    text = pa.types.is_large_string(encoded.type.value_type) or pa.types.is_string_view(encoded.type.value_type)
    wanted = pa.dictionary(pa.int32(), pa.string() if text else encoded.type.value_type)
    return encoded if encoded.type == wanted else encoded.cast(wanted)


def _ordered_dictionary(chunks: list[pa.Array], source: Source, column: str) -> pa.DictionaryArray:
    """All chunks as one dictionary array of 32-bit numbers into the distinct values in order."""
    if len({chunk.type for chunk in chunks}) > 1:
        chunks = [_as_texts(chunk) for chunk in chunks]
    joined = pa.chunked_array(chunks).unify_dictionaries()
    dictionary = max((chunk.dictionary for chunk in joined.chunks), key=len)
    if joined.null_count:
        first = int(np.flatnonzero(joined.is_null())[0])
        raise UsageError(
            f"{source.place(first)} has no value in column {column!r}.", "Fill it in: rows are kept together by it."
        )
    there = np.zeros(len(dictionary), bool)
    for chunk in joined.chunks:
        there[chunk.indices.to_numpy()] = True
    used = np.flatnonzero(there)
    values = dictionary.take(pa.array(used))
    try:
        order = pc.sort_indices(values).to_numpy()
    except pa.ArrowException:
        values = _texts(values)
        order = pc.sort_indices(values).to_numpy()
    place = np.full(len(dictionary), -1, np.int32)
    place[used[order]] = np.arange(len(order), dtype=np.int32)
    codes, start = np.empty(len(joined), np.int32), 0
    for chunk in joined.chunks:
        np.take(place, chunk.indices.to_numpy(), out=codes[start : start + len(chunk)], mode="clip")
        start += len(chunk)
    return pa.DictionaryArray.from_arrays(pa.array(codes), values.take(pa.array(order)))


def _texts(values: pa.Array) -> pa.Array:
    return pa.array([str(value) for value in values.to_pylist()])


def _as_texts(chunk: pa.DictionaryArray) -> pa.DictionaryArray:
    """Numbers in one file and texts in another are all texts."""
    return pa.DictionaryArray.from_arrays(chunk.indices, _texts(chunk.dictionary))


def _sortable(values: pa.Array, batch: _Batch, source: Source, column: str) -> pa.Array:
    """Times and numbers as numbers that sort alike."""
    absent = _absent(values)
    if absent is not None:
        raise UsageError(
            f"{source.place(batch.row(int(np.flatnonzero(absent)[0])))} has no value in column {column!r}.",
            "Fill it in: rows are ordered by it.",
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
    encoded = _dictionary(values)
    codes = np.asarray(encoded.indices.fill_null(len(encoded.dictionary)))
    used = np.flatnonzero(np.bincount(codes, minlength=len(encoded.dictionary) + 1))
    texts = [None if i == len(encoded.dictionary) else encoded.dictionary[i].as_py() for i in used.tolist()]
    table = np.zeros(len(encoded.dictionary) + 1, np.float32)
    table[used] = [number(MISSING_CATEGORY if text is None else str(text)) for text in texts]
    return table[codes]


def _in_order(x: np.ndarray, j: int, column: str, known: _Categories, source: Source) -> tuple[str, ...]:
    """Number the categories in alphabetical order, so that numbers do not depend on the order of the rows."""
    _check_not_numbers(column, known, source)
    names = sorted(known.numbers)
    place = np.empty(len(names), np.float32)
    place[[known.numbers[name] for name in names]] = np.arange(len(names))
    if not np.array_equal(place, np.arange(len(names))):
        for start in range(0, len(x), BLOCK_ROWS):
            block = x[start : start + BLOCK_ROWS, j]
            block[:] = place[block.astype(np.int64)]
    return tuple(names)


def _check_not_numbers(column: str, known: _Categories, source: Source) -> None:
    """Refuse a column of numbers that a few texts have crept into."""
    others = [value for value in known.numbers if value != MISSING_CATEGORY and not is_number(value)]
    numbers = len([value for value in known.numbers if value != MISSING_CATEGORY]) - len(others)
    if others and numbers > len(others):
        row = min(known.first_rows[value] for value in others)
        text = next(value for value in others if known.first_rows[value] == row)
        raise UsageError(
            f"{source.place(row)}, column {column!r}: {text!r} among numbers.",
            "Write a number or nothing there; for a category, write all values as words.",
        )


def _label(values: pa.Array) -> pa.Array:
    """Labels: numbers as they are, all else as dictionaries."""
    if holding(values.type) == "numbers" and not pa.types.is_boolean(values.type):
        return pa.array(_numbers(values))
    return _dictionary(values)


def _targets(chunks: list[pa.Array], kind: Kind, source: Source, column: str) -> Labels:
    """Texts, booleans and few whole numbers are classes; other numbers are targets of a regression, unless said."""
    if not any(pa.types.is_dictionary(chunk.type) for chunk in chunks):
        return _number_labels(np.concatenate([c.to_numpy(zero_copy_only=False) for c in chunks]), kind, source, column)
    if kind == "regression":
        raise UsageError(
            f"{source.name}: the label {column!r} holds no numbers to predict.",
            "Say kind = 'classification', or choose a column of numbers.",
        )
    encoded = _ordered_dictionary([_dictionary(chunk) for chunk in chunks], source, column)
    names = tuple(str(value) for value in encoded.dictionary.to_pylist())
    _check_several(names, source, column)
    return Labels(encoded.indices.to_numpy(), names, f"The label {column!r} is one of {len(names)} classes.")


def _number_labels(numbers: np.ndarray, kind: Kind, source: Source, column: str) -> Labels:
    bad = np.flatnonzero(~(np.abs(numbers) <= LARGEST))
    if bad.size:
        raise UsageError(
            f"{source.place(int(bad[0]))}, column {column!r}: the label {numbers[bad[0]]} is not finite.",
            "Drop the row, or write a finite number.",
        )
    whole = _few_whole(numbers)
    if kind == "classification" and whole is None:
        raise UsageError(
            f"{source.name}: the label {column!r} has more than {MAX_CLASSES} different values or fractions.",
            "These are no classes: say kind = 'regression', or write classes as texts.",
        )
    if whole is not None and (kind == "classification" or (kind == "auto" and len(whole) <= FEW_CLASSES)):
        names = tuple(str(int(value)) for value in whole)
        _check_several(names, source, column)
        note = f"The whole numbers of the label {column!r} are {len(names)} classes; {_otherwise('regression')}."
        return Labels(np.searchsorted(whole, numbers).astype(np.int32), names, note)
    span = _Span(float(numbers.min()), float(numbers.max()))
    if span.low == span.high:
        raise UsageError(
            f"{source.name}: all labels (column {column!r}) are {span.low:g}.", "Give samples of different labels."
        )
    note = f"The label {column!r} is a number to predict (a regression)"
    note += "." if whole is None else f"; {_otherwise('classification')}."
    offset = span.offset()
    return Labels((numbers - offset).astype(np.float32), None, note, TargetScale(offset=offset))


def _otherwise(kind: Kind) -> str:
    what = "a class" if kind == "classification" else "a number"
    return f"to predict {what}, say kind = '{kind}' (--kind {kind})"


def _check_several(names: tuple[str, ...], source: Source, column: str) -> None:
    if len(names) < 2:
        raise UsageError(
            f"{source.name}: all labels (column {column!r}) are {names[0]!r}.", "Give samples of two classes or more."
        )


def _few_whole(numbers: np.ndarray) -> np.ndarray | None:
    """The distinct values, where they are few enough for classes and whole."""
    distinct = np.zeros(0, numbers.dtype)
    step = 2**16
    for start in range(0, len(numbers), step):
        distinct = np.union1d(distinct, numbers[start : start + step])
        if len(distinct) > MAX_CLASSES or not np.array_equal(distinct, np.round(distinct)):
            return None
    return distinct
