"""Rows that a client adapts on: those whose labels a model can learn from, and a word about the others."""

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from headstart.artifact.target import Target, class_names
from headstart.data.tables.reading import Source
from headstart.errors import UsageError

__all__ = ["Usable", "usable_rows"]

MOST_NAMED = 10


class Usable(NamedTuple):
    """Which rows are learned from, and what is to be said of the others."""

    rows: np.ndarray
    labels: pa.Array
    notes: tuple[str, ...]


def usable_rows(labels: Any, target: Target, classifies: bool, source: Source) -> Usable:
    """The rows that have a label, and, where the model's classes are fixed, one that it knows."""
    column = pa.array(labels, from_pandas=True)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    there = ~np.asarray(column.is_null(nan_is_null=True))
    notes = []
    if not there.all():
        notes.append(_left_out(~there, "no label", source))
    if classifies and target.classes is not None:
        names = np.full(len(column), None, object)
        names[there] = class_names(column.filter(pa.array(there)))
        unknown = there & ~np.isin(names.astype(str), target.classes)
        if unknown.any():
            first = names[np.flatnonzero(unknown)[0]]
            known = ", ".join(target.classes[:MOST_NAMED]) + (", …" if target.classes[MOST_NAMED:] else "")
            what = f"a class that the model does not know ({first!r}; it knows {known})"
            notes.append(_left_out(unknown, what, source))
            there &= ~unknown
    if not there.any():
        raise UsageError(" ".join(notes) or f"{source.name} has no rows.", "Give rows with labels to learn from.")
    return Usable(np.flatnonzero(there), column.filter(pa.array(there)), tuple(notes))


def _left_out(rows: np.ndarray, what: str, source: Source) -> str:
    first = source.place(int(np.flatnonzero(rows)[0]))
    if rows.sum() == 1:
        return f"{first[0].upper()}{first[1:]} has {what}, and is left out."
    return f"{rows.sum():,} of {len(rows):,} rows have {what}, and are left out; the first is {first}."
