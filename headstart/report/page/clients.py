"""Sections on clients: each before and after, who gains and who loses, fairness, adaptation step by step."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from headstart.report.page.charts import altair, figure, lines, points, round_numbers, source
from headstart.report.page.document import Block, Column, Figure, Section, Table, Text
from headstart.report.page.facts import ClientFacts
from headstart.report.page.reading import NEW, Evidence, Method
from headstart.report.page.sentences import NO_DIFFERENT, change, steps_words, value, worst_tenth
from headstart.statistics import mean_interval

__all__ = ["MOST_POINTS", "adaptation_section", "clients_section"]

MOST_POINTS = 6_000
"""Points of a scatter plot; of more, counts in cells are drawn."""
MOST_ROWS = 10_000
"""Rows of the table of clients; of more, those at both ends."""
ENDS = 250
CELLS = 30
QUANTILES = np.linspace(0, 1, 101)


def clients_section(evidence: Evidence, facts: ClientFacts) -> Section:
    """Who gains, who loses, how unequal clients are, and every client."""
    blocks: list[Block] = [_fairness(evidence)]
    adapting = [method for method in evidence.methods if method.adapts]
    if adapting:
        blocks += [_sorted_gains(evidence, adapting), *_before_and_after(evidence, adapting)]
    else:
        blocks.append(
            Text(
                "Clients were scored after one number of steps only, so it is not known who gains by adapting. "
                "Evaluate before and after: `--set evaluate.steps=[0,1]`."
            )
        )
    blocks.append(_every_client(evidence, facts))
    return Section("clients", "Each client, before and after", blocks)


def _shown(numbers: np.ndarray, metric: Any) -> list[float | None]:
    return round_numbers(metric.scale * numbers)


def _fairness(evidence: Evidence) -> Table:
    """How unequal clients are, before and after."""
    metric = evidence.metric
    columns = [
        Column("method"), Column("clients"), Column("steps", True), Column(f"mean {metric.title}", True),
        Column("deviation over clients", True), Column("worst 10%", True), Column("best 10%", True),
        Column("gain", True), Column("lose", True), Column("without a score", True),
    ]  # fmt: skip
    rows = []
    for method in evidence.methods:
        for group in evidence.groups:
            chosen = method.chosen(group)
            for steps in (method.steps[0], method.steps[-1]) if method.adapts else method.steps:
                scores = method.scores[steps][chosen]
                there = np.sort(scores[np.isfinite(scores)])
                there = there[::-1] if metric.higher_is_better else there
                numbers = (
                    [
                        there.mean(),
                        there.std() if len(there) > 1 else np.nan,
                        worst_tenth(metric, scores),
                        there[: max(1, len(there) // 10)].mean(),
                    ]
                    if len(there)
                    else [np.nan] * 4
                )
                moved = method.gains[chosen] if steps else np.full(len(scores), np.nan)
                counts = [
                    str(int(n)) if steps and method.adapts else "" for n in ((moved > 0).sum(), (moved < 0).sum())
                ]
                rows.append(
                    [
                        method.title,
                        "new" if group == NEW else group,
                        str(steps),
                        *map(metric.show, numbers),
                        *counts,
                        str(int(len(scores) - len(there))),
                    ]
                )
    return Table(
        "fairness",
        "How unequal clients are",
        columns,
        rows,
        "Fair adaptation lifts the worst tenth and makes the deviation smaller. A client gains if its own model "
        "scores better than the shared one on the samples that it did not adapt on.",
    )


def _sorted_gains(evidence: Evidence, methods: Sequence[Method]) -> Figure:
    """Clients in the order of what they gain."""
    rows: dict[str, list[Any]] = {"method": [], "share": [], "gain": []}
    said = []
    for method in methods:
        gains = method.gains[method.chosen(evidence.judged)]
        gains = gains[np.isfinite(gains)]
        if not len(gains):
            continue
        rows["method"] += [method.title] * len(QUANTILES)
        rows["share"] += round_numbers(100 * QUANTILES)
        rows["gain"] += _shown(np.quantile(gains, QUANTILES), evidence.metric)
        half = evidence.metric.show(float(np.median(gains)))
        said.append(f"with {method.title} {(gains < 0).mean():.0%} lose, half gain {half} or more")
    who = "new clients" if evidence.judged == NEW else "clients"
    unit = f" in {evidence.metric.name}{', points' if evidence.metric.unit == '%' else ''}"
    alt = altair()
    zero = alt.Chart(source("zero")).mark_rule(strokeDash=[4, 4], color="gray").encode(y="y:Q")
    curve = lines("share", f"share of {who}, %", "gain", f"gain{unit}", order=[m.title for m in evidence.methods])
    chart = alt.layer(zero, curve)
    return figure(
        "gains",
        "Who gains, who loses",
        f"{who.capitalize()} from the one that loses most to the one that gains most; below the dashed line a client "
        f"is worse off with its own model.",
        f"Gains by adapting in ascending order: {'; '.join(said)}.",
        chart,
        rows=rows,
        zero={"y": [0]},
    )


def _before_and_after(evidence: Evidence, methods: Sequence[Method]) -> Iterator[Figure]:
    metric, order = evidence.metric, [method.title for method in evidence.methods]
    ends = np.concatenate([scores for m in methods for scores in (m.scores[0], m.scores[m.steps[-1]])])
    ends = metric.scale * ends[np.isfinite(ends)]
    if not len(ends):
        return
    low, high = float(ends.min()), float(ends.max())
    diagonal = {"x": [low, high], "y": [low, high]}
    before, after = f"{metric.title}, shared model", f"{metric.title}, own model"
    side = "above" if metric.higher_is_better else "below"
    if sum(len(method.clients) for method in methods) <= MOST_POINTS:
        rows: dict[str, list[Any]] = {name: [] for name in ("client", "method", "before", "after")}
        for method in methods:
            rows["client"] += method.clients.tolist()
            rows["method"] += [method.title] * len(method.clients)
            rows["before"] += _shown(method.scores[0], metric)
            rows["after"] += _shown(method.scores[method.steps[-1]], metric)
        cloud = points("before", before, "after", after, order=order, tooltip=tuple(rows))
        yield figure(
            "before-after",
            "Every client before and after",
            f"A point is a client with one method; {side} the dashed line it is better off with its own model.",
            f"Scatter plot of each client's {metric.name} with the shared and with its own model. "
            + "; ".join(_said(method) for method in methods),
            altair().layer(_diagonal(), cloud),
            rows=rows,
            diagonal=diagonal,
        )
        return
    for place, method in enumerate(methods):
        yield figure(
            f"before-after-{place}",
            f"Clients before and after: {method.title}",
            f"{len(method.clients):,} clients, counted in cells; {side} the dashed line they are better off with "
            "their own model.",
            f"Density of each client's {metric.name} with the shared and with its own model. {_said(method)}.",
            _cells_chart(before, after),
            rows=_cells(metric.scale * method.scores[0], metric.scale * method.scores[method.steps[-1]], low, high),
            diagonal=diagonal,
        )


def _said(method: Method) -> str:
    gains = method.gains[np.isfinite(method.gains)]
    return f"{method.title}: {int((gains > 0).sum()):,} gain, {int((gains < 0).sum()):,} lose"


def _diagonal() -> Any:
    alt = altair()
    return alt.Chart(source("diagonal")).mark_line(strokeDash=[4, 4], color="gray").encode(x="x:Q", y="y:Q")


def _cells(x: np.ndarray, y: np.ndarray, low: float, high: float) -> dict[str, list[Any]]:
    """How many points are in each cell of a grid, of those that have any."""
    both = np.isfinite(x) & np.isfinite(y)
    counts, edges, _ = np.histogram2d(x[both], y[both], bins=CELLS, range=[[low, high]] * 2)
    across, up = np.nonzero(counts)
    return {
        "x": round_numbers(edges[across]),
        "x2": round_numbers(edges[across + 1]),
        "y": round_numbers(edges[up]),
        "y2": round_numbers(edges[up + 1]),
        "clients": counts[across, up].astype(int).tolist(),
    }


def _cells_chart(x_title: str, y_title: str) -> Any:
    alt = altair()
    gradient = alt.Legend(orient="bottom", gradientLength=200, format=",.0f")
    cells = (
        alt.Chart(source())
        .mark_rect()
        .encode(
            x=alt.X("x:Q", title=x_title, scale=alt.Scale(zero=False)), x2="x2:Q",
            y=alt.Y("y:Q", title=y_title, scale=alt.Scale(zero=False)), y2="y2:Q",
            color=alt.Color("clients:Q", title="clients", scale=alt.Scale(type="log"), legend=gradient),
            tooltip=["x:Q", "y:Q", "clients:Q"],
        )
    )  # fmt: skip
    return alt.layer(cells, _diagonal())


def _every_client(evidence: Evidence, facts: ClientFacts) -> Table:
    metric = evidence.metric
    steps = sorted({n for method in evidence.methods for n in method.steps})
    columns = [Column("client"), Column("role"), Column("method")]
    columns += [Column("shared model" if n == 0 else f"after {steps_words(n)}", True) for n in steps]
    columns.append(Column("gain", True))
    columns += [Column("samples", True)] if facts.sizes else []
    columns += [Column("unlikeness", True)] if facts.distances else []
    total = sum(len(method.clients) for method in evidence.methods)
    rows = []
    for method in evidence.methods:
        for i in range(len(method.clients)) if total <= MOST_ROWS else _both_ends(method):
            client = str(method.clients[i])
            row = [client, str(method.roles[i]), method.title]
            row += [metric.show(method.scores[n][i]) if n in method.scores else "none" for n in steps]
            row.append(metric.show(method.gains[i], beside=method.scores[method.steps[-1]][i]))
            row += [str(facts.sizes.get(client, "none"))] if facts.sizes else []
            row += (
                [f"{facts.distances[client]:.3f}" if client in facts.distances else "none"] if facts.distances else []
            )
            rows.append(row)
    note = f"{metric.title}; gains are positive where a client is better off."
    if total > MOST_ROWS:
        note += f" Of {total:,} rows, the {ENDS} at each end of every method, by gain."
    return Table("clients", "Every client", columns, rows, note)


def _both_ends(method: Method) -> list[int]:
    """Those who gain least and most; of a method without gains, those who score least and most."""
    by = method.gains if method.adapts else method.scores[method.steps[-1]]
    order = np.argsort(by, kind="stable")  # NaN comes last
    order = order[: int(np.isfinite(by).sum())]
    return [int(i) for i in (order if len(order) <= 2 * ENDS else np.concatenate([order[:ENDS], order[-ENDS:]]))]


def adaptation_section(evidence: Evidence) -> Section:
    """The scores by number of steps, with how clients spread."""
    metric = evidence.metric
    group, order = evidence.judged, [method.title for method in evidence.methods]
    rows: dict[str, list[Any]] = {name: [] for name in ("method", "steps", "mean", "low", "high")}
    blocks: list[Block] = []
    said = []
    for method in evidence.methods:
        means = []
        for steps in method.steps:
            interval = mean_interval(method.scores[steps][method.chosen(group)])
            means.append(interval.mean)
            rows["method"].append(method.title)
            rows["steps"].append(steps)
            for name, number in zip(("mean", "low", "high"), interval[:3], strict=True):
                rows[name] += round_numbers([metric.scale * number])
        said.append(f"{method.title} " + ", ".join(value(metric, mean) for mean in means))
        blocks += [Text(words)] if (words := _when_to_stop(method, group, means)) else []
    if len({n for method in evidence.methods for n in method.steps}) < 3:
        blocks.append(
            Text(
                "Too few numbers of steps were evaluated to see where adapting stops helping. Ask for more with, for "
                "instance, `--set evaluate.steps=[0,1,2,5,10]`."
            )
        )
    who = "new clients" if group == NEW else "clients"
    banded = any(low is not None for low in rows["low"])
    chart = figure(
        "steps",
        f"Mean {metric.name} of {who} by the number of steps",
        "Bands are 95% intervals of the mean over clients." if banded else "",
        f"Lines over the number of adaptation steps ({', '.join(map(str, evidence.methods[0].steps))}): "
        f"{'; '.join(said)}.",
        lines(
            "steps", "adaptation steps", "mean", f"mean {metric.title}", order=order, band=banded, marked=True,
            whole=True, ticks=sorted({n for method in evidence.methods for n in method.steps}),
        ),
        rows=rows,
        **({"band": rows} if banded else {}),
    )  # fmt: skip
    return Section("adaptation", "Adaptation, step by step", [chart, *blocks])


def _when_to_stop(method: Method, group: str, means: Sequence[float]) -> str:
    """After how many steps a method is best, and whether more or fewer are worse by more than chance."""
    if not method.trains or len(means) < 3 or not np.isfinite(means).all():
        return ""
    best = int(np.argmax(means) if method.metric.higher_is_better else np.argmin(means))
    other = best - 1 if best == len(means) - 1 else len(means) - 1
    chosen, ahead = method.chosen(group), method.scores[method.steps[best]] - method.scores[method.steps[other]]
    gap = mean_interval(ahead[chosen] if method.metric.higher_is_better else -ahead[chosen])
    loss = change(method.metric, -gap.mean, beside=means[best])
    chance = "" if gap.excludes(0) or loss == NO_DIFFERENT else ", which may be chance"
    words = f"{method.title} is best after {steps_words(method.steps[best])}"
    words += ", the most that were evaluated" if best == len(means) - 1 else ""
    return f"{words}; after {method.steps[other]} it is {loss}{chance}."
