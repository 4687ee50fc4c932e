"""CSV files as people have them: whatever separates their cells, in whatever encoding, with whatever quotes."""

import csv
import io
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv

from headstart.data.watching import Told, watcher
from headstart.errors import UsageError

__all__ = ["CsvForm", "csv_batches", "csv_form", "first_block", "read_csv"]

SAMPLE_BYTES = 2**18
"""How much of a file is looked at to find its form."""
FIRST_BYTES = 2**24
"""How much of a file that is streamed decides what its columns hold."""
BLOCK_BYTES = 2**21
"""How much of it is read at a time; the reader is some thirty blocks ahead of whoever asks for rows."""
SEPARATORS = (",", ";", "\t", "|")
NAMED = {";": "semicolons", "\t": "tabs", "|": "bars"}
DECIMAL_COMMA, DECIMAL_POINT = re.compile(r"[-+]?\d+,\d+"), re.compile(r"[-+]?\d+\.\d+")
WIDE = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
OLD = "cp1252"
"""What Western spreadsheets write that do not write UTF-8."""
GZIP = b"\x1f\x8b"
SAID_SEPARATOR = re.compile(r'"?sep=([,;|\t])"?[,;|\t]*', re.IGNORECASE)
"""The line with which spreadsheets are told what separates cells."""
MOST_ABOVE = 50
"""Lines among which the header is looked for."""
MOST_NAMED = 3


@dataclass(frozen=True)
class CsvForm:
    """How a file is written."""

    separator: str = ","
    decimal: str = "."
    encoding: str = "utf8"
    lines_in_cells: bool = False
    before: int = 0
    """Lines above the header: a title, remarks, the line with which spreadsheets name the separator."""
    names: tuple[str, ...] | None = None
    """What columns are called, where the header has blanks around names, or a name twice."""
    renamed: tuple[str, ...] = ()
    """Names that are not in the header."""

    def notes(self, name: str) -> tuple[str, ...]:
        """A word about what is not as usual."""
        notes = []
        if self.separator != ",":
            comma = ", and its numbers have decimal commas" if self.decimal == "," else ""
            notes.append(f"The cells of {name} are separated by {NAMED[self.separator]}{comma}.")
        if self.encoding != "utf8":
            notes.append(f"{name} is not in UTF-8, and is read as {self.encoding}.")
        if self.before:
            lines = "line of {name} is" if self.before == 1 else "{count} lines of {name} are"
            notes.append(f"The first {lines.format(count=self.before, name=name)} above the header, and skipped.")
        if self.renamed:
            more = f" and {len(self.renamed) - MOST_NAMED} more" if len(self.renamed) > MOST_NAMED else ""
            named = ", ".join(map(repr, self.renamed[:MOST_NAMED])) + more
            notes.append(f"The header of {name} has names twice or none; so columns are called {named}.")
        return tuple(notes)

    def read_options(self, **more: Any) -> pa.csv.ReadOptions:
        """For the reader: blocks and encoding."""
        if self.names is not None:
            more |= {"column_names": list(self.names), "skip_rows_after_names": 1}
        return pa.csv.ReadOptions(encoding=self.encoding, skip_rows=self.before, **more)

    def parse_options(self, **more: Any) -> pa.csv.ParseOptions:
        """For the reader: cells."""
        return pa.csv.ParseOptions(delimiter=self.separator, newlines_in_values=self.lines_in_cells, **more)

    def convert_options(self, **more: Any) -> pa.csv.ConvertOptions:
        """For the reader: values."""
        return pa.csv.ConvertOptions(
            strings_can_be_null=True, auto_dict_encode=True, auto_dict_max_cardinality=2**30,
            decimal_point=self.decimal, **more,
        )  # fmt: skip


def csv_form(path: Path) -> CsvForm:
    """The form of a file, from its first lines."""
    with pa.input_stream(path, compression="detect") as stream:
        raw = stream.read(SAMPLE_BYTES)
    encoding = WIDE.get(raw[:2]) or _encoding(raw)
    if encoding != "utf-16" and b"\0" in raw:
        line = raw[: raw.index(b"\0")].count(b"\n") + 1
        raise UsageError(f"{path} holds a NUL byte in line {line}: it is no text.", "Save the table as CSV in UTF-8.")
    # The last line is most often cut.
    text = raw.decode(encoding, errors="replace")
    lines = text.splitlines()[:-1] or text.splitlines()
    if not lines:
        return CsvForm(encoding=encoding)
    lines[0] = lines[0].removeprefix("\ufeff")
    before, separator = _header(lines)
    rows = [row for row in csv.reader(io.StringIO("\n".join(lines[before:])), delimiter=separator) if row] or [[]]
    cells = [cell.strip() for row in rows[1:] for cell in row]
    commas = separator == ";" and any(map(DECIMAL_COMMA.fullmatch, cells))
    decimal = "," if commas and not any(map(DECIMAL_POINT.fullmatch, cells)) else "."
    names, renamed = _names(rows[0])
    return CsvForm(
        separator, decimal, encoding, any("\n" in cell for cell in cells), before,
        None if names == tuple(rows[0]) else names, renamed,
    )  # fmt: skip


def _header(lines: Sequence[str]) -> tuple[int, str]:
    """How many lines are above the header, and what separates cells.

    A header has two names or more. What is above it has one cell: a title, perhaps filled up with separators.
    """
    said = SAID_SEPARATOR.fullmatch(lines[0].strip())
    if said is not None and len(lines) > 1:
        return 1, said[1]
    known = [(i, line, _separator(line)) for i, line in enumerate(lines[:MOST_ABOVE]) if line.strip()]
    for (i, line, separator), (_, after, _) in itertools.pairwise(known):
        cells = _cells(line, separator)
        # A hash before a name belongs to it; before a remark, what follows looks otherwise.
        remark = line.startswith("#") and len(cells) != len(_cells(after, _separator(after)))
        if sum(map(bool, cells)) > 1 and not remark:
            return i, separator
    return 0, _separator(known[0][1]) if known else SEPARATORS[0]


def _separator(line: str) -> str:
    bare = re.sub(r'"[^"]*"', "", line)
    return max(SEPARATORS, key=bare.count)


def _cells(line: str, separator: str) -> list[str]:
    return [cell.strip() for cell in next(csv.reader([line], delimiter=separator), [])]


def _names(header: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What columns are called, each in a way of its own and without blanks around; and what the header does not say."""
    names: list[str] = []
    renamed: list[str] = []
    for number, name in enumerate((cell.strip() for cell in header), 1):
        alone = name
        for again in itertools.count(2):
            if alone not in names:
                break
            alone = f"{name} ({again})" if name else f"column {number}" + "'" * (again - 2)
        if alone != name:
            renamed.append(alone)
        names.append(alone)
    return tuple(names), tuple(renamed)


def _encoding(raw: bytes) -> str:
    try:
        # A sample may end within a character.
        raw[: raw.rfind(b"\n") + 1].decode("utf8")
    except UnicodeDecodeError:
        return OLD
    return "utf8"


def read_csv(path: Path, types: Mapping[str, pa.DataType] | None = None) -> tuple[pa.Table, CsvForm]:
    """All of a file, and its form; ``types`` of columns are found out where they are not given."""
    form = csv_form(path)
    table = _read(path, form, types or {})
    if any(_is_binary(kind) for kind in table.schema.types) and form.encoding == "utf8":
        # Beyond the sample there is what UTF-8 does not have.
        form = replace(form, encoding=OLD)
        table = _read(path, form, types or {})
    return table, form


def _read(path: Path, form: CsvForm, types: Mapping[str, pa.DataType]) -> pa.Table:
    convert = form.convert_options(column_types=dict(types))
    told = watcher()
    try:
        if told is None:
            return pa.csv.read_csv(path, form.read_options(), form.parse_options(), convert)
        with _Counted(path, told) as file:
            stream = pa.input_stream(file, compression="gzip" if file.zipped else None)
            return pa.csv.read_csv(stream, form.read_options(), form.parse_options(), convert)
    except pa.ArrowInvalid as error:
        raise _uneven(path, form, error) from error


def first_block(path: Path, form: CsvForm) -> pa.Table:
    """The rows of the first block, which say what the columns hold."""
    # A reader of the file itself would have fetched many such blocks by the time that the first is there. One byte more
    # lets it know that the block is not the last, so that it ends with a whole row.
    with pa.input_stream(path, compression="detect") as stream:
        head = stream.read(FIRST_BYTES + 1)
    options = form.read_options(block_size=FIRST_BYTES, use_threads=False)
    try:
        with pa.csv.open_csv(pa.BufferReader(head), options, form.parse_options(), form.convert_options()) as file:
            # A file of a header alone has no block.
            return pa.Table.from_batches(list(itertools.islice(file, 1)), file.schema)
    except pa.ArrowInvalid as error:
        raise _uneven(path, form, error) from error


def csv_batches(
    path: Path, form: CsvForm, columns: Sequence[str], types: Mapping[str, pa.DataType]
) -> Iterator[pa.RecordBatch]:
    """Some columns, a block at a time."""
    convert = form.convert_options(include_columns=list(columns), column_types=dict(types))
    try:
        yield from pa.csv.open_csv(path, form.read_options(block_size=BLOCK_BYTES), form.parse_options(), convert)
    except pa.ArrowInvalid as error:
        raise _uneven(path, form, error) from error


def _uneven(path: Path, form: CsvForm, error: pa.ArrowInvalid) -> Exception:
    """Which row has more or fewer cells than the header; the error itself, where that is not what is wrong."""
    if "columns, got" not in str(error):
        return error
    found: list[Any] = []

    def keep(row: Any) -> str:
        found.append(row)
        return "error"

    with suppress(pa.ArrowInvalid):
        pa.csv.read_csv(
            path, form.read_options(use_threads=False), form.parse_options(invalid_row_handler=keep),
            form.convert_options(include_columns=[]),
        )  # fmt: skip
    if not found or found[0].number is None:
        return error
    row = found[0]
    return UsageError(
        f"Row {row.number - 1 - form.before} of {path.name} has {row.actual_columns} cells, and the header has "
        f"{row.expected_columns}: {row.text[:60]!r}.",
        "Mend that row; a text that holds the separator needs quotes.",
    )


def _is_binary(kind: pa.DataType) -> bool:
    return pa.types.is_binary(kind.value_type if pa.types.is_dictionary(kind) else kind)


class _Counted(io.RawIOBase):
    """A file that tells how much of it has been read."""

    def __init__(self, path: Path, told: Told):
        self.file, self.told = path.open("rb"), told
        self.what, self.size, self.done = f"Reading {path.name}", path.stat().st_size, 0
        self.zipped = self.file.peek(2)[:2] == GZIP

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        content = self.file.read(size)
        self.done += len(content)
        self.told(self.what, self.done / max(self.size, 1))
        return content

    def close(self) -> None:
        self.file.close()
        super().close()
