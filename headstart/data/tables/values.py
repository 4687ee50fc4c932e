"""Columns of record batches as arrays: numbers, and numbers into lists of distinct values."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headstart.data.tables.reading import Source
from headstart.errors import UsageError

__all__ = [
    "absent",
    "array_of",
    "check_there",
    "coded_values",
    "dictionary",
    "numbers_of",
    "ordered_dictionary",
    "sortable",
    "texts_of",
]


def array_of(values: Any, source: Source, column: str) -> pa.Array:
    """Values of one type, as given by a caller."""
    try:
        return pa.array(values, from_pandas=True)
    except (pa.ArrowException, TypeError) as error:
        raise UsageError(
            f"{source.name}: {column} is no column: {' '.join(str(error).split())}",
            "Give one value a row, of one type.",
        ) from error


def coded_values(values: Any, source: Source, column: str) -> pa.DictionaryArray:
    """Values given as an array, as numbers into the distinct ones in order."""
    return ordered_dictionary([dictionary(array_of(values, source, column))], source, column)


def absent(values: pa.Array) -> np.ndarray | None:
    """Which values are missing, or ``None`` where all are there."""
    if pa.types.is_floating(values.type):
        numbers = numbers_of(values)
        # A sum is a NaN where a value is one.
        return np.isnan(numbers) if np.isnan(numbers.sum()) else None
    if pa.types.is_null(values.type):
        return np.ones(len(values), bool)
    return np.asarray(values.is_null()) if values.null_count else None


def numbers_of(values: pa.Array) -> np.ndarray:
    """Numbers as NumPy has them, missing ones as NaN."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_decimal(values.type) or pa.types.is_null(values.type):
        values = values.cast(pa.float64())
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.uint8())
    return values.to_numpy(zero_copy_only=False)


def dictionary(values: pa.Array) -> pa.DictionaryArray:
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


def ordered_dictionary(chunks: list[pa.Array], source: Source, column: str) -> pa.DictionaryArray:
    """All chunks as one dictionary array of 32-bit numbers into the distinct values in order."""
    if len({chunk.type for chunk in chunks}) > 1:
        chunks = [_as_texts(chunk) for chunk in chunks]
    joined = pa.chunked_array(chunks).unify_dictionaries()
    distinct = max((chunk.dictionary for chunk in joined.chunks), key=len)
    check_there(chunks, source, column)
    there = np.zeros(len(distinct), bool)
    for chunk in joined.chunks:
        there[chunk.indices.to_numpy()] = True
    used = np.flatnonzero(there)
    values = distinct.take(pa.array(used))
    try:
        order = pc.sort_indices(values).to_numpy()
    except pa.ArrowException:
        values = texts_of(values)
        order = pc.sort_indices(values).to_numpy()
    place = np.full(len(distinct), -1, np.int32)
    place[used[order]] = np.arange(len(order), dtype=np.int32)
    codes, start = np.empty(len(joined), np.int32), 0
    for chunk in joined.chunks:
        np.take(place, chunk.indices.to_numpy(), out=codes[start : start + len(chunk)], mode="clip")
        start += len(chunk)
    return pa.DictionaryArray.from_arrays(pa.array(codes), values.take(pa.array(order)))


def check_there(chunks: Sequence[pa.Array], source: Source, column: str) -> None:
    """Refuse missing values in a column that rows are kept together by."""
    start = 0
    for chunk in chunks:
        if chunk.null_count:
            first = start + int(np.flatnonzero(chunk.is_null())[0])
            raise UsageError(
                f"{source.place(first)} has no value in column {column!r}.", "Fill it in: rows are kept together by it."
            )
        start += len(chunk)


def texts_of(values: pa.Array) -> pa.Array:
    """Values as they are written."""
    return pa.array([str(value) for value in values.to_pylist()], pa.string())


def _as_texts(chunk: pa.DictionaryArray) -> pa.DictionaryArray:
    """Numbers in one file and texts in another are all texts."""
    return pa.DictionaryArray.from_arrays(chunk.indices, texts_of(chunk.dictionary))


def sortable(values: pa.Array) -> pa.Array:
    """Times and numbers as numbers that sort alike."""
    kind = values.type
    if pa.types.is_timestamp(kind):
        # Units can differ between files.
        return values.cast(pa.timestamp("us", kind.tz), safe=False).cast(pa.int64())
    if pa.types.is_date(kind):
        return values.cast(pa.timestamp("us")).cast(pa.int64())
    if pa.types.is_temporal(kind):
        return values.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
    return values.cast(pa.float64())
