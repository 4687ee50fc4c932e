"""From what people have to what a model takes: the same reading and scaling as in training."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from math import isfinite, prod
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
import pyarrow as pa
from jax import Array

from headstart.config import plan
from headstart.data.samples import plain_examples, signed_images, unit_images
from headstart.data.tables import Encoding, source_of, stored_rows
from headstart.data.tables.encoding import MISSING, NumberColumn
from headstart.data.tables.pictures import IMAGE_ENDINGS, read_pictures
from headstart.data.tables.reading import Source, TableSource, streamed_file
from headstart.data.tables.stored import check_columns
from headstart.errors import UsageError
from headstart.problems import Examples

__all__ = ["ArrayInputs", "Block", "Inputs", "TableInputs", "inputs_from_json"]

BLOCK_ROWS = 4096
"""Rows that are predicted together."""

Scaling = Literal["unit", "signed", "plain", "none"]
SCALINGS: Mapping[Scaling, Callable[[Examples], Examples]] = {
    "unit": unit_images,
    "signed": signed_images,
    "plain": plain_examples,
    "none": lambda batch: batch,
}
"""Bytes as numbers in [0, 1] or [-1, 1], numbers as they are; ``none`` where the training code alone prepares them."""


class Block(NamedTuple):
    """Some rows, as the table has them and as they are stored."""

    table: pa.Table
    stored: np.ndarray


class Inputs(ABC):
    """What a model is given: how it is read, and how stored rows become inputs. Subclasses are frozen dataclasses."""

    @abstractmethod
    def blocks(self, data: Any) -> Iterator[Block]:
        """Rows in blocks, never all of a file at once."""

    @abstractmethod
    def labelled(self, data: Any, label: str | None) -> tuple[np.ndarray, pa.Array, Source]:
        """Stored rows, their labels as they are, and what they came from."""

    @abstractmethod
    def for_client(self, stored: np.ndarray) -> "Inputs":
        """The inputs of a client that adapts on these rows; the same, unless clients are scaled by themselves."""

    @abstractmethod
    def transform(self, batch: Examples) -> Examples:
        """From stored rows to what a loss takes."""

    @property
    @abstractmethod
    def row(self) -> tuple[tuple[int, ...], np.dtype]:
        """Shape and type of one stored row."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """As plain values, for a file."""

    @abstractmethod
    def lines(self) -> list[str]:
        """For people: one line for each thing the model looks at."""

    def features(self, stored: Array) -> Array:
        """A model's inputs."""
        return self.transform(Examples(stored, jnp.zeros(stored.shape[0], jnp.int32))).x


@dataclass(frozen=True)
class TableInputs(Inputs):
    """Columns of a table, encoded as training learned to."""

    encoding: Encoding

    def blocks(self, data: Any) -> Iterator[Block]:
        # Predictions stand beside the columns as they are written.
        is_file = isinstance(data, (str, Path))
        source = streamed_file(Path(data), self._texts, as_written=True) if is_file else source_of(data)
        start = 0
        check_columns(self.encoding, source)
        own = self._own(source) if self.encoding.per_client else None
        for batch in source.batches(source.schema.names):
            for first in range(0, len(batch), BLOCK_ROWS):
                rows = pa.Table.from_batches([batch.slice(first, BLOCK_ROWS)])
                part = _Part(source.name, rows, start=start, decimal=source.decimal)
                stored = stored_rows(self.encoding, part)
                yield Block(rows, stored if own is None else _standardised(own, stored))
                start += len(rows)

    def labelled(self, data: Any, label: str | None) -> tuple[np.ndarray, pa.Array, Source]:
        source = source_of(data, texts=self._texts)
        if label is None or label not in source.schema.names:
            named = "that holds the label" if label is None else f"{label!r}"
            raise UsageError(
                f"{source.name} has no column {named}, and adapting learns from labels.",
                f"Name the column with label (--label), one of: {', '.join(source.schema.names)}.",
            )
        labels = [column for batch in source.batches([label]) for column in batch.columns]
        if not sum(map(len, labels)):
            raise UsageError(f"{source.name} has no rows.", "Give rows with labels.")
        joined = pa.concat_arrays([_plain(chunk) for chunk in labels])
        return stored_rows(self.encoding, source), joined, source

    def for_client(self, stored: np.ndarray) -> "TableInputs":
        return TableInputs(_own_encoding(self.encoding, stored)) if self.encoding.per_client else self

    def transform(self, batch: Examples) -> Examples:
        return self.encoding(batch)

    @property
    def row(self) -> tuple[tuple[int, ...], np.dtype]:
        return (len(self.encoding.columns),), np.dtype(np.float32)

    def to_json(self) -> dict[str, Any]:
        return {"kind": "table", "encoding": self.encoding.to_json()}

    def lines(self) -> list[str]:
        said = []
        for column in self.encoding.columns:
            if isinstance(column, NumberColumn):
                how = "a number" + (", missing ones filled in and marked" if column.indicated else "")
            else:
                how = (
                    f"one of {len(column.known)}: " + ", ".join(column.known[:6]) + (", …" if column.known[6:] else "")
                )
            said.append(f"`{column.name}`: {how}")
        return said

    @property
    def _texts(self) -> list[str]:
        """Columns that are texts even in a file where all of them could be numbers."""
        return [column.name for _, column in self.encoding.categories]

    def _own(self, source: Source) -> Encoding:
        """The encoding of the one client whose rows these are."""
        return _own_encoding(self.encoding, stored_rows(self.encoding, source))


@dataclass(frozen=True)
class ArrayInputs(Inputs):
    """Arrays of one shape, such as images."""

    shape: tuple[int, ...]
    dtype: str
    scaling: Scaling = "plain"
    prepared_by: str | None = None
    """The training code that prepares inputs, where no scaling here does."""

    def blocks(self, data: Any) -> Iterator[Block]:
        x, table = self._read(data)
        for first in range(0, len(x), BLOCK_ROWS):
            yield Block(table.slice(first, BLOCK_ROWS), x[first : first + BLOCK_ROWS])

    def labelled(self, data: Any, label: str | None) -> tuple[np.ndarray, pa.Array, Source]:
        x, table = self._read(data)
        name = "y" if "y" in table.column_names else "label"
        if name not in table.column_names or not len(x):
            raise UsageError(
                "Adapting learns from labels, and there are none.",
                "Give {'x': samples, 'y': labels}, an npz file with x and y, or a folder label/image.png.",
            )
        return x, table.column(name).combine_chunks(), TableSource("the data", table)

    def for_client(self, stored: np.ndarray) -> "ArrayInputs":
        return self

    def transform(self, batch: Examples) -> Examples:
        return SCALINGS[self.scaling](batch)

    @property
    def row(self) -> tuple[tuple[int, ...], np.dtype]:
        return self.shape, np.dtype(self.dtype)

    def to_json(self) -> dict[str, Any]:
        said = {field.name: getattr(self, field.name) for field in fields(self)}
        return {"kind": "array", **{k: v for k, v in said.items() if v is not None}, "shape": list(self.shape)}

    def lines(self) -> list[str]:
        ranges = {"unit": ", scaled to [0, 1]", "signed": ", scaled to [-1, 1]"}
        left_out = f", prepared by {self.prepared_by}, which is not in this file" if self.prepared_by else ""
        return [f"arrays of {list(self.shape)} {self.dtype}{ranges.get(self.scaling, '')}{left_out}"]

    def _read(self, data: Any) -> tuple[np.ndarray, pa.Table]:
        if isinstance(data, (str, Path)):
            x, table = _file(Path(data))
        elif isinstance(data, Mapping) and "x" in data:
            x, table = np.asarray(data["x"]), pa.table({"y": pa.array(data["y"])} if "y" in data else {})
        else:
            x, table = np.asarray(data), pa.table({})
        if x.dtype.kind not in "biuf" or x.shape[1:] != self.shape:
            if x.dtype.kind in "biuf" and x.ndim and prod(x.shape[1:]) == prod(self.shape):
                x = x.reshape(len(x), *self.shape)
            else:
                raise UsageError(
                    f"The data are {x.dtype}{list(x.shape)}, but the model takes [samples, "
                    f"{', '.join(map(str, self.shape))}].",
                    "Give samples of that shape.",
                )
        if x.dtype.kind == "f" and not np.isfinite(x).all():
            raise UsageError("The data hold a NaN or an infinity.", "Leave such samples out.")
        if self.dtype == "uint8" and x.dtype != np.uint8:
            raise UsageError(f"The model takes bytes (0 to 255), and these are {x.dtype}.", "Give pixels as uint8.")
        if not table.num_columns:
            table = pa.table({"row": np.arange(1, len(x) + 1)})
        return x.astype(self.dtype), table


def inputs_from_json(content: Mapping[str, Any]) -> Inputs:
    """Inputs from plain values, which are checked."""
    content = dict(content)
    kind = content.pop("kind", None)
    if kind == "array":
        inputs: ArrayInputs = plan(ArrayInputs, content, "inputs").build()
        if inputs.dtype not in ("uint8", "int32", "int64", "float32", "float64") or any(n < 1 for n in inputs.shape):
            raise UsageError(f"inputs.dtype = {inputs.dtype!r} or inputs.shape is not one of a model's.")
        return inputs
    if kind != "table" or not isinstance(content.get("encoding"), Mapping):
        raise UsageError(f"inputs.kind = {kind!r} is not known.")
    encoding = Encoding.from_json(content["encoding"])
    if encoding.limit is not None:
        _check_setting("limit", encoding.limit, "float")
    for column in encoding.columns:
        for field in fields(column):
            _check_setting(f"{column.name!r:.50}.{field.name}", getattr(column, field.name), field.type)
    return TableInputs(encoding)


def _check_setting(where: str, value: Any, kind: Any) -> None:
    """Whether a column's setting is of its type: texts, finite numbers, truth values, lists of texts."""
    good = {
        "str": lambda: isinstance(value, str),
        "bool": lambda: isinstance(value, bool),
        "float": lambda: isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value),
    }
    name = kind if isinstance(kind, str) else getattr(kind, "__name__", "")
    if isinstance(value, tuple):
        fits = all(isinstance(item, (str, int, float)) for item in value)
    else:
        fits = good[name]() if name in good else value is None or isinstance(value, (str, bool, int, float))
    if not fits:
        raise UsageError(f"inputs: {where} is not what a column has there.")


@dataclass(frozen=True, eq=False)
class _Part(TableSource):
    """Some rows of a source, which know where in it they are."""

    start: int = 0
    decimal: str = "."

    def place(self, row: int) -> str:
        return super().place(self.start + row)


def _plain(values: pa.Array) -> pa.Array:
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values


def _own_encoding(encoding: Encoding, stored: np.ndarray) -> Encoding:
    """Numbers scaled with the mean and deviation of one client's rows, as training does it for every client."""
    columns = list(encoding.columns)
    for j, column in encoding.numbers:
        values = stored[:, j].astype(np.float64)
        values = values[values != MISSING]
        mean, deviation = (float(values.mean()), float(values.std())) if len(values) else (0.0, 0.0)
        columns[j] = replace(column, center=mean, scale=1 / deviation if deviation else 0.0, fill=mean)
    return replace(encoding, columns=tuple(columns), per_client=False)


def _standardised(encoding: Encoding, stored: np.ndarray) -> np.ndarray:
    """Stored rows as training stores them where every client has a mean and deviation of its own."""
    stored = stored.copy()
    for j, column in encoding.numbers:
        values = stored[:, j].astype(np.float64)
        stored[:, j] = np.where(values == MISSING, MISSING, (values - column.center) * column.scale)
    return stored


def _file(path: Path) -> tuple[np.ndarray, pa.Table]:
    """Samples from an npz file with x and perhaps y, or from a folder of images, which may lie in folders of labels."""
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.suffix.lower() in IMAGE_ENDINGS)
        if not files:
            raise UsageError(f"{path} has no images.", f"Give images ({', '.join(IMAGE_ENDINGS)}).")
        columns = {"file": [str(file.relative_to(path)) for file in files]}
        if all(file.parent != path for file in files):
            columns["label"] = [file.parent.name for file in files]
        return read_pictures(files), pa.table(columns)
    try:
        with np.load(path, allow_pickle=False) as content:
            columns = {"y": content["y"]} if "y" in content.files else {}
            return content["x"], pa.table(columns)
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise UsageError(
            f"{path} cannot be read: {error}.", "Give an npz file with an array x, or a folder of images."
        ) from error
