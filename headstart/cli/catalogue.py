"""The list of algorithms, from their own signatures and docstrings."""

import inspect

from rich.table import Table

from headstart.algorithms import ALGORITHMS
from headstart.config import plan

__all__ = ["catalogue"]


def catalogue() -> Table:
    """Every algorithm: what it does, where it was published, and its settings with their defaults."""
    table = Table(show_lines=True)
    table.add_column("name", style="bold", no_wrap=True)
    table.add_column("what it does")
    table.add_column("paper")
    table.add_column("settings and defaults")
    for name, entry in ALGORITHMS.items():
        summary = (inspect.getdoc(entry.build) or "").partition("\n")[0]
        resolved = plan(entry.build, {}, "algorithm").resolved
        unset = [p for p in inspect.signature(entry.build).parameters if p not in resolved]
        settings = [f"{key} = {value}".lower() if isinstance(value, bool) else f"{key} = {value}"
                    for key, value in resolved.items()]  # fmt: skip
        table.add_row(name, summary.replace("``", ""), entry.paper, "\n".join([*settings, *unset]))
    return table
