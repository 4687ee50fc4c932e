"""A document before it has a form: sentences, sections, tables and figures, which HTML, Markdown and terminals show."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Block", "Code", "Column", "Document", "Figure", "Section", "Table", "Text"]


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    words: str


@dataclass(frozen=True)
class Code:
    """Something to copy: a command, or a file's text."""

    title: str
    text: str
    file: str | None = None
    """What it is called where it is saved."""


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    title: str
    number: bool = False
    """Whether it sorts by value and is aligned to the right."""


@dataclass(frozen=True)
class Table:
    """Cells as they are shown; those of a column of numbers can be read as numbers, but for words such as ``none``."""

    name: str
    """By which the page addresses it; unique in a document."""
    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    note: str = ""
    shown: int = 25
    """How many rows a page of it has; in Markdown and in terminals there is only the first."""


@dataclass(frozen=True)
class Figure:
    """A Vega-Lite chart, with its data by columns, which take a fraction of the room of rows."""

    name: str
    """By which the page addresses it, and what its files are called."""
    title: str
    caption: str
    alternative: str
    """What it shows, in words, for those who do not see it."""
    spec: Mapping[str, Any]
    data: Mapping[str, Mapping[str, Sequence[Any]]]
    """The columns of each data set that the chart names."""


Block = Text | Code | Table | Figure


@dataclass(frozen=True)
class Section:
    """A heading and what is under it."""

    name: str
    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Document:
    """All of it."""

    title: str
    about: str
    """One line: what was run, and when."""
    sentences: Sequence[str]
    """What was learned."""
    sections: Sequence[Section]
    warnings: Sequence[str] = field(default=())
    """What a reader must know before anything else, such as a run that has not ended."""

    def figures(self) -> list[Figure]:
        """Every figure, in order."""
        return [block for section in self.sections for block in section.blocks if isinstance(block, Figure)]

    def tables(self) -> list[Table]:
        """Every table, in order."""
        return [block for section in self.sections for block in section.blocks if isinstance(block, Table)]
