"""Columns of numbers: as NumPy has them, checked, and stored so that single precision tells values apart."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from headstart.data.tables.encoding import MISSING
from headstart.data.tables.spans import LARGEST, Span
from headstart.errors import UsageError

__all__ = ["as_numbers", "missing_values", "sortable", "write_numbers"]


def as_numbers(values: pa.Array) -> np.ndarray:
    """Numbers as NumPy has them, missing ones as NaN."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_decimal(values.type) or pa.types.is_null(values.type):
        values = values.cast(pa.float64())
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.uint8())
    if pa.types.is_float16(values.type):  # too narrow for what values are compared with
        values = values.cast(pa.float32())
    return values.to_numpy(zero_copy_only=False)


def missing_values(values: pa.Array) -> np.ndarray | None:
    """Which values are missing, or ``None`` where all are there."""
    if pa.types.is_floating(values.type):
        numbers = as_numbers(values)
        # A sum is a NaN where a value is one, and also where infinities of both signs are.
        with np.errstate(invalid="ignore"):
            absent = np.isnan(numbers) if np.isnan(numbers.sum()) else np.zeros(0, bool)
        return absent if absent.any() else None
    if pa.types.is_null(values.type):
        return np.ones(len(values), bool)
    return np.asarray(values.is_null()) if values.null_count else None


def write_numbers(block: np.ndarray, j: int, values: np.ndarray, place: Callable[[int], str]) -> Span:
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
