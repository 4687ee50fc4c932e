"""Rows of a further table as an encoding stores them, for a client that comes later."""

from collections.abc import Mapping
from functools import partial

import numpy as np
import pyarrow as pa

from headstart.data.tables.categories import category_numbers
from headstart.data.tables.encoding import Encoding
from headstart.data.tables.kept import KeptBatch
from headstart.data.tables.numbers import as_numbers, write_numbers
from headstart.data.tables.reading import Source, is_text
from headstart.data.tables.roles import holding
from headstart.data.tables.spelling import number_of
from headstart.errors import UsageError, did_you_mean

__all__ = ["check_columns", "stored_rows"]


def check_columns(encoding: Encoding, source: Source) -> None:
    """Refuse a table without a column that training had."""
    missing = [column.name for column in encoding.columns if column.name not in source.schema.names]
    if missing:
        more = f" (nor {len(missing) - 1} others)" if len(missing) > 1 else ""
        raise UsageError(
            f"{source.name} has no column {missing[0]!r}{more}, which the model was trained with.",
            did_you_mean(missing[0], source.schema.names).replace("Choose one of", "It has"),
        )


def stored_rows(encoding: Encoding, source: Source) -> np.ndarray:
    """The rows of a table that has the columns of training, or more."""
    check_columns(encoding, source)
    numbers = {j: {value: float(i) for i, value in enumerate(column.categories)} for j, column in encoding.categories}
    blocks = []
    start = 0
    for data in source.batches([column.name for column in encoding.columns]):
        batch = KeptBatch(data, source, start)
        block = np.empty((len(data), len(encoding.columns)), np.float32)
        for j, column in encoding.numbers:
            values = _numbers(batch, column.name) - column.offset
            write_numbers(block, j, values, lambda i, c=column.name, b=batch: b.place(i, c))  # type: ignore[misc]
        for j, category in encoding.categories:
            known = numbers[j]
            block[:, j] = category_numbers(data.column(category.name), partial(_place, known))
        blocks.append(block)
        start += len(data)
    return np.concatenate([np.empty((0, len(encoding.columns)), np.float32), *blocks])


def _place(known: Mapping[str, float], text: str) -> float:
    """A text's place among the categories, also if a file has blanks around it."""
    return known.get(text, known.get(text.strip(), -1))


def _numbers(batch: KeptBatch, column: str) -> np.ndarray:
    """A column's numbers; anything else is refused by its place."""
    values = batch.data.column(column)
    if holding(values.type) in ("numbers", "nothing"):
        return as_numbers(values).astype(np.float64)
    plain = values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
    if is_text(plain.type):
        texts = plain.to_pylist()
        found = {text: number_of(text, batch.source.decimal) for text in set(texts) - {None}}
        wrong = next((i for i, text in enumerate(texts) if found.get(text, np.nan) is None), None)
        if wrong is None:
            return np.array([found.get(text, np.nan) for text in texts], np.float64)
        raise UsageError(f"{batch.place(wrong, column)}: {texts[wrong]!r} is no number.", "It was one in training.")
    raise UsageError(f"{batch.source.name}: column {column!r} holds {values.type}.", "It held numbers in training.")
