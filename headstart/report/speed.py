"""What `headstart bench` found, as a table for a terminal and as the tables of a page."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.table import Table

from headstart.bench import Bench
from headstart.bench.cases import LOOP, OURS, VMAP
from headstart.bench.turns import DISTURBED

__all__ = ["speed_page", "speed_table"]

BEGIN, END = "<!-- begin: made by `headstart bench --page` -->", "<!-- end -->"
SCALES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))
ABSENT = "-"


def speed_table(suite: str, found: Mapping[str, Any]) -> Table:
    """The cases of one suite, in 80 columns."""
    table = Table(title=f"{suite}: {found['title']}", title_justify="left", width=80, padding=(0, 0, 0, 1), box=None)
    for name in ("case", "ours", "loop", "vmap", "of peak", "bar"):
        table.add_column(name, justify="left" if name in ("case", "bar") else "right", overflow="fold")
    for case in found["cases"]:
        seconds = case["seconds"]
        bars = "\n".join(f"[{'green' if bar['holds'] else 'red'}]{_judged(bar)}[/]" for bar in _decided(case))
        table.add_row(
            case["case"], duration(seconds.get(OURS)), duration(seconds.get(LOOP)), duration(seconds.get(VMAP)),
            _share(case["share"]), bars,
        )  # fmt: skip
    return table


def speed_page(text: str, found: Bench) -> str:
    """The page with its tables made anew from a record: all between two marks is replaced."""
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return "\n".join((head + BEGIN, "", *_page(found), "", END + tail))


def _page(found: Bench) -> Iterator[str]:
    machine = found.machine
    packages = ", ".join(
        f"{label} {machine[name]}" for name, label in (("jax", "JAX"), ("torch", "PyTorch")) if machine.get(name)
    )
    yield f"Measured {machine['when']} UTC on {machine['cores']} cores of {machine['processor']}; {packages}."
    for name, suite in found.suites.items():
        yield f"\n### {name}\n\n{suite['title']}.\n"
        others = _other_sides(suite)
        header = ["case", "headstart", "PyTorch loop", "PyTorch vmap", *others]
        header += ["GFLOP", "share of the matrix product", "compiling", "peak memory", "bars"]
        yield f"| {' | '.join(header)} |\n|{'---|' * len(header)}"
        for case in suite["cases"]:
            seconds = case["seconds"]
            sides = [duration(seconds.get(side)) for side in (OURS, LOOP, VMAP, *others)]
            flops = ABSENT if case["flops"] is None else f"{case['flops'] / 1e9:.3g}"
            peak = ABSENT if case["peak_bytes"] is None else f"{case['peak_bytes'] / 1e9:.2f} GB"
            bars = (
                "; ".join(("" if bar["holds"] else "**missed:** ") + _judged(bar) for bar in _decided(case)) or ABSENT
            )
            row = [f"{case['case']}, per {case['unit']}", *sides, flops, _share(case["share"])]
            yield f"| {' | '.join([*row, duration(case['compile_seconds']), peak, bars])} |"
        yield from _notes(suite)


def _notes(suite: Mapping[str, Any]) -> Iterator[str]:
    disturbed = [case for case in suite["cases"] if case["disturbed"] > DISTURBED]
    if disturbed:
        named = "; ".join(f"{case['case']} ({case['disturbed']:.0%})" for case in disturbed)
        yield f"\nNot to be trusted, for other processes took so much of the machine meanwhile: {named}."
    for note in dict.fromkeys(note for case in suite["cases"] for note in case["notes"]):
        yield f"\n{note[0].upper()}{note[1:]}."


def _other_sides(suite: Mapping[str, Any]) -> list[str]:
    """Sides of ours that a case is held against."""
    names = (name for case in suite["cases"] for name in case["seconds"] if name not in (OURS, LOOP, VMAP))
    return list(dict.fromkeys(names))


def _decided(case: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [bar for bar in case["bars"] if bar["holds"] is not None]


def _judged(bar: Mapping[str, Any]) -> str:
    """What was reached, and what is asked."""
    value, limit = _shown(bar, bar["value"]), _shown(bar, bar["limit"])
    against = "" if bar["against"] is None else f" {'' if bar['quantity'] == 'speedup' else 'of '}{bar['against']}"
    goal = "" if bar["goal"] is None else f", goal {_shown(bar, bar['goal'])}"
    sign = ">=" if bar["quantity"] in ("share", "speedup") else "<="
    return f"{value}{against} ({sign} {limit}{goal})"


def _shown(bar: Mapping[str, Any], value: float) -> str:
    if bar["quantity"] == "share":
        return f"{value:.0%}"
    if bar["quantity"] == "seconds":
        return duration(value)
    if bar["quantity"] == "bytes":
        return f"{value / 1e9:.3g} GB"
    return f"{value:.3g}x"


def _share(share: float | None) -> str:
    return ABSENT if share is None else f"{share:.0%}"


def duration(seconds: float | None) -> str:
    """In the unit that fits."""
    if seconds is None:
        return ABSENT
    scale, unit = next(((s, u) for s, u in SCALES if seconds >= s), SCALES[-1])
    return f"{seconds / scale:.3g} {unit}"
