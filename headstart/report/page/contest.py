"""A report on a comparison: means and intervals, paired tests, ranks, and who wins for which clients."""

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from headstart.comparisons import Comparison, Pair
from headstart.report.page.charts import LARGE, altair, figure, lines, round_numbers, source
from headstart.report.page.document import Block, Column, Document, Figure, Section, Table, Text
from headstart.report.page.facts import ClientFacts, facts_of, parts_of
from headstart.report.page.making import Report
from headstart.report.page.sentences import against, steps_words, value

__all__ = ["comparison_report"]

FEW = 4
PARTS = 3
"""Clients are grouped into so many by size and by unlikeness."""


def comparison_report(comparison: Comparison) -> Report:
    """What a comparison has found: `hs.report.comparison_report(hs.compare("my.toml")).save("compared.html")`."""
    facts = ClientFacts(missing="The clients' data is not at hand.")
    if comparison.federation is not None:
        facts = facts_of(comparison.federation)
    entries, seeds = comparison.entries, comparison.seeds
    on = f" on {comparison.data}" if comparison.data else ""
    clients = f"{len(comparison.clients):,} {'new ' if comparison.judged == 'new' else ''}clients"
    return Report(
        Document(
            title=f"{len(entries)} methods compared at equal {comparison.at}{on}",
            about=f"{_seeds(len(seeds))} · {clients} · {comparison.metric.name} {_after(comparison)}",
            sentences=_learned(comparison),
            sections=[_means(comparison), _tests(comparison), _ranks(comparison), _winners(comparison, facts),
                      _settings(comparison)],
        )
    )  # fmt: skip


def _seeds(number: int) -> str:
    return f"{number} seed{'s' if number > 1 else ''}"


def _after(comparison: Comparison) -> str:
    """When clients are judged."""
    numbers = {entry.steps[-1] for entry in comparison.entries}
    return f"after {steps_words(*numbers)}" if len(numbers) == 1 else "after each method's own number of steps"


def _learned(comparison: Comparison) -> list[str]:
    metric, order, means = comparison.metric, comparison.order(), comparison.means()
    best, second = (comparison.entries[i] for i in order[:2])
    mean = means[order[0]]
    over = (
        f"95% interval over {_seeds(mean.number)} {metric.show(mean.low)} to {metric.show(mean.high)}"
        if mean.known
        else "one seed, so that nothing is known about noise"
    )
    first = (
        f"At equal {comparison.at} {best.title} has the best mean {metric.name}: {value(metric, mean.mean)} ({over})."
    )
    pairs = {frozenset((pair.first, pair.second)): pair for pair in comparison.over_seeds()}
    near = pairs[frozenset((best.title, second.title))]
    gap = near.test.difference.mean if near.first == best.title else -near.test.difference.mean
    alike = [p for p in pairs.values() if best.title in (p.first, p.second) and not p.differs()]
    others = [pair.second if pair.first == best.title else pair.first for pair in alike]
    apart = f"It is {against(metric, gap, f'{second.title}, the next', beside=mean.mean)}"
    if not len(comparison.seeds) > 1:
        verdict = "with one seed it cannot be said whether that is chance"
    elif others:
        verdict = f"over these seeds it cannot be told from {', '.join(others)} (p ≥ 0.05 after Holm's correction)"
    else:
        verdict = "over these seeds it differs from every other method (p < 0.05 after Holm's correction)"
    wins = comparison.best_for()
    entries = comparison.entries
    shares = [int((wins == i).sum()) for i in range(len(entries))]
    most, ties = max(shares), int((wins < 0).sum())
    who = [entry.title for entry, share in zip(entries, shares, strict=True) if share == most]
    each = f"{', '.join(who)} are each" if len(who) > 1 else f"{who[0]} is"
    tied = f"; for {ties:,} several tie" if ties else ""
    third = f"{each} the best method for {most:,} of {len(wins):,} clients{tied}."
    third = third if most else "For no client is one method better than all others."
    lost = [entry.title for entry in entries if comparison.diverged(entry)]
    if lost:
        third += f" {', '.join(lost)} diverged with some of the seeds."
    return [first, f"{apart}: {verdict}.", third]


def _means(comparison: Comparison) -> Section:
    metric, means = comparison.metric, comparison.means()
    columns = [
        Column("method"), Column(f"mean {metric.title}", True), Column("95% interval over seeds"),
        Column("seeds", True), Column("diverged", True),
        Column("deviation over seeds", True), Column("worst 10% of clients", True), Column("shared model", True),
        Column("steps of adaptation", True),
        Column("rounds", True), Column("samples", True), Column("MB", True),
    ]  # fmt: skip
    rows: list[list[str]] = []
    drawn: dict[str, list[Any]] = {name: [] for name in ("method", "mean", "low", "high")}
    for place in comparison.order():
        entry, mean = comparison.entries[place], means[place]
        scores, shared = comparison.scores(entry), math.nan
        there = np.isfinite(scores).all(axis=1)
        per_client = np.sort(scores[there].mean(axis=0)) if there.any() else np.full(1, math.nan)
        per_client = per_client if metric.higher_is_better else per_client[::-1]
        if 0 in entry.steps and there.any():
            shared = comparison.scores(entry, steps=0)[there].mean()
        rows.append(
            [
                entry.title,
                metric.show(mean.mean),
                f"{metric.show(mean.low)} to {metric.show(mean.high)}" if mean.known else "none",
                str(len(entry.seeds)),
                str(comparison.diverged(entry)),
                metric.show(float(np.nanstd(scores.mean(axis=1), ddof=1)), beside=mean.mean) if mean.known else "none",
                metric.show(float(per_client[: max(1, len(per_client) // 10)].mean())),
                metric.show(float(shared)),
                str(entry.steps[-1]),
                f"{entry.spent.rounds:.0f}",
                f"{entry.spent.samples:.0f}",
                f"{entry.spent.bytes / 1e6:.2f}",
            ]
        )
        drawn["method"].append(entry.title)
        for name, number in zip(("mean", "low", "high"), mean[:3], strict=True):
            drawn[name] += round_numbers([metric.scale * number])
    lost = [entry.title for entry in comparison.entries if comparison.diverged(entry)]
    note = f"Seeds of {', '.join(lost)} have diverged: they come last, and their numbers are of the other seeds."
    note = note if lost else ""
    blocks: list[Block] = [Table("means", "Means at equal " + comparison.at, columns, rows, note)]
    blocks.append(_intervals(comparison, drawn))
    if any(len(entry.rounds) > 1 for entry in comparison.entries):
        blocks.append(_curves(comparison))
    return Section("means", "Means and intervals", blocks)


def _intervals(comparison: Comparison, drawn: dict[str, list[Any]]) -> Figure:
    alt, metric = altair(), comparison.metric
    base = alt.Chart(source()).encode(y=alt.Y("method:N", sort=drawn["method"], title=None))
    scale, axis = alt.Scale(zero=False), alt.Axis(tickCount=8, labelExpr=LARGE)
    x = {"title": f"mean {metric.title}", "scale": scale, "axis": axis}
    known = any(low is not None for low in drawn["low"])
    ends = ["low:Q", "high:Q"] if known else []
    chart = base.mark_point(filled=True, size=70, opacity=1).encode(
        x=alt.X("mean:Q", **x), tooltip=["method:N", "mean:Q", *ends]
    )
    if known:
        rule = base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q", **x), x2="high:Q", color=alt.value("gray"))
        chart = alt.layer(rule, chart)
    caption = "Points are means over clients and seeds, lines 95% intervals."
    if not known:
        caption = "Points are means over clients; one seed was run, so there are no intervals."
    said = "; ".join(f"{title} {mean}" for title, mean in zip(drawn["method"], drawn["mean"], strict=True))
    return figure(
        "intervals", "Means with intervals over seeds" if known else "Means", caption,
        f"Points from the best to the worst: {said}.", chart, rows=drawn,
    )  # fmt: skip


def _curves(comparison: Comparison) -> Figure:
    metric = comparison.metric
    rows: dict[str, list[Any]] = {name: [] for name in ("method", "spent", "mean")}
    band: dict[str, list[Any]] = {name: [] for name in ("method", "spent", "low", "high")}
    for entry in comparison.entries:
        share = 100 * entry.rounds / max(entry.rounds[-1], 1)
        mean, spread = entry.curve.mean(axis=1), entry.curve.std(axis=1)
        for columns in (rows, band):
            columns["method"] += [entry.title] * len(share)
            columns["spent"] += round_numbers(share)
        rows["mean"] += round_numbers(metric.scale * mean)
        band["low"] += round_numbers(metric.scale * (mean - spread))
        band["high"] += round_numbers(metric.scale * (mean + spread))
    # More bands hide each other, and of one seed there is none.
    few = len(comparison.entries) <= FEW and len(comparison.seeds) > 1
    said = "; ".join(f"{e.title} ends at {value(metric, float(e.curve[-1].mean()))}" for e in comparison.entries)
    chart = lines(
        "spent", f"share of the budget of {comparison.at} spent, %", "mean", f"mean {metric.title}",
        order=[entry.title for entry in comparison.entries], band=few,
    )  # fmt: skip
    caption = "Means over judged clients and seeds; a line ends where a seed has diverged."
    if few:
        caption += " Bands are one deviation over seeds."
    return figure(
        "curves", f"Mean {metric.name} by budget spent", caption, f"Lines: {said}.", chart, rows=rows,
        **({"band": band} if few else {}),
    )  # fmt: skip


def _tests(comparison: Comparison) -> Section:
    columns = [
        Column("better"), Column("than"), Column("by", True), Column("verdict"), Column("95% interval"),
        Column("p", True), Column("p after Holm", True), Column("better on", True), Column("worse on", True),
    ]  # fmt: skip
    blocks: list[Block] = []
    for name, title, pairs, what in (
        ("seeds", "Over seeds", comparison.over_seeds(), "Student's paired test on means over clients"),
        ("clients", "Over clients", comparison.over_clients(), "Wilcoxon's signed ranks on means over seeds"),
    ):
        p_of = (lambda pair: pair.test.t_p) if name == "seeds" else (lambda pair: pair.test.rank_p)
        rows = [_pair_row(comparison, pair, p_of(pair)) for pair in pairs]
        blocks.append(Table(f"tests-{name}", title, columns, rows, f"{what}; {len(pairs)} pairs, corrected by Holm."))
    if len(comparison.seeds) < 2:
        blocks.append(Text("One seed was run, so nothing can be tested over seeds."))
    note = "Clients of one federation share their models, so tests over clients are surer than they should be."
    return Section("tests", "Paired tests", [*blocks, Text(note)])


def _pair_row(comparison: Comparison, pair: Pair, p: float) -> list[str]:
    metric, difference = comparison.metric, pair.test.difference
    mean = comparison.means()[comparison.order()[0]].mean
    turned = difference.mean < 0
    low, high = (-difference.high, -difference.low) if turned else (difference.low, difference.high)
    on = (pair.test.below, pair.test.above) if turned else (pair.test.above, pair.test.below)
    return [
        pair.second if turned else pair.first,
        pair.first if turned else pair.second,
        metric.show(abs(difference.mean), beside=mean),
        "differs" if pair.differs() else "may be chance",
        f"{metric.show(low, beside=mean)} to {metric.show(high, beside=mean)}" if difference.known else "none",
        _p(p),
        _p(pair.p),
        *map(str, on),
    ]


def _p(value: float) -> str:
    return "none" if math.isnan(value) else f"{value:.4f}" if value >= 0.0001 else f"{value:.1e}"


def _ranks(comparison: Comparison) -> Section:
    """The critical-difference picture."""
    ranking, titles = comparison.ranking(), [entry.title for entry in comparison.entries]
    order = np.argsort(ranking.ranks, kind="stable")
    alike = ranking.alike()
    height = len(alike) + len(order)
    rows = {
        "method": [titles[i] for i in order],
        "rank": round_numbers(ranking.ranks[order]),
        "place": [len(order) - place for place in range(len(order))],
        "label": [f"{titles[i]}, {ranking.ranks[i]:.2f}" for i in order],
    }
    joined: dict[str, list[Any]] = {
        "from": round_numbers([min(ranking.ranks[list(group)]) - 0.03 for group in alike]),
        "to": round_numbers([max(ranking.ranks[list(group)]) + 0.03 for group in alike]),
        "place": [len(order) + 0.7 + place * 0.6 for place in range(len(alike))],
    }
    words = [f"{', '.join(titles[i] for i in group)} cannot be told apart." for group in alike] or [
        "All methods differ."
    ]
    p = (
        ""
        if math.isnan(ranking.friedman_p)
        else f" Friedman's test of whether any differs: p = {_p(ranking.friedman_p)}."
    )
    said = ", ".join(f"{titles[i]} {ranking.ranks[i]:.2f}" for i in order)
    picture = figure(
        "ranks",
        "Mean ranks and the critical difference",
        f"Mean rank over {ranking.blocks:,} clients, 1 is best. Bars join methods that Nemenyi's test cannot tell "
        f"apart: those nearer than {ranking.critical_difference:.2f}.",
        f"Mean ranks: {said}. {' '.join(words)}",
        _rank_chart(len(order), height),
        rows=rows,
        joined=joined,
    )
    return Section("ranks", "Ranks", [picture, Text(" ".join(words) + p)])


def _rank_chart(methods: int, height: float) -> Any:
    alt = altair()
    axis = alt.Axis(tickMinStep=0.5)
    x = alt.X("rank:Q", title="mean rank", axis=axis, scale=alt.Scale(domain=[0.8, methods + 0.2], nice=False))
    y = alt.Y("place:Q", axis=None, scale=alt.Scale(domain=[0.4, max(height, methods + 0.6)], nice=False))
    base = alt.Chart(source()).encode(y=y)
    left = alt.datum.rank <= (methods + 1) / 2
    text = base.mark_text(fontSize=12).encode(x=x, text="label:N")
    return alt.layer(
        base.mark_point(filled=True, size=70, opacity=1).encode(x=x, tooltip=["method:N", "rank:Q"]),
        text.transform_filter(left).mark_text(align="left", dx=8, fontSize=12),
        text.transform_filter(~left).mark_text(align="right", dx=-8, fontSize=12),
        alt.Chart(source("joined")).mark_rule(strokeWidth=5, color="gray").encode(x="from:Q", x2="to:Q", y=y),
    )


def _winners(comparison: Comparison, facts: ClientFacts) -> Section:
    """How many clients each method is best for, and what those clients are like."""
    wins, names = comparison.best_for(), comparison.clients
    sizes, unlike = facts.of(names, facts.sizes), facts.of(names, facts.distances)
    columns = [Column("method"), Column("best for", True), Column("share, %", True)]
    columns += [Column("median samples", True)] if facts.sizes else []
    columns += [Column("median unlikeness", True)] if facts.distances else []
    rows = []
    for place, title in [*enumerate(entry.title for entry in comparison.entries), (-1, "several tie")]:
        mine = wins == place
        row = [title, str(int(mine.sum())), f"{100 * mine.mean():.1f}"]
        row += [f"{np.median(sizes[mine]):.0f}" if mine.any() else "none"] if facts.sizes else []
        row += [f"{np.median(unlike[mine]):.3f}" if mine.any() else "none"] if facts.distances else []
        rows.append(row)
    blocks: list[Block] = [Table("winners", "For how many clients each method is the best", columns, rows)]
    for name, column in (("samples", sizes), ("unlikeness", unlike)):
        if np.isfinite(column).any() and np.nanmax(column) > np.nanmin(column):
            blocks.append(_by(comparison, name, column))
    if facts.missing:
        blocks.append(Text(facts.missing))
    return Section("winners", "Who wins for which clients", blocks)


def _by(comparison: Comparison, name: str, column: np.ndarray) -> Table:
    """Every method's mean on thirds of the clients."""
    parts = parts_of(column, PARTS)
    headings = [Column(f"{_range(column[m])} ({len(m)})", True) for m in parts]
    rows: list[Sequence[str]] = []
    for entry in comparison.entries:
        means = comparison.scores(entry).mean(axis=0)
        rows.append([entry.title, *(comparison.metric.show(float(means[members].mean())) for members in parts)])
    return Table(
        f"by-{name}", f"Mean {comparison.metric.title} by {name}", [Column("method"), *headings], rows,
        f"Columns are clients by their {name}, with how many they are.",
    )  # fmt: skip


def _range(values: np.ndarray) -> str:
    least, most = f"{values.min():.3g}", f"{values.max():.3g}"
    return least if least == most else f"{least} to {most}"


def _settings(comparison: Comparison) -> Section:
    keys = dict.fromkeys(key for entry in comparison.entries for key in entry.settings)
    rows = [
        [entry.title, key, json.dumps(entry.settings[key], default=str)]
        for entry in comparison.entries
        for key in keys
        if key in entry.settings
    ]
    columns = [Column("method"), Column("setting"), Column("value")]
    blocks = [Table("settings", "Settings of every method", columns, rows, shown=50)]
    return Section("settings", "Settings", blocks)
