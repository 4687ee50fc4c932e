"""A document as Markdown."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from headstart.errors import UsageError
from headstart.report.page.document import Code, Document, Figure, Table, Text

__all__ = ["as_markdown", "write_markdown"]

WIDTH = 640


def as_markdown(document: Document, picture: Callable[[Figure], str | None] = lambda figure: None) -> str:
    """The document; ``picture`` gives the address of a figure's file, where there is one."""
    lines = [f"# {_words(document.title)}", "", _words(document.about), ""]
    lines += [f"> **Note:** {_words(warning)}\n" for warning in document.warnings]
    lines += [f"{number}. {_words(sentence)}" for number, sentence in enumerate(document.sentences, 1)]
    for section in document.sections:
        lines += ["", f"## {_words(section.title)}"]
        for block in section.blocks:
            lines.append("")
            if isinstance(block, Text):
                lines.append(_words(block.words))
            elif isinstance(block, Code):
                lines += [f"{_words(block.title)}:", "", *(f"    {line}" for line in block.text.splitlines())]
            elif isinstance(block, Table):
                lines += _table(block)
            else:
                address = picture(block)
                lines += [f"### {_words(block.title)}", "", _words(block.caption), ""]
                lines.append(
                    _words(block.alternative) if address is None else f"![{_words(block.alternative)}]({address})"
                )
    return "\n".join(lines) + "\n"


def write_markdown(document: Document, path: Path) -> None:
    """Write the document, and its figures as SVG files into a folder beside it."""
    folder = path.with_name(f"{path.stem}_figures")
    folder.mkdir(exist_ok=True)

    def picture(figure: Figure) -> str:
        (folder / f"{figure.name}.svg").write_text(as_svg(figure), encoding="utf-8")
        return f"{folder.name}/{figure.name}.svg".replace(" ", "%20")

    path.write_text(as_markdown(document, picture), encoding="utf-8")


def as_svg(figure: Figure) -> str:
    """A figure as a picture that needs no script."""
    try:
        import vl_convert
    except ImportError as error:
        raise UsageError("vl-convert is not installed.", "Install it: pip install 'headstart[report]'.") from error
    spec = {**figure.spec, "width": WIDTH, "background": "white", "datasets": _rows(figure)}
    text: str = vl_convert.vegalite_to_svg(json.dumps(spec))
    return text


def _rows(figure: Figure) -> dict[str, list[dict[str, Any]]]:
    return {
        name: [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        for name, columns in figure.data.items()
    }


def _table(table: Table) -> list[str]:
    def row(cells: Sequence[str]) -> str:
        return f"| {' | '.join(_words(cell).replace('|', chr(92) + '|') for cell in cells)} |"

    lines = [f"### {_words(table.title)}", "", row([column.title for column in table.columns])]
    lines.append(f"|{'|'.join('---:' if column.number else '---' for column in table.columns)}|")
    lines += [row(cells) for cells in table.rows[: table.shown]]
    if len(table.rows) > table.shown:
        lines += ["", f"… and {len(table.rows) - table.shown:,} more rows."]
    return [*lines, "", _words(table.note)] if table.note else lines


def _words(text: str) -> str:
    """Text whose signs are not taken for marks, but for code between backticks."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return _escaped(text.replace("`", "'"))
    return "".join(f"`{part}`" if place % 2 else _escaped(part) for place, part in enumerate(parts))


def _escaped(text: str) -> str:
    for sign in ("\\", "*", "_", "<", "[", "]", "#"):
        text = text.replace(sign, f"\\{sign}")
    return " ".join(text.splitlines())
