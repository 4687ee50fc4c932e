"""A document as Rich prints it; figures are said in words."""

from collections.abc import Sequence

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text as RichText

from headstart.report.page.document import Block, Code, Document, Table, Text

__all__ = ["as_terminal"]

SHOWN = 12
"""Rows of a table."""
SHORT = 28
"""Letters of a cell that is not broken into lines."""
BETWEEN = 2
"""Letters between columns."""


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
        return _Table(block)
    return Padding(RichText.assemble((f"{block.title}. ", "bold"), block.alternative), (0, 0, 0, 1))


class _Table:
    """A table with as many of its columns as there is room for, none of them cut short; the others are named."""

    def __init__(self, table: Table):
        self.table = table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        widths = self._widths(options.max_width - 1)  # of the edge
        yield self._shown(widths)
        left, hidden = len(self.table.rows) - SHOWN, self.table.columns[len(widths) :]
        notes = [f"… and {left:,} more rows on the page."] if left > 0 else []
        if hidden:
            notes.append(f"On the page, or where there is more room: {', '.join(column.title for column in hidden)}.")
        yield from (RichText(note, style="dim") for note in [*notes, *filter(None, [self.table.note])])

    def _widths(self, room: int) -> list[int]:
        """Of the first columns: their cells and the words of their titles, and as far as there is room whole titles."""
        least, whole = [], []
        for place, column in enumerate(self.table.columns):
            cells = [len(row[place]) for row in self.table.rows[:SHOWN]]
            words = max(len(word) for word in column.title.split())
            least.append(max([words, *(cell for cell in cells if cell <= SHORT)]))
            whole.append(max([len(column.title), *cells]))
        number = len(least)
        while number > 1 and sum(least[:number]) + BETWEEN * number > room:
            number -= 1
        widths, spare = least[:number], room - sum(least[:number]) - BETWEEN * number
        for place in sorted(range(number), key=lambda place: whole[place] - least[place]):
            added = max(0, min(whole[place] - least[place], spare))
            widths[place] += added
            spare -= added
        return widths

    def _shown(self, widths: Sequence[int]) -> RichTable:
        shown = RichTable(title=self.table.title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for column, width in zip(self.table.columns, widths, strict=False):
            shown.add_column(column.title, justify="right" if column.number else "left", width=width, overflow="fold")
        for row in self.table.rows[:SHOWN]:
            shown.add_row(*(RichText(cell) for cell in row[: len(widths)]))
        return shown
