"""What is to be predicted: classes, or numbers."""

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from headstart.data.samples import TargetScale
from headstart.data.tables.dictionaries import column_of, dictionary_of, ordered_dictionary
from headstart.data.tables.numbers import LARGEST, Span, as_numbers
from headstart.data.tables.reading import Source
from headstart.data.tables.roles import holding
from headstart.errors import UsageError

__all__ = ["Kind", "Labels", "coded_labels", "label_chunk", "labels_of"]

Kind = Literal["auto", "classification", "regression"]

MAX_CLASSES = 100
"""Labels that are whole numbers can be classes when there are no more of them than this."""

FEW_CLASSES = 20
"""Whole numbers are taken for classes, where nobody says what they are, when there are no more of them than this."""


@dataclass(frozen=True, eq=False)
class Labels:
    """Class numbers and what they stand for, or the targets of a regression; and a line that says which."""

    y: np.ndarray
    classes: tuple[str, ...] | None
    note: str
    target: TargetScale = field(default_factory=TargetScale)


def coded_labels(values: Any, kind: Kind, source: Source, column: str) -> Labels:
    """Labels given as an array."""
    return labels_of([label_chunk(column_of(values, source, column))], kind, source, column)


def label_chunk(values: pa.Array) -> pa.Array:
    """Labels: numbers as they are, all else as dictionaries."""
    if holding(values.type) == "numbers" and not pa.types.is_boolean(values.type):
        return pa.array(as_numbers(values))
    return dictionary_of(values)


def labels_of(chunks: list[pa.Array], kind: Kind, source: Source, column: str) -> Labels:
    """Texts, booleans and few whole numbers are classes; other numbers are targets of a regression, unless said."""
    if not any(pa.types.is_dictionary(chunk.type) for chunk in chunks):
        return _number_labels(np.concatenate([c.to_numpy(zero_copy_only=False) for c in chunks]), kind, source, column)
    if kind == "regression":
        raise UsageError(
            f"{source.name}: the label {column!r} holds no numbers to predict.",
            "Say kind = 'classification', or choose a column of numbers.",
        )
    encoded = ordered_dictionary([dictionary_of(chunk) for chunk in chunks], source, column)
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
    span = Span(float(numbers.min()), float(numbers.max()))
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
