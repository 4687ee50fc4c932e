"""A document as Rich prints it; figures are said in words."""

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text as RichText

from headstart.report.page.document import Block, Code, Document, Table, Text

__all__ = ["as_terminal"]

SHOWN = 12
"""Rows of a table."""


def as_terminal(document: Document) -> Group:
    """Sentences first, then every section."""
    parts: list[RenderableType] = [RichText(document.title, style="bold"), RichText(document.about, style="dim")]
    parts += [RichText(f"Note: {warning}", style="yellow") for warning in document.warnings]
    parts.append(RichText(""))
    parts += [Padding(RichText(f"• {sentence}"), (0, 0, 0, 1)) for sentence in document.sentences]
    for section in document.sections:
        parts += [RichText(""), RichText(section.title, style="bold underline")]
        parts += [_block(block) for block in section.blocks]
    return Group(*parts)


def _block(block: Block) -> RenderableType:
    if isinstance(block, Text):
        return Padding(RichText(block.words), (0, 0, 0, 1))
    if isinstance(block, Code):
        # What is longer than a command is in the record and on the page.
        short = block.text if "\n" not in block.text.strip() else "(on the page, and in run.json)"
        return Padding(RichText(f"{block.title}: {short}"), (0, 0, 0, 1))
    if isinstance(block, Table):
        return _table(block)
    return Padding(RichText.assemble((f"{block.title}. ", "bold"), block.alternative), (0, 0, 0, 1))


def _table(table: Table) -> Group:
    shown = RichTable(title=table.title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in table.columns:
        shown.add_column(column.title, justify="right" if column.number else "left")
    for row in table.rows[:SHOWN]:
        shown.add_row(*(RichText(cell) for cell in row))
    left = len(table.rows) - SHOWN
    notes = [*([f"… and {left:,} more rows on the page."] if left > 0 else []), *([table.note] if table.note else [])]
    return Group(shown, *(RichText(note, style="dim") for note in notes))
