"""The graph of imports is the one that docs/design.md has: whatever imports another room is listed there."""

import ast
import re
from collections import defaultdict
from pathlib import Path

from tests.docs.fences import ROOT

PACKAGE = ROOT / "headstart"
FRONT = "the package itself"
ROW = re.compile(r"^\| `(\w+)` \|[^|]*\|([^|]*)\|$", re.MULTILINE)


def table() -> dict[str, set[str]]:
    """Every room of the layout's table, in order, with what it may import."""
    text = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    layout = text[text.index("## Layout") : text.index("## Experiments")]
    allowed = {}
    for room, cell in ROW.findall(layout):
        allowed[room] = set(re.findall(r"`(\w+)`", cell)) | ({FRONT} if FRONT in cell else set())
    return allowed


def imported(path: Path) -> set[str]:
    """The rooms that a file imports, in functions and for type checkers too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}, line {node.lineno}: import by the full name"
            direct = node.module == "headstart"
            names = [f"headstart.{alias.name}" for alias in node.names] if direct else [node.module or ""]
        else:
            continue
        for name in names:
            front, _, rest = name.partition(".")
            if front == "headstart":
                room = rest.partition(".")[0]
                found.add(room if _is_room(room) else FRONT)
    return found


def _is_room(name: str) -> bool:
    return bool(name) and ((PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").is_file() or name in table())


def graph() -> dict[str, dict[str, Path]]:
    """For every room, the rooms that it imports and a file that does so."""
    arrows: dict[str, dict[str, Path]] = defaultdict(dict)
    for path in sorted(PACKAGE.rglob("*.py")):
        room = path.relative_to(PACKAGE).with_suffix("").parts[0]
        if room in ("__init__", "__main__", "_version"):
            continue  # the front, which imports what is asked of it, and its door to the command line
        arrows[room] |= {other: path for other in imported(path) if other != room}
    return dict(arrows)


def test_every_room_is_in_the_table() -> None:
    assert len(table()) > 10
    assert not set(graph()) - set(table()), "rooms that docs/design.md does not list"


def test_every_arrow_is_in_the_table() -> None:
    allowed = table()
    for room, arrows in graph().items():
        for other, path in arrows.items():
            assert other in allowed[room], f"{path.relative_to(ROOT)} imports {other}: docs/design.md does not list it"


def test_imports_point_up_the_table() -> None:
    above: set[str] = {FRONT}
    for room, others in table().items():
        assert others <= above, f"{room} may import {sorted(others - above)}, which stand below it"
        above.add(room)


def test_the_front_imports_nothing_before_it_is_used() -> None:
    names = imported(PACKAGE / "__init__.py")
    assert not names, names
