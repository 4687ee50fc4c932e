"""Fenced code blocks of Markdown documents."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("docs/**/*.md"), ROOT / "README.md"])

_FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<code>.*?)^```[ \t]*$", re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    """One fenced block: its language, the words after it, its code and the line where the code begins."""

    language: str
    words: tuple[str, ...]
    code: str
    line: int

    def option(self, name: str) -> str | None:
        """The value of ``name=value`` among the words."""
        return next((word.partition("=")[2] for word in self.words if word.startswith(f"{name}=")), None)


def blocks(document: Path) -> list[Block]:
    """Every fenced block of a document, in order."""
    text = document.read_text(encoding="utf-8")
    found = []
    for match in _FENCE.finditer(text):
        language, *words = match["info"].split() or [""]
        found.append(Block(language, tuple(words), match["code"], text.count("\n", 0, match.start()) + 2))
    return found
