"""For the reference: examples in docstrings are shown as code, up to the next empty line."""

from typing import Any

import griffe


class DoctestsAsCode(griffe.Extension):
    """Puts a fence around every stretch of lines that begins with ``>>>``."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    lines: list[str] = []
    inside = False
    for line in [*text.splitlines(), ""]:
        if line.startswith(">>>") and not inside:
            lines.append("```pycon")
            inside = True
        elif inside and not line.strip():
            lines.append("```")
            inside = False
        lines.append(line)
    return "\n".join(lines[:-1])
