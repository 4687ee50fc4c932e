"""The section on how unlike clients are, and whether that explains who gains."""

from typing import Any

import numpy as np

from headstart.report.page.charts import figure, levels, lines, points, round_numbers
from headstart.report.page.clients import MOST_POINTS
from headstart.report.page.document import Block, Column, Figure, Section, Table, Text
from headstart.report.page.facts import ClientFacts, parts_of
from headstart.report.page.reading import Evidence
from headstart.statistics import Association, association, mean_interval

__all__ = ["likeness_section"]

PARTS = 4
"""Clients are grouped by size into so many parts."""
STRETCHES = 20
FEW_VALUES = 6
MORE = {"unlikeness": "the more unlike a client is", "size": "the more samples a client has"}


def likeness_section(evidence: Evidence, facts: ClientFacts) -> Section:
    """How unlike clients are by their labels, and who gains by that and by size."""
    blocks: list[Block] = []
    if facts.between is not None:
        blocks.append(
            Text(
                f"Two clients' labels are {facts.between:.2f} apart on average, as total variation: 0 is the same mix "
                "of labels, 1 is none in common."
            )
        )
    if facts.missing:
        blocks.append(Text(facts.missing))
    if facts.distances:
        blocks += _explained(
            evidence, facts, facts.distances, "unlikeness", "distance of a client's labels to everybody's"
        )
    if facts.sizes:
        blocks += _by_size(evidence, facts)
    if not facts.distances and not facts.sizes:
        blocks += _by_first_score(evidence)
    return Section("likeness", "How unlike clients are, and who gains", blocks)


def _explained(evidence: Evidence, facts: ClientFacts, column: Any, name: str, title: str) -> list[Block]:
    blocks: list[Block] = []
    for method in evidence.methods:
        if method.adapts:
            found = association(facts.of(method.clients, column), method.gains)
            blocks.append(Text(f"{method.title}: {_words(found, name)}"))
    drawn = _gain_figure(evidence, facts, column, name, title)
    return [*blocks, drawn] if drawn is not None else blocks


def _words(found: Association, name: str) -> str:
    if not np.isfinite(found.rho):
        return f"whether {name} goes with gain cannot be said, for one of them does not vary or clients are too few."
    interval = f"95% interval {found.low:+.2f} to {found.high:+.2f}"
    numbers = f"rank correlation {found.rho:+.2f}, {interval}, {found.number:,} clients"
    if not found.excludes_none:
        return f"{name} does not explain who gains ({numbers})."
    weak = "weakly, " if abs(found.rho) < 0.3 else ""
    return f"{MORE[name]}, the {'more' if found.rho > 0 else 'less'} it gains: {weak}{numbers}."


def _gain_figure(evidence: Evidence, facts: ClientFacts, column: Any, name: str, title: str) -> Figure | None:
    methods = [method for method in evidence.methods if method.adapts]
    if not methods:
        return None
    metric, order = evidence.metric, [method.title for method in evidence.methods]
    few = sum(len(method.clients) for method in methods) <= MOST_POINTS
    rows: dict[str, list[Any]] = {key: [] for key in ("client", "method", name, "gain")}
    if not few:
        del rows["client"]
    for method in methods:
        x, gains = facts.of(method.clients, column), metric.scale * method.gains
        both = np.isfinite(x) & np.isfinite(gains)
        if few:
            rows["client"] += method.clients[both].tolist()
            parts = [np.array([i]) for i in np.flatnonzero(both)]
        else:
            ranked = np.flatnonzero(both)[np.argsort(x[both], kind="stable")]
            parts = np.array_split(ranked, STRETCHES)
        rows["method"] += [method.title] * len(parts)
        rows[name] += round_numbers([x[part].mean() for part in parts])
        rows["gain"] += round_numbers([gains[part].mean() for part in parts])
    gain = f"gain in {metric.name}{', points' if metric.unit == '%' else ''}"
    if few:
        draw = levels if len(set(rows[name])) <= FEW_VALUES else points
        chart = draw(name, title, "gain", gain, order=order, tooltip=tuple(rows))
        caption = "A point is a client with one method."
    else:
        chart = lines(name, title, "gain", gain, order=order, marked=True)
        caption = f"Means over twentieths of all clients, by {name}."
    said = "; ".join(
        f"{m.title} has rank correlation {association(facts.of(m.clients, column), m.gains).rho:+.2f}" for m in methods
    )
    return figure(f"gain-by-{name}", f"Gain by {name}", caption, f"Gain by {name}: {said}.", chart, rows=rows)


def _by_size(evidence: Evidence, facts: ClientFacts) -> list[Block]:
    """Fairness across sizes: the smallest quarter of clients to the largest."""
    metric = evidence.metric
    sizes = np.array(list(facts.sizes.values()))
    if np.ptp(sizes) == 0:
        return [Text(f"All clients adapt on {sizes[0]:,} samples, so size explains nothing.")]
    rows = []
    for method in evidence.methods:
        mine = facts.of(method.clients, facts.sizes)
        for here in parts_of(mine, PARTS):
            before = mean_interval(method.scores[0][here]).mean if 0 in method.scores else np.nan
            after = mean_interval(method.scores[method.steps[-1]][here])
            gains = method.gains[here]
            rows.append(
                [
                    method.title,
                    _range(mine[here]),
                    str(len(here)),
                    metric.show(before),
                    metric.show(after.mean),
                    f"{metric.show(after.low)} to {metric.show(after.high)}" if after.known else "none",
                    str(int((gains < 0).sum())),
                ]
            )
    columns = [
        Column("method"), Column("samples of a client"), Column("clients", True), Column("shared model", True),
        Column("own model", True), Column("95% interval"), Column("lose", True),
    ]  # fmt: skip
    table = Table("sizes", "Fairness across sizes", columns, rows, f"Mean {metric.title}, all clients.")
    return [*_explained(evidence, facts, facts.sizes, "size", "samples that a client adapts on"), table]


def _by_first_score(evidence: Evidence) -> list[Block]:
    """All that a record has: how badly the shared model suits a client."""
    blocks: list[Block] = []
    for method in evidence.methods:
        if not method.adapts:
            continue
        before = method.scores[0] if not method.metric.higher_is_better else -method.scores[0]
        # A client that scored badly by chance gains by chance: half of its gain is the same number.
        found = association(before, method.gains)
        if np.isfinite(found.rho):
            blocks.append(
                Text(
                    f"{method.title}: clients whom the shared model suits badly gain "
                    f"{'more' if found.rho > 0 else 'less'} (rank correlation {found.rho:+.2f}, {found.number:,} "
                    "clients). "
                    "Part of this is arithmetic, for the score before is part of the gain."
                )
            )
    return blocks


def _range(values: np.ndarray) -> str:
    least, most = int(values.min()), int(values.max())
    return str(least) if least == most else f"{least} to {most}"
