"""A document as one page of HTML with its scripts, style and data inside."""

import json
from collections.abc import Iterator
from functools import cache
from importlib import resources
from itertools import groupby
from typing import Any

from headstart.errors import UsageError
from headstart.report.page.document import Block, Document, Figure, Section, Table

__all__ = ["as_html", "embedded", "library"]

EMBED = "window.headstartEmbed = vegaEmbed;"


def as_html(document: Document, live: str = "") -> str:
    """The page; ``live`` is a script that keeps it up to date."""
    return _template().render(
        document=document,
        kind=lambda block: type(block).__name__,
        grouped=_grouped,
        library=library(),
        style=_file("page.css"),
        script=_file("page.js"),
        live=live,
        data=embedded(_data(document)),
    )


def _grouped(section: Section) -> Iterator[tuple[bool, list[Block]]]:
    """The blocks of a section, with figures that follow each other together."""
    for figures, blocks in groupby(section.blocks, lambda block: isinstance(block, Figure)):
        yield figures, list(blocks)


@cache
def library() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script."""
    try:
        import vl_convert
    except ImportError as error:
        raise UsageError("vl-convert is not installed.", "Install it: pip install 'headstart[report]'.") from error
    return _script(vl_convert.javascript_bundle(snippet=EMBED))


@cache
def _template() -> Any:
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError as error:
        raise UsageError("Jinja is not installed.", "Install it: pip install 'headstart[report]'.") from error
    loader = PackageLoader("headstart.report.page", "templates")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template("page.html")


def _file(name: str) -> str:
    return (resources.files("headstart.report.page") / "templates" / name).read_text(encoding="utf-8")


def _script(text: str) -> str:
    """A script that cannot end its element early."""
    return text.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def embedded(data: Any) -> str:
    """Data for a script element; no text in it can end that element."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _data(document: Document) -> dict[str, Any]:
    blocks: list[Block] = [block for section in document.sections for block in section.blocks]
    return {
        "figures": {b.name: {"spec": b.spec, "data": b.data} for b in blocks if isinstance(b, Figure)},
        "tables": {
            b.name: {
                "numbers": [c.number for c in b.columns],
                "columns": [[row[i] for row in b.rows] for i in range(len(b.columns))],
                "shown": b.shown,
            }
            for b in blocks
            if isinstance(b, Table)
        },
    }
