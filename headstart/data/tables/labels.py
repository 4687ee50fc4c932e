"""What there is to predict: classes or numbers, decided from a summary of the labels, of which several join to one."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from headstart.data.samples import TargetScale
from headstart.data.tables.dictionaries import check_there, column_of, dictionary_of
from headstart.data.tables.numbers import as_numbers
from headstart.data.tables.reading import Source
from headstart.data.tables.roles import holding
from headstart.data.tables.spans import LARGEST, Extent
from headstart.errors import UsageError

__all__ = ["FEW_CLASSES", "MAX_CLASSES", "Kind", "LabelSummary", "Labels", "Target", "coded_labels", "label_chunk"]

Kind = Literal["auto", "classification", "regression"]

MAX_CLASSES = 100
"""Labels that are whole numbers can be classes when there are no more of them than this."""

FEW_CLASSES = 20
"""Whole numbers are taken for classes, where nobody says what they are, when there are no more of them than this."""


@dataclass(frozen=True)
class LabelSummary:
    """What the labels of some rows are, as far as the kind of the problem depends on it."""

    texts: frozenset[str] | None
    """The different labels, where some are no numbers."""
    whole: tuple[int, ...] | None = None
    """The different numbers, where all are whole and they are few enough for classes."""
    extent: Extent | None = field(default_factory=Extent)
    """Where numbers lie; ``None`` where they are far from each other."""

    @classmethod
    def of(cls, chunks: Sequence[pa.Array], source: Source, column: str) -> "LabelSummary":
        """Of all chunks of a column of labels."""
        if not _are_numbers(chunks):
            encoded = [dictionary_of(chunk) for chunk in chunks]
            check_there(encoded, source, column)
            return cls(frozenset(text for chunk in encoded for text in _used(chunk)))
        numbers = _numbers(chunks)
        bad = np.flatnonzero(~(np.abs(numbers) <= LARGEST))
        if bad.size:
            raise UsageError(
                f"{source.place(int(bad[0]))}, column {column!r}: the label {numbers[bad[0]]} is not finite.",
                "Drop the row, or write a finite number.",
            )
        extent = Extent.between(float(numbers.min()), float(numbers.max())) if len(numbers) else Extent()
        return cls(None, _few_whole(numbers), None if extent.wide else extent)

    def joined(self, other: "LabelSummary") -> "LabelSummary":
        """Of the rows of both; where one has texts and the other whole numbers, the numbers are texts as well."""
        if self.texts is not None or other.texts is not None:
            return LabelSummary(self._as_texts() | other._as_texts())
        whole = None
        if self.whole is not None and other.whole is not None:
            both = tuple(sorted({*self.whole, *other.whole}))
            whole = both if len(both) <= MAX_CLASSES else None
        extent = None
        if self.extent is not None and other.extent is not None:
            extent = self.extent.joined(other.extent)
        return LabelSummary(None, whole, extent)

    def _as_texts(self) -> frozenset[str]:
        if self.texts is not None:
            return self.texts
        if self.whole is None:
            raise UsageError("Some labels are texts, others numbers.", "Write them all as one or as the other.")
        return frozenset(map(str, self.whole))

    def target(self, kind: Kind, name: str, column: str) -> "Target":
        """What the labels are to be taken for."""
        if self.texts is not None:
            if kind == "regression":
                raise UsageError(
                    f"{name}: the label {column!r} holds no numbers to predict.",
                    "Say kind = 'classification', or choose a column of numbers.",
                )
            classes = tuple(sorted(self.texts))
            _check_several(classes, name, column)
            return Target(classes, f"The label {column!r} is one of {len(classes)} classes.")
        whole = self.whole
        if kind == "classification" and whole is None:
            raise UsageError(
                f"{name}: the label {column!r} has more than {MAX_CLASSES} different values or fractions.",
                "These are no classes: say kind = 'regression', or write classes as texts.",
            )
        if whole is not None and (kind == "classification" or (kind == "auto" and len(whole) <= FEW_CLASSES)):
            classes = tuple(map(str, whole))
            _check_several(classes, name, column)
            note = f"The whole numbers of the label {column!r} are {len(classes)} classes; {_otherwise('regression')}."
            return Target(classes, note)
        if self.extent is not None and self.extent.constant:
            value = np.ldexp(float(self.extent.low), self.extent.level)
            raise UsageError(
                f"{name}: all labels (column {column!r}) are {value:g}.", "Give samples of different labels."
            )
        note = f"The label {column!r} is a number to predict (a regression)"
        note += "." if whole is None else f"; {_otherwise('classification')}."
        return Target(None, note, 0.0 if self.extent is None else self.extent.offset)


@dataclass(frozen=True)
class Target:
    """What labels are taken for: classes by name, or numbers that are stored less an offset."""

    classes: tuple[str, ...] | None
    note: str
    offset: float = 0.0

    def labels(self, chunks: Sequence[pa.Array]) -> "Labels":
        """The labels of a column's chunks, all of which were summarised."""
        scale = TargetScale(offset=self.offset)
        if self.classes is None:
            return Labels((_numbers(chunks) - self.offset).astype(np.float32), None, self.note, scale)
        number = {name: code for code, name in enumerate(self.classes)}
        codes = np.empty(sum(map(len, chunks)), np.int32)
        start = 0
        for chunk in chunks:
            encoded = dictionary_of(chunk)
            place = np.array([number.get(str(value), -1) for value in encoded.dictionary.to_pylist()], np.int32)
            codes[start : start + len(chunk)] = place[encoded.indices.to_numpy()]
            start += len(chunk)
        return Labels(codes, self.classes, self.note, scale)


@dataclass(frozen=True, eq=False)
class Labels:
    """Class numbers and what they stand for, or the targets of a regression; and a line that says which."""

    y: np.ndarray
    classes: tuple[str, ...] | None
    note: str
    target: TargetScale = field(default_factory=TargetScale)


def label_chunk(values: pa.Array) -> pa.Array:
    """Labels: numbers as they are, all else as dictionaries."""
    if holding(values.type) == "numbers" and not pa.types.is_boolean(values.type):
        return pa.array(as_numbers(values))
    return dictionary_of(values)


def coded_labels(values: Any, kind: Kind, source: Source, column: str) -> Labels:
    """Labels given as an array."""
    chunks = [label_chunk(column_of(values, source, column))]
    return LabelSummary.of(chunks, source, column).target(kind, source.name, column).labels(chunks)


def _are_numbers(chunks: Sequence[pa.Array]) -> bool:
    return not any(pa.types.is_dictionary(chunk.type) for chunk in chunks)


def _numbers(chunks: Sequence[pa.Array]) -> np.ndarray:
    return np.concatenate([chunk.to_numpy(zero_copy_only=False) for chunk in chunks])


def _used(chunk: pa.DictionaryArray) -> list[str]:
    """The values that rows have; a dictionary may list others."""
    used = np.flatnonzero(np.bincount(chunk.indices.to_numpy(), minlength=len(chunk.dictionary)))
    return [str(value) for value in chunk.dictionary.take(pa.array(used)).to_pylist()]


def _otherwise(kind: Kind) -> str:
    what = "a class" if kind == "classification" else "a number"
    return f"to predict {what}, say kind = '{kind}' (--kind {kind})"


def _check_several(names: tuple[str, ...], source: str, column: str) -> None:
    if len(names) < 2:
        raise UsageError(
            f"{source}: all labels (column {column!r}) are {names[0]!r}.", "Give samples of two classes or more."
        )


def _few_whole(numbers: np.ndarray) -> tuple[int, ...] | None:
    """The distinct values, where they are few enough for classes and whole."""
    distinct = np.zeros(0, numbers.dtype)
    step = 2**16
    for start in range(0, len(numbers), step):
        distinct = np.union1d(distinct, numbers[start : start + step])
        if len(distinct) > MAX_CLASSES or not np.array_equal(distinct, np.round(distinct)):
            return None
    return tuple(int(value) for value in distinct)
