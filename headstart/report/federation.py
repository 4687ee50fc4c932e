"""A federation as its event log shows it: rounds, sites, faults and bytes."""

from typing import TYPE_CHECKING

from rich import box
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    # It takes what only a federation needs to be installed, and the other tables and plots must not.
    from headstart.deploy.watching import Seen

__all__ = ["federation_table"]

UNITS = ("B", "kB", "MB", "GB", "TB")


def federation_table(seen: "Seen") -> RenderableType:
    """Where training is, one row per site, and the last faults."""
    rounds = f"round {seen.round} of {seen.rounds}" if seen.rounds else ""
    head = [
        f"[bold]{escape(seen.method)}[/]" if seen.method else "", rounds,
        f"{seen.clients} clients in {seen.seconds:.1f} s" if seen.clients else "",
        f"{_bytes(seen.bytes_up)} up, {_bytes(seen.bytes_down)} down", escape(seen.state),
    ]  # fmt: skip
    parts: list[RenderableType] = [Text.from_markup(" · ".join(part for part in head if part))]
    if seen.sites:
        table = Table(box=box.SIMPLE_HEAD)
        for name, justify in (("site", "left"), ("there", "left"), ("answers", "right"), ("left out", "right"),
                              ("last reason", "left")):  # fmt: skip
            table.add_column(name, justify=justify)  # type: ignore[arg-type]
        for name, site in sorted(seen.sites.items(), key=lambda item: _natural(item[0])):
            table.add_row(
                escape(name), "yes" if site.there else "[red]no[/]", str(site.answers), str(site.left_out or ""),
                escape(site.reason),
            )  # fmt: skip
        parts.append(table)
    if seen.fault_count:
        told = f"{seen.fault_count} fault{'s' * (seen.fault_count != 1)}" + (
            f", {seen.refused} of them refused calls" if seen.refused else ""
        )
        parts.append(Text(f"{told}; the last:", style="yellow"))
        parts.extend(Text(f"  {fault}") for fault in seen.faults)
    return Group(*parts)


def _bytes(number: float) -> str:
    for unit in UNITS[:-1]:
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} {UNITS[-1]}"


def _natural(name: str) -> tuple[int, str]:
    """So that site-10 comes after site-9."""
    return len(name), name
