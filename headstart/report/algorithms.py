"""The list of algorithms, from their own signatures and docstrings."""

import inspect
from collections.abc import Callable
from typing import Any

from rich.markup import escape
from rich.table import Table

from headstart.algorithms import ALGORITHMS
from headstart.config import choices, plan, settings_of

__all__ = ["algorithms_table"]


def algorithms_table() -> Table:
    """Every algorithm: what it does, where it was published, and its settings with their defaults."""
    table = Table(show_lines=True)
    table.add_column("name", style="bold", no_wrap=True)
    table.add_column("what it does")
    table.add_column("paper")
    table.add_column("settings and defaults")
    slots: dict[tuple[str, ...], str] = {}
    for name, entry in ALGORITHMS.items():
        summary = (inspect.getdoc(entry.build) or "").partition("\n")[0]
        table.add_row(name, summary.replace("``", ""), entry.paper, escape("\n".join(_settings(entry.build, slots))))
    if slots:
        table.caption = "\n".join(f"{title}: one of {', '.join(names)}" for names, title in slots.items())
        table.caption_justify = "left"
    return table


def _settings(build: Callable[..., Any], slots: dict[tuple[str, ...], str]) -> list[str]:
    """A line for every setting; parts that may be chosen but are not are named below the table, once."""
    resolved = plan(build, {}, "algorithm").resolved
    lines = [f"{key} = {_toml(value)}" for key, value in resolved.items()]
    for key in settings_of(build):
        if key in resolved:
            continue
        names = choices(build, key)
        if names:
            slots.setdefault(names, f"({key.rpartition('_')[2]})")
        lines.append(f"{key} {slots[names]}" if names else key)
    return lines


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + " }"
    return str(value)
