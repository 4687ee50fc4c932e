"""Columns of names: each row's number into a list of the distinct values."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headstart.data.tables.reading import Source
from headstart.errors import UsageError

__all__ = ["check_there", "coded_values", "column_of", "dictionary_of", "ordered_dictionary"]

LARGEST_WHOLE = 2.0**53
"""Up to here floating numbers tell whole ones apart."""


def coded_values(values: Any, source: Source, column: str) -> pa.DictionaryArray:
    """Values given as an array, as numbers into the distinct ones in order."""
    return ordered_dictionary([dictionary_of(column_of(values, source, column))], source, column)


def column_of(values: Any, source: Source, column: str) -> pa.Array:
    """Values given as an array, as Arrow has them."""
    try:
        return pa.array(values, from_pandas=True)
    except (pa.ArrowException, TypeError) as error:
        raise UsageError(
            f"{source.name}: {column} is no column: {' '.join(str(error).split())}",
            "Give one value per row, of one type.",
        ) from error


def dictionary_of(values: pa.Array) -> pa.DictionaryArray:
    """Values as numbers into a list of distinct ones; whole floats (whole numbers once, with gaps) as whole numbers."""
    if pa.types.is_floating(values.type):
        values = _whole(values.cast(pa.float64()))
    if pa.types.is_null(values.type):
        values = values.cast(pa.string())
    encoded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
    text = pa.types.is_large_string(encoded.type.value_type) or pa.types.is_string_view(encoded.type.value_type)
    wanted = pa.dictionary(pa.int32(), pa.string() if text else encoded.type.value_type)
    return encoded if encoded.type == wanted else encoded.cast(wanted)


def _whole(values: pa.Array) -> pa.Array:
    """Numbers as whole ones, if all of them are."""
    numbers = values.to_numpy(zero_copy_only=False)
    there = numbers[~np.isnan(numbers)]
    whole = bool((np.abs(there) < LARGEST_WHOLE).all()) and np.array_equal(there, np.floor(there))
    values = pa.array(numbers, from_pandas=True)
    return values.cast(pa.int64()) if whole else values


def ordered_dictionary(chunks: list[pa.Array], source: Source, column: str) -> pa.DictionaryArray:
    """All chunks as one dictionary array of 32-bit numbers into the distinct values in order."""
    if len({chunk.type for chunk in chunks}) > 1:
        chunks = [_as_texts(chunk) for chunk in chunks]
    joined = pa.chunked_array(chunks).unify_dictionaries()
    dictionary = max((chunk.dictionary for chunk in joined.chunks), key=len)
    check_there(chunks, source, column)
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


def _texts(values: pa.Array) -> pa.Array:
    return pa.array([str(value) for value in values.to_pylist()], pa.string())


def _as_texts(chunk: pa.DictionaryArray) -> pa.DictionaryArray:
    """Numbers in one file and texts in another are all texts."""
    return pa.DictionaryArray.from_arrays(chunk.indices, _texts(chunk.dictionary))
