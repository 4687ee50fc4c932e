"""The table of results in docs/theory.md names every public function, and nothing else."""

import importlib
import inspect
import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "theory.md"
MODULES = (
    "per_fedavg",
    "diminishing",
    "multi_step",
    "memory",
    "unbounded_memory",
    "local_memory",
    "compositional",
    "compositional_steps",
    "drift",
)


def listed():
    """Module and function of every row of the table."""
    section = PAGE.read_text(encoding="utf-8").partition("## Which function is which result")[2].partition("\n## ")[0]
    module = None
    for line in section.splitlines():
        cells = line.split("|")
        if len(cells) > 3 and "`" in cells[2]:
            named = re.search(r"`(\w+)`", cells[1])
            module = named[1] if named else module
            yield from ((module, name) for name in re.findall(r"`(\w+)`", cells[2]))


def test_the_table_is_complete():
    names = set(listed())
    for name in MODULES:
        module = importlib.import_module(f"headstart.theory.{name}")
        functions = {f for f in module.__all__ if inspect.isfunction(getattr(module, f))}
        assert {f for m, f in names if m == name} == functions, name
    assert {m for m, _ in names} == {*MODULES, "complexity"}
