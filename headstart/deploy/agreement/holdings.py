"""A site's rows, in whatever form it has them: what they hold, and how they are stored once that is agreed."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headstart.data.partitions.dealing import factorized
from headstart.data.samples import Samples, TargetScale
from headstart.data.tables.dictionaries import coded_values, column_of
from headstart.data.tables.identifiers import read_columns
from headstart.data.tables.intake import RawRows, read_rows
from headstart.data.tables.labels import Labels, LabelSummary, Target, label_chunk
from headstart.data.tables.reading import Source, TableSource
from headstart.data.tables.roles import Roles, holding
from headstart.data.tables.sinks import Matrix
from headstart.deploy.agreement.layout import Layout
from headstart.deploy.agreement.terms import Terms
from headstart.errors import UsageError

__all__ = ["ArrayHolding", "Found", "Holding", "TableHolding", "text_mark"]


def text_mark(salt: str, text: str | None) -> str:
    """A mark for a text, which is equal for equal texts and does not say what the text is."""
    content = b"\0" if text is None else b"\1" + text.encode()
    return hashlib.sha256(salt.encode() + content).hexdigest()[:16]


@dataclass(frozen=True, eq=False)
class Found:
    """What a holding's rows are, beside their features."""

    columns: Mapping[str, np.ndarray | pa.DictionaryArray]
    """Whose each row is, and what groups or orders rows."""
    labels: "LabelSummary | tuple[str, ...]"
    """A summary, or the classes of a data set that has a list of them."""
    test: np.ndarray | None = None
    """Which rows are for tests, where the source says it."""


class Holding(ABC):
    """Rows of one or more clients."""

    @abstractmethod
    def survey(self, salt: str) -> dict[str, Any]:
        """Which columns there are and what they hold, or the shape of arrays."""

    @abstractmethod
    def found(self, features: Sequence[str], numeric: Sequence[str]) -> Found:
        """Read the rows; ``features`` are the columns that all sites agreed on."""

    @abstractmethod
    def described(self) -> dict[str, Any]:
        """Of the features that were read: where numbers lie, and which categories there are."""

    @abstractmethod
    def samples(self, layout: Layout) -> Samples:
        """The rows as all sites store them."""


class TableHolding(Holding):
    """A table, some of whose columns may be kept back."""

    def __init__(self, source: Source, terms: Terms, describe: Sequence[str] | None, least_count: int):
        if terms.label is None:
            raise UsageError("data.label is missing.", "Name the column to predict in the experiment.")
        self._source, self._terms, self._label = source, terms, terms.label
        self._describe, self._least_count = describe, least_count
        self._raw: RawRows | None = None
        for role, column in (("client", terms.client), ("label", self._label), ("group", terms.natural.group),
                             ("order", terms.natural.order)):  # fmt: skip
            if column is not None and column not in source.schema.names:
                raise UsageError(f"{source.name} has no column {column!r} ({role}).", "Give the table that column.")

    def survey(self, salt: str) -> dict[str, Any]:
        terms, schema = self._terms, self._source.schema
        used = {terms.client, self._label, terms.natural.group, terms.natural.order}
        if terms.choices.features is None:
            features = [name for name in schema.names if name not in used and self._willing(name)]
        else:
            features = [name for name in terms.choices.features if name in schema.names]
            for name in features:
                self._check_willing(name)
        kinds = {name: holding(schema.field(name).type) for name in [*features, *(n for n in used if n is not None)]}
        read = read_columns(self._source, terms.client, features if terms.choices.features is None else [])
        told = {
            name: {
                "marks": None if found.many else sorted(text_mark(salt, text) for text in found.owners),
                "pairs": 0 if found.many else found.pairs,
            }
            for name, found in read.texts.items()
        }
        return {
            "form": "table",
            "label": self._label,
            "columns": [[name, kinds[name]] for name in schema.names if name in kinds],
            "texts": told,
            "counting": {name: [c.low, c.high, c.sum] for name, c in read.counting.items() if c.possible},
            "rows": read.rows,
            "clients": len(read.clients),
        }

    def found(self, features: Sequence[str], numeric: Sequence[str]) -> Found:
        for name in features:
            self._check_willing(name)
        missing = [name for name in features if name not in self._source.schema.names]
        if missing:
            raise UsageError(f"{self._source.name} has no column {missing[0]!r}.", "Give the table that column.")
        natural = self._terms.natural
        roles = Roles(self._terms.client, self._label, tuple(features), natural.group, natural.order)
        rows = self._source.rows
        assert rows is not None
        room = Matrix(rows, len(features))
        self._raw = read_rows(self._source, roles, room, numeric, self._terms.choices.drop_missing)
        return Found(self._raw.columns, LabelSummary.of(self._raw.labels, self._source, self._label))

    def described(self) -> dict[str, Any]:
        assert self._raw is not None
        extents = {}
        for name, span in self._raw.spans.items():
            extent = span.extent()
            extents[name] = "wide" if extent.wide else [extent.level, extent.low, extent.high]
        return {"extents": extents, "categories": {name: self._categories(name) for name in self._raw.categories}}

    def samples(self, layout: Layout) -> Samples:
        assert layout.encoding is not None
        if self._raw is None:
            columns = layout.encoding.columns
            self.found([c.name for c in columns], [c.name for _, c in layout.encoding.numbers])
        raw, self._raw = self._raw, None  # what was read is overwritten
        assert raw is not None
        labels = Target(layout.classes, "", layout.offset).labels(raw.labels)
        return _samples(self._source.name, raw.settle(layout.encoding.columns), labels, raw.columns)

    def _categories(self, name: str) -> list[str]:
        """The categories of a column, without those that are too rare to be told."""
        assert self._raw is not None
        numbers = self._raw.categories[name].numbers
        if self._least_count <= 1:
            return sorted(numbers)
        j = self._raw.roles.features.index(name)
        counts = np.bincount(self._raw.x[:, j].astype(np.int64), minlength=len(numbers))
        return sorted(text for text, number in numbers.items() if counts[number] >= self._least_count)

    def _willing(self, name: str) -> bool:
        return self._describe is None or name in self._describe

    def _check_willing(self, name: str) -> None:
        if not self._willing(name):
            raise UsageError(
                f"{self._source.name}: column {name!r} is not among those that this site describes.",
                "Add it to describe in the site's section [data], or leave it out of the experiment with "
                "features = [...].",
            )


class ArrayHolding(Holding):
    """Samples that are arrays, such as images, and are taken as they are."""

    def __init__(
        self,
        name: str,
        x: np.ndarray,
        y: Any,
        columns: Mapping[str, Any],
        classes: tuple[str, ...] | None = None,
        test: np.ndarray | None = None,
    ):
        self._source = TableSource(name, pa.table({}))
        self._x, self._classes, self._test = x, classes, test
        self._y = y if classes is not None else [label_chunk(column_of(y, self._source, "y"))]
        self._columns = {
            column: values if isinstance(values, np.ndarray) else coded_values(values, self._source, column)
            for column, values in columns.items()
        }

    def survey(self, salt: str) -> dict[str, Any]:
        return {"form": "arrays", "shape": list(self._x.shape[1:]), "dtype": self._x.dtype.name}

    def found(self, features: Sequence[str], numeric: Sequence[str]) -> Found:
        labels = self._classes if self._classes is not None else LabelSummary.of(self._y, self._source, "y")
        return Found(self._columns, labels, self._test)

    def described(self) -> dict[str, Any]:
        return {}

    def samples(self, layout: Layout) -> Samples:
        if self._classes is not None:
            labels = Labels(np.asarray(self._y), layout.classes, "")
        else:
            labels = Target(layout.classes, "", layout.offset).labels(self._y)
        return _samples(self._source.name, self._x, labels, self._columns, self._test)


def _samples(
    name: str,
    x: np.ndarray,
    labels: Labels,
    columns: Mapping[str, np.ndarray | pa.DictionaryArray],
    test: np.ndarray | None = None,
) -> Samples:
    if labels.classes is not None and len(labels.y) and labels.y.min() < 0:
        raise UsageError(
            f"{name} has labels that are none of the agreed classes.",
            "Leave those rows out, or let the sites agree again.",
        )
    target = labels.target if labels.classes is None else TargetScale()
    return Samples(name, x, labels.y, labels.classes, test, columns, target=target)


def owners(found: Found, client: str, where: str) -> tuple[pa.Array, np.ndarray]:
    """The clients of some rows, and each row's number among them."""
    return factorized(found.columns[client], f"{where}: column {client}")
