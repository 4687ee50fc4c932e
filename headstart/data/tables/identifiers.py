"""Columns that tell a model nothing: ids of rows or clients, numbers of rows, texts of which there are too many."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from headstart.data.tables.reading import Source
from headstart.data.tables.roles import Roles, holding
from headstart.errors import UsageError

__all__ = ["MAX_CATEGORIES", "is_number", "without_identifiers"]

MAX_CATEGORIES = 100
"""The most categories that a column of texts may have: each is a feature."""

LEAST_COUNTED = 20
"""Of fewer rows, numbers that count them may do so by chance."""

LARGEST_WHOLE = 2**40
"""Numbers of rows are smaller than this."""

NEARLY = 0.9
"""Texts are ids where this share of rows, or of clients, has one of its own."""


@dataclass
class _Texts:
    """What a column holds, as far as it has been read."""

    owners: dict[str | None, set[object]] = field(default_factory=dict)
    """Each text's clients."""
    many: bool = False
    """Whether there are more texts than categories may be; then nothing more is read of the column."""

    def add(self, clients: pa.Array, texts: pa.Array) -> None:
        pairs = pa.table({"client": clients, "text": texts}).group_by(["client", "text"]).aggregate([])
        for client, text in zip(pairs["client"].to_pylist(), pairs["text"].to_pylist(), strict=True):
            self.owners.setdefault(text, set()).add(client)
            if len(self.owners) > MAX_CATEGORIES:
                self.many = True
                return

    def why_not(self, rows: int, clients: int) -> str | None:
        """Why the column is no feature, if so."""
        distinct = len(self.owners)
        if self.many:
            return f"more than {MAX_CATEGORIES} different texts, as ids have"
        if distinct > 1 and distinct >= NEARLY * rows:
            return "nearly every row has a text of its own, as of an id"
        one_each = sum(map(len, self.owners.values())) == clients
        if distinct > 1 and one_each and distinct >= NEARLY * clients:
            return "nearly every client has a text of its own, as of an id"
        return None


class _Whole:
    """Whether a column of whole numbers counts rows: every number from its least to its greatest is there once."""

    def __init__(self) -> None:
        self.low, self.high, self.sum, self.possible = LARGEST_WHOLE, -LARGEST_WHOLE, 0, True

    def add(self, values: pa.Array) -> None:
        numbers = values.to_numpy(zero_copy_only=False)
        if not self.possible or not len(numbers):
            return
        self.possible = (
            values.null_count == 0
            and bool(np.all(np.abs(numbers) < LARGEST_WHOLE))
            and np.array_equal(numbers, np.floor(numbers))
            and len(np.unique(numbers)) == len(numbers)
        )
        if self.possible:
            whole = numbers.astype(np.int64)
            self.low, self.high = min(self.low, int(whole.min())), max(self.high, int(whole.max()))
            self.sum += int(whole.sum())

    def why_not(self, rows: int) -> str | None:
        """Why the column is no feature, if so."""
        if not self.possible or rows < LEAST_COUNTED or self.high - self.low != rows - 1:
            return None
        return "numbers that count the rows" if 2 * self.sum == (self.low + self.high) * rows else None


def without_identifiers(source: Source, roles: Roles, asked_for: Sequence[str] | None) -> tuple[Roles, tuple[str, ...]]:
    """The roles without features that are ids, and a word about each; features that were asked for by name stay."""
    if asked_for is not None:
        return roles, ()
    held = {name: source.schema.field(name).type for name in roles.features}
    texts = {name: _Texts() for name, kind in held.items() if holding(kind) == "texts"}
    # A CSV file that is streamed, and frames with gaps, have whole numbers as floating ones.
    numbers = [name for name, kind in held.items() if pa.types.is_integer(kind) or pa.types.is_float64(kind)]
    wholes = _counting(source, numbers)
    if not texts and not wholes:
        return roles, ()
    rows = 0
    clients: set[object] = set()
    for batch in source.batches(list(dict.fromkeys([roles.client, *texts, *wholes]))):
        rows += len(batch)
        if texts:
            whose = _plain(batch.column(roles.client))
            # More clients than categories cannot be told apart by a column of few texts.
            if len(clients) <= 2 * MAX_CATEGORIES:
                clients.update(whose.unique().to_pylist())
        for name, found in texts.items():
            if not found.many:
                found.add(whose, _plain(batch.column(name)))
        for name, whole in wholes.items():
            whole.add(batch.column(name))
    for name, found in texts.items():
        if found.many:
            _check_not_numbers(source, name, [text for text in found.owners if text is not None])
    reasons = {name: why for name, found in texts.items() if (why := found.why_not(rows, len(clients))) is not None}
    reasons |= {name: why for name, whole in wholes.items() if (why := whole.why_not(rows)) is not None}
    features = tuple(name for name in roles.features if name not in reasons)
    notes = tuple(
        _left_out([name for name in reasons if reasons[name] == why], why) for why in dict.fromkeys(reasons.values())
    )
    if not features:
        raise UsageError(
            f"{source.name} has no feature columns but such as hold ids: {', '.join(map(repr, reasons))}.",
            "Add columns that a model can predict from.",
        )
    return replace(roles, features=features), notes


def _left_out(names: Sequence[str], why: str) -> str:
    """A word about columns that are left out for one reason."""
    columns = f"column {names[0]!r} is" if len(names) == 1 else f"columns {', '.join(map(repr, names))} are"
    return f"The {columns} left out: {why} (--features names others)."


def _counting(source: Source, columns: Sequence[str]) -> dict[str, _Whole]:
    """The columns whose first rows, at least, may be counted by them."""
    first = next(iter(source.batches(columns)), None) if columns else None
    if first is None:
        return {}
    found = {name: _Whole() for name in columns}
    for name, whole in found.items():
        whole.add(first.column(name))
    return {name: _Whole() for name, whole in found.items() if whole.possible}


def _check_not_numbers(source: Source, column: str, some: Sequence[str]) -> None:
    """Refuse a column of numbers that a few texts have crept into, rather than take them all for ids."""
    if sum(map(is_number, some)) <= len(some) / 2:
        return
    start = 0
    for batch in source.batches([column]):
        values = _plain(batch.column(column))
        wrong = {text for text in values.unique().to_pylist() if text is not None and not is_number(text)}
        if wrong:
            texts = values.to_pylist()
            row = next(i for i, text in enumerate(texts) if text in wrong)
            raise UsageError(
                f"{source.place(start + row)}, column {column!r}: {texts[row]!r} among numbers.",
                "Write a number or nothing there; for a category, write all values as words.",
            )
        start += len(batch)


def is_number(text: str) -> bool:
    """Whether a text is a number, written out."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _plain(values: pa.Array) -> pa.Array:
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
