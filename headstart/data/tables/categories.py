"""Columns of texts as numbers of categories."""

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from headstart.data.tables.dictionaries import dictionary_of
from headstart.data.tables.encoding import MISSING_CATEGORY
from headstart.data.tables.identifiers import MAX_CATEGORIES, misplaced_texts
from headstart.data.tables.kept import KeptBatch
from headstart.data.tables.reading import Source
from headstart.data.tables.sinks import BLOCK_ROWS
from headstart.errors import UsageError

__all__ = ["Categories", "category_numbers"]


class Categories:
    """The categories of a column so far, numbered as they came."""

    def __init__(self, column: str, source: Source):
        self.column, self.source = column, source
        self.numbers: dict[str, int] = {}
        self.first_rows: dict[str, int] = {}

    def codes(self, values: pa.Array, batch: KeptBatch) -> np.ndarray:
        """Each row's number among the categories so far, of which there may not be too many."""
        codes = category_numbers(values, self._number)
        for value, code in self.numbers.items():
            if value not in self.first_rows:
                self.first_rows[value] = batch.row(int(np.flatnonzero(codes == code)[0]))
        return codes

    def in_order(self) -> tuple[str, ...]:
        """The categories in alphabetical order, which does not depend on that of rows."""
        self._check_not_numbers()
        return tuple(sorted(self.numbers))

    def number_anew(self, codes: np.ndarray, names: Sequence[str]) -> None:
        """Rewrite codes as places in a list of categories; those that it lacks are -1."""
        number = {name: i for i, name in enumerate(names)}
        place = np.empty(len(self.numbers), np.float32)
        place[list(self.numbers.values())] = [number.get(name, -1) for name in self.numbers]
        if not np.array_equal(place, np.arange(len(place))):
            for start in range(0, len(codes), BLOCK_ROWS):
                block = codes[start : start + BLOCK_ROWS]
                block[:] = place[block.astype(np.int64)]

    def _number(self, value: str) -> int:
        if value not in self.numbers and len(self.numbers) >= MAX_CATEGORIES:
            raise UsageError(
                f"{self.source.name}: column {self.column!r} has more than {MAX_CATEGORIES} different texts "
                f"(from {min(self.numbers)!r} to {max(self.numbers)!r}).",
                "Each would be a feature. Leave the column out with features = [...] (an id tells a model nothing), "
                "or merge rare values.",
            )
        return self.numbers.setdefault(value, len(self.numbers))

    def _check_not_numbers(self) -> None:
        """Refuse a column of numbers that a few texts have crept into."""
        others = misplaced_texts(value for value in self.numbers if value != MISSING_CATEGORY)
        if others:
            row = min(self.first_rows[value] for value in others)
            text = next(value for value in others if self.first_rows[value] == row)
            raise UsageError(
                f"{self.source.place(row)}, column {self.column!r}: {text!r} among numbers.",
                "Write a number or nothing there; for a category, write all values as words.",
            )


def category_numbers(values: pa.Array, number: Callable[[str], float]) -> np.ndarray:
    """A number for every text; the texts of a batch are looked up once."""
    encoded = dictionary_of(values)
    codes = np.asarray(encoded.indices.fill_null(len(encoded.dictionary)))
    used = np.flatnonzero(np.bincount(codes, minlength=len(encoded.dictionary) + 1))
    texts = [None if i == len(encoded.dictionary) else encoded.dictionary[i].as_py() for i in used.tolist()]
    table = np.zeros(len(encoded.dictionary) + 1, np.float32)
    table[used] = [number(MISSING_CATEGORY if text is None else str(text)) for text in texts]
    return table[codes]
