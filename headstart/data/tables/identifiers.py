"""Columns that tell a model nothing: ids of rows or clients, numbers of rows, texts of which there are too many."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from headstart.data.tables.reading import Source
from headstart.data.tables.roles import Roles, holding, left_out
from headstart.data.tables.spelling import number_of
from headstart.errors import UsageError

__all__ = [
    "MAX_CATEGORIES",
    "ColumnTexts",
    "ColumnsRead",
    "RowNumbers",
    "is_number",
    "misplaced_texts",
    "read_columns",
    "why_no_feature",
    "without",
    "without_identifiers",
]

MAX_CATEGORIES = 100
"""The most categories that a column of texts may have: each is a feature."""

LEAST_COUNTED = 20
"""Of fewer rows, numbers that count them may do so by chance."""

LARGEST_WHOLE = 2**40
"""Numbers of rows are smaller than this."""

NEARLY = 0.9
"""Texts are ids where this share of rows, or of clients, has one of its own."""


@dataclass
class ColumnTexts:
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

    @property
    def pairs(self) -> int:
        """How many pairs of a client and one of its texts there are."""
        return sum(map(len, self.owners.values()))


@dataclass(frozen=True)
class RowNumbers:
    """Whether a column of whole numbers counts rows: every number from its least to its greatest is there once."""

    low: int = LARGEST_WHOLE
    high: int = -LARGEST_WHOLE
    sum: int = 0
    possible: bool = True

    def add(self, values: pa.Array) -> "RowNumbers":
        """With some more rows."""
        if not self.possible or not len(values):
            return self
        numbers = values.to_numpy(zero_copy_only=False)
        if (
            values.null_count
            or not bool(np.all(np.abs(numbers) < LARGEST_WHOLE))
            or not np.array_equal(numbers, np.floor(numbers))
            or len(np.unique(numbers)) < len(numbers)
        ):
            return RowNumbers(possible=False)
        whole = numbers.astype(np.int64)
        return self.joined(RowNumbers(int(whole.min()), int(whole.max()), int(whole.sum())))

    def joined(self, other: "RowNumbers") -> "RowNumbers":
        """Of the rows of both."""
        return RowNumbers(
            min(self.low, other.low), max(self.high, other.high), self.sum + other.sum, self.possible and other.possible
        )

    def why_no_feature(self, rows: int) -> str | None:
        """Why a column of so many rows is no feature, if so."""
        if not self.possible or rows < LEAST_COUNTED or self.high - self.low != rows - 1:
            return None
        return "numbers that count the rows" if 2 * self.sum == (self.low + self.high) * rows else None


@dataclass
class ColumnsRead:
    """What some columns hold, and of how many rows and clients."""

    texts: dict[str, ColumnTexts]
    counting: dict[str, RowNumbers]
    """The columns of numbers that may count the rows."""
    rows: int = 0
    clients: set[object] = field(default_factory=set)


def read_columns(source: Source, client: str, features: Sequence[str]) -> ColumnsRead:
    """Read features that may hold ids: texts, as long as they may be categories, and numbers that may count rows."""
    held = {name: source.schema.field(name).type for name in features}
    # A CSV file that is streamed, and frames with gaps, have whole numbers as floating ones.
    numbers = [name for name, kind in held.items() if pa.types.is_integer(kind) or pa.types.is_float64(kind)]
    texts = {name: ColumnTexts() for name, kind in held.items() if holding(kind) == "texts"}
    found = ColumnsRead(texts, {name: RowNumbers() for name in _counting(source, numbers)})
    for batch in source.batches(list(dict.fromkeys([client, *found.texts, *found.counting]))):
        found.rows += len(batch)
        whose = _plain(batch.column(client))
        # More clients than categories cannot be told apart by a column of few texts.
        if len(found.clients) <= 2 * MAX_CATEGORIES:
            found.clients.update(whose.unique().to_pylist())
        for name, column in found.texts.items():
            if not column.many:
                column.add(whose, _plain(batch.column(name)))
        for name, counted in found.counting.items():
            found.counting[name] = counted.add(batch.column(name))
    for name, column in found.texts.items():
        if column.many:
            _check_not_numbers(source, name, [text for text in column.owners if text is not None])
    return found


def _counting(source: Source, columns: Sequence[str]) -> list[str]:
    """The columns whose first rows, at least, may be counted by them."""
    first = next(iter(source.batches(columns)), None) if columns else None
    return [] if first is None else [name for name in columns if RowNumbers().add(first.column(name)).possible]


def why_no_feature(distinct: int | None, pairs: int, rows: int, clients: int) -> str | None:
    """Why a column of so many different texts is no feature, if so; ``None`` for more than categories may be."""
    if distinct is None:
        return f"more than {MAX_CATEGORIES} different texts, as ids have"
    if distinct > 1 and distinct >= NEARLY * rows:
        return "nearly every row has a text of its own, as of an id"
    if distinct > 1 and pairs == clients and distinct >= NEARLY * clients:
        return "nearly every client has a text of its own, as of an id"
    return None


def without_identifiers(source: Source, roles: Roles, asked_for: Sequence[str] | None) -> tuple[Roles, tuple[str, ...]]:
    """The roles without features that are ids, and a word about each; features that were asked for by name stay."""
    if asked_for is not None:
        return roles, ()
    found = read_columns(source, roles.client, roles.features)
    reasons = {
        name: why_no_feature(None if texts.many else len(texts.owners), texts.pairs, found.rows, len(found.clients))
        for name, texts in found.texts.items()
    } | {name: counted.why_no_feature(found.rows) for name, counted in found.counting.items()}
    return without(roles, {name: why for name, why in reasons.items() if why is not None}, source.name)


def without(roles: Roles, reasons: Mapping[str, str], where: str) -> tuple[Roles, tuple[str, ...]]:
    """The roles without some features, and a word about each, which says why."""
    features = tuple(name for name in roles.features if name not in reasons)
    notes = tuple(
        left_out([name for name in reasons if reasons[name] == why], f"{why} (--features names others)")
        for why in dict.fromkeys(reasons.values())
    )
    if not features:
        raise UsageError(
            f"{where} has no feature columns but such as hold ids: {', '.join(map(repr, reasons))}.",
            "Add columns that a model can predict from.",
        )
    return replace(roles, features=features), notes


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


def misplaced_texts(texts: Iterable[str]) -> list[str]:
    """Those that are no numbers, where most are."""
    texts = list(texts)
    others = [text for text in texts if not is_number(text)]
    return others if len(texts) - len(others) > len(others) else []


def is_number(text: str) -> bool:
    """Whether a text is a number, written out, or stands for a missing one."""
    return number_of(text) is not None


def _plain(values: pa.Array) -> pa.Array:
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
