"""Predictions beside a table's columns, from a file to a file, a block of rows at a time."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from headstart.data.tables.memory import rows_of
from headstart.data.tables.reading import ending
from headstart.data.watching import watcher
from headstart.errors import CannotWrite, UsageError

if TYPE_CHECKING:
    from headstart.artifact.predictor import Predictor

__all__ = ["predict_file"]

ROWS_AT_ONCE = 2**16
"""Rows that are written together."""
WRITERS = {".csv": pa.csv.CSVWriter, ".parquet": pa.parquet.ParquetWriter, ".pq": pa.parquet.ParquetWriter}


def predict_file(predictor: "Predictor", data: Any, out: Path | None) -> int:
    """Write the table with predictions beside its columns, to a CSV or Parquet file or as CSV to standard output."""
    kind = ".csv" if out is None else ending(out)
    if kind not in WRITERS:
        raise UsageError(f"{out} ends in {kind or 'nothing'}.", f"Give it one of {', '.join(WRITERS)}.")
    blocks = predictor.predict_batches(data)
    first = next(blocks, None)
    if first is None:
        raise UsageError("There are no rows to predict.", "Give a table with rows.")
    rows = 0
    with _place(out) as place, WRITERS[kind](place, _plain(first).schema) as writer:
        schema = _plain(first).schema
        for part in _gathered(_told(_chained(first, blocks), data)):
            writer.write_table(pa.concat_tables([_plain(block).cast(schema) for block in part]))
            rows += sum(map(len, part))
    return rows


def _gathered(blocks: Iterator[pa.Table]) -> Iterator[list[pa.Table]]:
    """Several blocks at a time: whatever is written at once is a part of a Parquet file that readers look up."""
    part: list[pa.Table] = []
    for block in blocks:
        part.append(block)
        if sum(map(len, part)) >= ROWS_AT_ONCE:
            yield part
            part = []
    if part:
        yield part


def _chained(first: pa.Table, blocks: Iterator[pa.Table]) -> Iterator[pa.Table]:
    yield first
    yield from blocks


def _told(blocks: Iterator[pa.Table], data: Any) -> Iterator[pa.Table]:
    """The blocks, of which whoever watches is told."""
    told = watcher()
    total = None if told is None else rows_of(data)
    done = 0
    for block in blocks:
        yield block
        done += len(block)
        if told is not None:
            told("Predicting", min(1.0, done / total) if total else None)


@contextmanager
def _place(out: Path | None) -> Iterator[Any]:
    """Where rows go: a file that appears once it is whole, or standard output."""
    if out is None:
        sys.stdout.flush()
        with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as stream:
            yield stream
        return
    temporary = out.with_name(f".{out.name}.partial")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        yield str(temporary)
        temporary.replace(out)
    except OSError as error:
        # Arrow's errors have the system's number, and words of their own.
        why = os.strerror(error.errno) if error.errno else error
        raise CannotWrite(f"{out} cannot be written: {why}.", "Make room, or mend the path.") from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _plain(table: pa.Table) -> pa.Table:
    """Texts as texts, rather than as numbers into lists of them."""
    for i, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            table = table.set_column(i, field.name, table.column(i).cast(field.type.value_type))
    return table
