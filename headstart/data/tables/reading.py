"""Tables from files, folders and frames, as streams of Arrow record batches whose rows can be named."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
import pyarrow.parquet

from headstart.data.tables.csv_files import CsvForm, csv_batches, csv_form, first_block, read_csv
from headstart.data.tables.spelling import Misspelt, Spelling, spelling_notes, spelling_of
from headstart.errors import UsageError

__all__ = [
    "TABLE_ENDINGS",
    "ChainedSource",
    "Source",
    "TableSource",
    "ending",
    "is_text",
    "readable",
    "source_of",
    "streamed_file",
]

CSV_ENDINGS = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
PARQUET_ENDINGS = (".parquet", ".pq")
TABLE_ENDINGS = (*CSV_ENDINGS, *PARQUET_ENDINGS)

SHEET = "Save it as CSV: in a spreadsheet, File, Save as; in Python, pandas.read_excel(...).to_csv(..., index=False)."
LINES = "Convert it in Python: pandas.read_json(...).to_csv(..., index=False)."
CONVERTED = {
    ".xlsx": SHEET,
    ".xls": SHEET,
    ".ods": SHEET,
    ".json": LINES,
    ".jsonl": LINES.replace("...)", "..., lines=True)", 1),
}
"""How files of some endings become tables."""

MOST_NOTES = 3
"""Of many files, so many notes are passed on."""


class Source(ABC):
    """Rows of a table, read as often as needed."""

    name: str
    schema: pa.Schema
    notes: tuple[str, ...] = ()
    """What a reader should know of how it was read."""
    decimal: str = "."
    """The decimal sign of numbers that come as texts."""
    renamed: tuple[str, ...] = ()
    """Columns that have another name here than in the file, where two have one."""

    @property
    @abstractmethod
    def rows(self) -> int | None:
        """How many rows there are, where that is known before reading."""

    @abstractmethod
    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Some columns, in the order of the rows; texts among them may come as dictionaries."""

    def place(self, row: int) -> str:
        """Where a row is, for a person: rows count from 1, without the header."""
        return f"row {row + 1} of {self.name}"


@dataclass(frozen=True, eq=False)
class TableSource(Source):
    """A table in memory."""

    name: str
    table: pa.Table
    notes: tuple[str, ...] = ()
    renamed: tuple[str, ...] = ()

    @property
    def schema(self) -> pa.Schema:  # type: ignore[override]
        return self.table.schema

    @property
    def rows(self) -> int:
        return self.table.num_rows

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        yield from self.table.select(list(columns)).to_batches()


@dataclass(frozen=True, eq=False)
class ParquetSource(Source):
    """A Parquet file, of which no more than a few row groups are in memory at a time."""

    name: str
    path: Path
    schema: pa.Schema
    count: int

    @property
    def rows(self) -> int:
        return self.count

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        texts = [name for name in columns if is_text(self.schema.field(name).type)]
        with readable(self.path):
            file_format = pa.dataset.ParquetFileFormat(dictionary_columns=texts)
            for batch in pa.dataset.dataset(self.path, format=file_format).to_batches(columns=list(columns)):
                for column in batch.columns:
                    if pa.types.is_dictionary(column.type):
                        # A spoilt file may have numbers beyond the list that they point into.
                        column.validate(full=True)
                yield batch


@dataclass(frozen=True, eq=False)
class CsvSource(Source):
    """A CSV file that is read a block at a time; the first block decides what the columns hold."""

    name: str
    path: Path
    schema: pa.Schema
    form: CsvForm
    notes: tuple[str, ...] = ()
    spelt: Mapping[str, Spelling] = field(default_factory=dict)
    """The columns that are texts in the file."""
    as_written: bool = False
    """Whether texts keep the blanks around them."""

    @property
    def decimal(self) -> str:  # type: ignore[override]
        return self.form.decimal

    @property
    def renamed(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.form.renamed

    @property
    def rows(self) -> None:
        return None

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        # Whole numbers at first may be others later, and so may what is missing at first.
        types = {
            name: pa.float64() if pa.types.is_integer(kind) or pa.types.is_null(kind) else kind
            for name, kind in zip(self.schema.names, self.schema.types, strict=True)
            if name in columns
        } | _as_texts([name for name in columns if name in self.spelt])
        start = 0
        with readable(self.path):
            for batch in csv_batches(self.path, self.form, columns, types):
                yield self._plain(batch, start)
                start += len(batch)

    def _plain(self, batch: pa.RecordBatch, start: int) -> pa.RecordBatch:
        """A batch with what its spelt columns stand for, and without blanks around other texts."""
        for i, name in enumerate(batch.schema.names):
            texts = batch.column(i)
            if name not in self.spelt:
                if not self.as_written and _are_texts(texts.type):
                    batch = batch.set_column(i, name, trimmed(texts))
                continue
            try:
                batch = batch.set_column(i, name, self.spelt[name].values(texts))
            except Misspelt as error:
                row = texts.to_pylist().index(error.args[0])
                raise UsageError(
                    f"{self.place(start + row)}, column {name!r}: {error.args[0]!r} among {self.spelt[name].what}.",
                    "Write it as the others are written.",
                ) from None
        return batch


class ChainedSource(Source):
    """Several sources one after the other, each with the value of one more column: whose rows they are."""

    def __init__(self, name: str, sources: Sequence[Source], column: str, values: Sequence[str]):
        self.name, self.sources, self.column, self.values = name, tuple(sources), column, tuple(values)
        self.schema = _common_schema(self.sources, column)
        self.notes = tuple(note for source in sources for note in source.notes)[:MOST_NOTES]
        self.renamed = tuple(dict.fromkeys(name for source in sources for name in source.renamed))
        self._starts: list[int] = []

    @property
    def rows(self) -> int | None:
        counts = [source.rows for source in self.sources]
        return None if None in counts else sum(count for count in counts if count is not None)

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        others = [name for name in columns if name != self.column]
        self._starts, rows = [], 0
        for source, value in zip(self.sources, self.values, strict=True):
            self._starts.append(rows)
            for batch in source.batches(others):
                rows += len(batch)
                whose = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(batch), np.int32)), pa.array([value]))
                yield batch.append_column(self.column, whose).select(list(columns))
            if rows == self._starts[-1]:
                raise UsageError(f"{source.name} has no rows.", f"Give client {value!r} samples, or remove it.")

    def place(self, row: int) -> str:
        part = int(np.searchsorted(self._starts, row, "right")) - 1
        return self.sources[part].place(row - self._starts[part])


def _common_schema(sources: Sequence[Source], column: str) -> pa.Schema:
    """The columns that all sources must have, and what they hold."""
    first = sources[0]
    if column in first.schema.names:
        raise UsageError(
            f"{first.name} has a column {column!r}, but clients are told apart by their files.",
            "Rename the column, or give what clients are called another name with client = '...'.",
        )
    kinds = dict(zip(first.schema.names, first.schema.types, strict=True))
    for source in sources[1:]:
        if set(source.schema.names) != set(kinds):
            differing = sorted(set(source.schema.names) ^ set(kinds))[0]
            has, lacks = (source, first) if differing in source.schema.names else (first, source)
            raise UsageError(
                f"{has.name} has a column {differing!r}, {lacks.name} has not.", "Give all files the same columns."
            )
        for name, kind in zip(source.schema.names, source.schema.types, strict=True):
            known = kinds[name]
            if pa.types.is_null(known):
                kinds[name] = kind
            elif not pa.types.is_null(kind) and _sort(kind) != _sort(known):
                raise UsageError(
                    f"Column {name!r} is {kind} in {source.name}, but {known} in {first.name}.",
                    "Give the column one type in all files; look for texts among numbers.",
                )
    return pa.schema([*kinds.items(), (column, pa.string())])


def _sort(kind: pa.DataType) -> str:
    """Types of one sort can stand in one column."""
    if pa.types.is_dictionary(kind):
        return _sort(kind.value_type)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "numbers"
    if is_text(kind):
        return "texts"
    return "times" if pa.types.is_timestamp(kind) or pa.types.is_date(kind) else str(kind)


def is_text(kind: pa.DataType) -> bool:
    """Whether a column holds texts."""
    types = pa.types
    return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)


def ending(path: Path) -> str:
    """A file's ending: ``.csv``, and ``.csv.gz`` for ``a.b.csv.gz``."""
    suffix = path.suffix.lower()
    return Path(path.stem).suffix.lower() + suffix if suffix == ".gz" else suffix


def source_of(data: Any, name: str | None = None, texts: Sequence[str] = ()) -> Source:
    """A table file's path, a frame or an Arrow table as a source; a Parquet file stays on disk until it is needed.

    The columns ``texts`` of a CSV file are texts, even where all of them could be numbers or times.
    """
    if isinstance(data, Source):
        return data
    if isinstance(data, (str, Path)):
        path = _file(Path(data))
        if ending(path) in PARQUET_ENDINGS:
            return _parquet(path)
        with readable(path):
            read, form = read_csv(path, _as_texts(texts))
        # The reader's own memory is larger than the table.
        pa.default_memory_pool().release_unused()
        if not read.num_rows:
            raise UsageError(f"{path} has a header, and no rows.", "Give a table with samples.")
        plain, spelt = _plainly(_checked(read, str(path)), form, texts)
        return TableSource(path.name, plain, (*form.notes(path.name), *spelling_notes(spelt)), form.renamed)
    return TableSource(name or "the table", _checked(_frame(data), name or "the table"))


def streamed_file(path: Path, texts: Sequence[str] = (), as_written: bool = False) -> Source:
    """A table file as a source that never holds all of it; ``texts`` as in `source_of`.

    ``as_written`` leaves numbers and dates that a CSV file spells in a way of its own as the texts that they are.
    """
    path = _file(path)
    if ending(path) in PARQUET_ENDINGS:
        return _parquet(path)
    with readable(path):
        form = csv_form(path)
        first = _checked(first_block(path, form), str(path))
    plain, spelt = (first, {}) if as_written else _plainly(first, form, texts)
    found = plain.schema
    types = dict(zip(found.names, found.types, strict=True)) | _as_texts(
        [name for name in texts if name in found.names]
    )
    notes = (*form.notes(path.name), *spelling_notes(spelt))
    return CsvSource(path.name, path, pa.schema(list(types.items())), form, notes, spelt, as_written)


def _plainly(table: pa.Table, form: CsvForm, texts: Sequence[str]) -> tuple[pa.Table, dict[str, Spelling]]:
    """A CSV file's table with the numbers and dates that some of its texts stand for, and which columns those are."""
    spelt: dict[str, Spelling] = {}
    for i, name in enumerate(table.schema.names):
        if not _are_texts(table.schema.field(i).type):
            continue
        column = table.column(i).combine_chunks()
        spelling = None if name in texts else spelling_of(column, form.decimal)
        if spelling is not None:
            spelt[name] = spelling
        table = table.set_column(i, name, trimmed(column) if spelling is None else spelling.values(column))
    return table, spelt


def _are_texts(kind: pa.DataType) -> bool:
    return pa.types.is_dictionary(kind) and is_text(kind.value_type)


def trimmed(texts: pa.DictionaryArray) -> pa.DictionaryArray:
    """Texts of a file without the blanks around them, which people do not see; of blanks alone, nothing is left."""
    words = texts.dictionary
    short = pc.utf8_trim_whitespace(words)
    if short.equals(words):
        return texts
    short = pc.if_else(pc.equal(short, ""), pa.scalar(None, short.type), short)
    return short.take(texts.indices).dictionary_encode()


def _as_texts(columns: Sequence[str]) -> dict[str, pa.DataType]:
    return {name: pa.dictionary(pa.int32(), pa.string()) for name in columns}


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Say which file it was that could not be read."""
    try:
        yield
    except UsageError:
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{path} cannot be read: {' '.join(str(error).split())}",
            "Check that the file is whole, and mend that place.",
        ) from error


def _file(path: Path) -> Path:
    if path.is_dir():
        raise UsageError(f"{path} is a folder; a table is one file.", "Give a file, or use folder() or images().")
    if not path.exists():
        raise UsageError(f"There is no file {path}.", "Check the path.")
    if ending(path) not in TABLE_ENDINGS:
        raise UsageError(
            f"{path} ends in {ending(path) or 'nothing'}; a table is one of {', '.join(TABLE_ENDINGS)}.",
            CONVERTED.get(ending(path), "Rename or convert the file."),
        )
    if not path.stat().st_size:
        raise UsageError(f"{path} is empty.", "Give a file with a header and rows.")
    return path


def _parquet(path: Path) -> ParquetSource:
    with readable(path):
        file = pa.parquet.ParquetFile(path)
        schema, rows = file.schema_arrow, file.metadata.num_rows
    _check_names(schema, str(path))
    return ParquetSource(path.name, path, schema, rows)


def _checked(table: pa.Table, name: str) -> pa.Table:
    _check_names(table.schema, name)
    return table


def _check_names(schema: pa.Schema, name: str) -> None:
    try:
        names = schema.names
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{name}: the names of its columns are no text.", "Check that it is a table with a header, in UTF-8."
        ) from error
    twice = next((column for column in names if names.count(column) > 1), None)
    if twice is not None:
        raise UsageError(f"{name} has two columns {twice!r}.", "Give every column a name of its own.")


def _frame(data: Any) -> pa.Table:
    """A frame of any library that speaks Arrow, a Hugging Face dataset or a mapping of columns."""
    try:
        if isinstance(data, pa.RecordBatch):
            table = pa.Table.from_batches([data])
        elif isinstance(data, pa.Table):
            table = data
        elif hasattr(data, "with_format") and hasattr(data, "features"):
            table = _with_class_names(data.with_format("arrow")[:], data.features)
        else:
            table = pa.table(data)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise UsageError(
            f"{type(data).__name__} is not a table: {' '.join(str(error).split())}",
            "Give a path, a pandas or polars frame, an Arrow table, a Hugging Face dataset or a dict of columns, "
            "with one type a column.",
        ) from error
    return table.drop_columns([name for name in table.schema.names if name.startswith("__index_level_")])


def _with_class_names(table: pa.Table, features: Any) -> pa.Table:
    """Class numbers of a Hugging Face dataset as the names they stand for."""
    for i, name in enumerate(table.schema.names):
        names = getattr(features[name], "names", None)
        if names is not None:
            codes = table.column(name).combine_chunks().cast(pa.int32())
            # A class of -1 is how these datasets say that there is no label.
            codes = pc.if_else(pc.less(codes, 0), pa.scalar(None, pa.int32()), codes)
            table = table.set_column(i, name, pa.DictionaryArray.from_arrays(codes, pa.array(names)))
    return table
