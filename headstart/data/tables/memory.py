"""How much memory loading takes, said before anything is read."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet

from headstart.data.tables.folders import client_files
from headstart.data.tables.loading import form_of
from headstart.data.tables.pictures import image_files, read_pictures
from headstart.data.tables.prepared import open_prepared
from headstart.data.tables.reading import PARQUET_ENDINGS, TABLE_ENDINGS, ending, readable, streamed_file

__all__ = ["memory_needed", "rows_of"]

ROW_BYTES = 110
"""What a row takes besides its features while rows are dealt out: numbers, fingerprints, keys and places in orders."""

CSV_FACTOR = 1.3
"""What reading a CSV file takes for every byte of it, besides the table that it becomes."""

CSV_ROW_BYTES = 80
"""What reading a row of a CSV file takes besides its features."""

GZIP_FACTOR = 4.0
"""How much larger a CSV file is than its compressed form, as a rule."""

READER_BYTES = 2**28
"""What a reader of tables and the threads that work beside it keep for themselves."""

SAMPLE_BYTES = 2**20


def memory_needed(path: str | Path, *, features: Sequence[str] | None = None) -> int:
    """The most bytes that loading a path takes, on top of what the program itself does.

    The number of rows is exact but for CSV files, whose first lines it is estimated from.
    """
    path = Path(path)
    form = form_of(path)
    if form == "prepared":
        return ROW_BYTES * len(open_prepared(path))
    if form == "images":
        files, _, _ = image_files(path)
        return len(files) * (read_pictures(files[:1]).nbytes + ROW_BYTES)
    files = list(client_files(path).values()) if form == "folder" else [path]
    # The client is a column of a table, and the name of a file.
    others = 1 if form == "folder" else 2
    return READER_BYTES + sum(_file_bytes(file, features, others) for file in files)


def rows_of(data: Any) -> int | None:
    """How many rows there are, or of a CSV file about how many; ``None`` where nobody knows before reading."""
    if not isinstance(data, (str, Path)):
        return len(data) if hasattr(data, "__len__") and not isinstance(data, Mapping) else None
    path = Path(data)
    if ending(path) in PARQUET_ENDINGS:
        with readable(path):
            return int(pyarrow.parquet.read_metadata(path).num_rows)
    return int(_csv_rows(path)) if ending(path) in TABLE_ENDINGS else None


def _csv_rows(file: Path) -> float:
    size = file.stat().st_size * (GZIP_FACTOR if ending(file).endswith(".gz") else 1)
    return size / _line_bytes(file)


def _file_bytes(file: Path, features: Sequence[str] | None, others: int) -> int:
    if ending(file) == ".npz":
        # Once in its own array, once among all clients'.
        return 2 * file.stat().st_size + ROW_BYTES * _npz_rows(file)
    source = streamed_file(file)
    columns = len(source.schema.names) - others if features is None else len(features)
    if ending(file) in PARQUET_ENDINGS:
        with readable(file):
            rows = pyarrow.parquet.read_metadata(file).num_rows
        return rows * (4 * columns + ROW_BYTES)
    size = file.stat().st_size * (GZIP_FACTOR if ending(file).endswith(".gz") else 1)
    rows = _csv_rows(file)
    return int(rows * max(4 * columns + ROW_BYTES, 8 * columns + CSV_ROW_BYTES + CSV_FACTOR * size / rows))


def _npz_rows(file: Path) -> int:
    with np.load(file, allow_pickle=False) as content:
        return len(content["y"])


def _line_bytes(file: Path) -> float:
    """The mean length of the first lines."""
    with readable(file), pyarrow.input_stream(file, compression="detect") as stream:
        start = stream.read(SAMPLE_BYTES)
    return len(start) / max(start.count(b"\n"), 1)
