"""Sections on training: the curves, and what they cost."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import stats

from headstart.report.comparison import adapted_after
from headstart.report.page.charts import far_apart, figure, finite, lines, round_numbers
from headstart.report.page.document import Block, Column, Figure, Section, Table, Text
from headstart.report.page.reading import NEW, VALIDATION, Evidence, Method
from headstart.report.page.sentences import value
from headstart.statistics import LEVEL

__all__ = ["cost_section", "curves_section"]

DRAWN = 300
"""Points of a training curve; of more rounds, means over as many stretches."""
FEWEST = 5
"""Evaluations from which a curve has a direction, and clients from which it has a band."""
FLAT = 0.02
"""A curve has settled if its last quarter brought less than this share of all that it brought."""


def curves_section(evidence: Evidence) -> Section:
    """The clients' mean score by round, for all and for new clients, and the training loss."""
    blocks: list[Block] = [_curves(evidence, group) for group in dict.fromkeys(("all", evidence.followed))]
    if any(method.once for method in evidence.methods):
        blocks.append(
            Text("New clients were looked at once, with the model that was kept, so that they have chosen nothing.")
        )
    kept = [f"{m.title} {m.last:,} of {m.trained_rounds:,}" for m in evidence.methods if m.last < m.trained_rounds]
    if kept and all(method.record.done for method in evidence.methods):
        blocks.append(Text(f"The model kept, whose scores are shown below, is of round: {', '.join(kept)}."))
    endings: dict[str, list[str]] = {}
    for method in evidence.methods:
        if method.trains:
            endings.setdefault(_ending(method, evidence.followed), []).append(method.title)
    blocks += [Text(f"{words}: {', '.join(titles)}.") for words, titles in endings.items()]
    loss = _training_loss(evidence)
    if loss is not None:
        blocks.append(loss)
    return Section("curves", "Curves", blocks)


def _curves(evidence: Evidence, group: str) -> Figure:
    rows: dict[str, list[Any]] = {name: [] for name in ("method", "steps", "round", "mean")}
    band: dict[str, list[Any]] = {name: [] for name in ("method", "round", "low", "high")}
    metric, ends = evidence.metric, []
    for method in evidence.methods:
        for steps in method.steps:
            curve = method.curve(group, steps)
            rows["method"] += [method.title] * len(curve)
            rows["steps"] += [adapted_after(steps)] * len(curve)
            rows["round"] += [row["round"] for row in curve]
            rows["mean"] += [finite(metric.scale * row["mean"]) for row in curve]
            if steps == method.steps[-1]:  # bands of several numbers of steps would hide each other
                halves = [_half(row) for row in curve]
                band["method"] += [method.title] * len(curve)
                band["round"] += [row["round"] for row in curve]
                for name, sign in (("low", -1), ("high", 1)):
                    ends_of = [row["mean"] + sign * half for row, half in zip(curve, halves, strict=True)]
                    if metric.unit == "%" and all(0 <= row["min"] <= row["max"] <= 1 for row in curve):
                        ends_of = [min(max(end, 0.0), 1.0) for end in ends_of]  # no share lies outside
                    band[name] += [finite(metric.scale * end) for end in ends_of]
            if curve and steps in (method.steps[0], method.steps[-1]):
                ends.append(f"{method.title} {adapted_after(steps)} {value(metric, curve[-1]['mean'])}")
    every = sorted({n for method in evidence.methods for n in method.steps}, reverse=True)
    roles = {NEW: ", which never trained", VALIDATION: ", which choose"}
    who = f"{evidence.who(group)}{roles.get(group, '')}"
    far = far_apart(rows["mean"])
    banded = not far and any(low is not None for low in band["low"])
    chart = lines(
        "round", "communication round", "mean", f"mean {metric.title}", order=[m.title for m in evidence.methods],
        dash="steps", dashes=[adapted_after(n) for n in every], band=banded, whole=True, log=far,
        tooltip=("method", "steps", "round", "mean"),
    )  # fmt: skip
    caption = "The band is the 95% interval of the mean over clients, after the most steps. It shows how clients "
    caption += "differ, not how another seed would."
    return figure(
        f"curves-{group}",
        f"Mean {metric.name} of {who}",
        caption if banded else "",
        f"Lines of mean {metric.name} over rounds for {who}. In the end: {'; '.join(ends)}.",
        chart,
        rows=rows,
        **({"band": band} if banded else {}),
    )


def _half(row: Mapping[str, Any]) -> float:
    """Half of Student's interval of a mean over clients."""
    count = row["clients"]
    if count < FEWEST:  # it would be many times wider than all lines are apart
        return math.nan
    return float(stats.t.ppf((1 + LEVEL) / 2, count - 1)) * row["std"] / math.sqrt(count - 1)


def _ending(method: Method, group: str) -> str:
    """Whether training has helped, and longer training may bring more."""
    if method.record.diverged is not None:
        return "Diverged, so that smaller steps are needed"
    means = [row["mean"] for row in method.curve(group, method.steps[-1])]
    means = [mean for mean in means if math.isfinite(mean)]
    if len(means) < FEWEST:
        return "Too few evaluations to say whether more rounds would bring more"
    if method.metric.better(means[0], than=means[-1]):
        return "Worse at the last round than before any training"
    last_quarter = means[-1] - means[-1 - len(means) // 4]
    spread = max(means) - min(means)
    if not spread or abs(last_quarter) < FLAT * spread:
        return "Settled, for the last quarter of the rounds changed little"
    if (last_quarter > 0) == method.metric.higher_is_better:
        return "Still getting better at the last round, so that more rounds may bring more"
    return "Getting worse at the last round, so that an earlier one was better"


def _training_loss(evidence: Evidence) -> Figure | None:
    rows: dict[str, list[Any]] = {"method": [], "round": [], "loss": []}
    ends = []
    for method in evidence.methods:
        history = method.record.history
        if history is None or "loss" not in history.column_names or not len(history) or not method.trains:
            continue
        losses = history["loss"].to_numpy().astype(np.float64)
        width = -(-len(losses) // DRAWN)  # all equally smooth
        stretches = [np.arange(at, min(at + width, len(losses))) for at in range(0, len(losses), width)]
        rows["method"] += [method.title] * len(stretches)
        rows["round"] += [int(stretch[-1]) + 1 for stretch in stretches]
        rows["loss"] += round_numbers([losses[stretch].mean() for stretch in stretches])
        ends.append(f"{method.title} {losses[-1]:.4g}")
    if not rows["method"]:
        return None
    return figure(
        "training-loss",
        "Training loss",
        "The mean loss of each round's cohort on its own batches, as the method computes it: methods that adapt before "
        "they measure have a lower one, so that lines of different methods are not to be compared.",
        f"Lines of the training loss over rounds. In the last round: {'; '.join(ends)}.",
        lines(
            "round",
            "communication round",
            "loss",
            "training loss",
            order=[m.title for m in evidence.methods],
            whole=True,
            log=far_apart(rows["loss"]),
        ),
        rows=rows,
    )


COSTS = {"samples": "samples drawn", "gradients": "gradients computed", "bytes": "bytes sent, MB"}


def cost_section(evidence: Evidence) -> Section:
    """What was reached for how much: samples, gradients and bytes."""
    target = _common_target(evidence)
    columns = [
        Column("method"), Column("rounds", True), Column("samples", True), Column("gradients", True),
        Column("Hessian-vector products", True), Column("MB up", True), Column("MB down", True),
        Column("seconds", True),
    ]  # fmt: skip
    if target is not None:
        columns += [Column(f"{what} to the target", True) for what in ("rounds", "samples", "MB")]
    rows = []
    for method in evidence.methods:
        totals = [_total(method, name) for name in ("samples", "gradients", "products")]
        sent = [_megabytes(method, name) for name in ("bytes_up", "bytes_down")]
        seconds = method.spent("seconds")
        row = [
            method.title, str(method.trained_rounds), *totals, *sent,
            "none" if seconds is None else f"{seconds[-1]:.1f}",
        ]  # fmt: skip
        if target is not None:
            row += _to_target(method, evidence.followed, target)
        rows.append(row)
    blocks: list[Block] = []
    apart = [method.title for method in evidence.methods if not method.trains]
    if apart:
        blocks.append(Text(f"Clients learn by themselves, without rounds and without sending: {', '.join(apart)}."))
    if target is not None:
        reached = f"{evidence.metric.name} {value(evidence.metric, target)}"
        words = (
            f"The target is {reached} of {evidence.who(evidence.followed)}: the best mean that every method reaches at "
            "some evaluation."
        )
        idle = [m.title for m in _training(evidence) if _to_target(m, evidence.followed, target)[0] == "0"]
        words += f" Before any training it was reached by {', '.join(idle)}." if idle else ""
        blocks.append(Text(words))
    blocks.append(Table("cost", "What each method cost", columns, rows))
    figures = (_by_cost(evidence, name, title) for name, title in COSTS.items())
    blocks += [found for found in figures if found is not None]
    return Section("cost", "Cost", blocks)


def _spent(method: Method, name: str) -> np.ndarray | None:
    if not method.trains:
        return None
    if name != "bytes":
        return method.spent(name)
    up, down = method.spent("bytes_up"), method.spent("bytes_down")
    return None if up is None or down is None else (up + down) / 1e6


def _training(evidence: Evidence) -> list[Method]:
    return [method for method in evidence.methods if method.trains]


def _total(method: Method, name: str) -> str:
    spent = method.spent(name)
    return "none" if spent is None or not method.trains else f"{spent[-1]:.0f}"


def _megabytes(method: Method, name: str) -> str:
    spent = method.spent(name)
    return "none" if spent is None or not method.trains else f"{spent[-1] / 1e6:.2f}"


def _common_target(evidence: Evidence) -> float | None:
    """The best mean that every method reaches."""
    if len(_training(evidence)) < 2:
        return None
    higher, bests = evidence.metric.higher_is_better, []
    for method in _training(evidence):
        means = [row["mean"] for row in method.curve(evidence.followed, method.steps[-1]) if math.isfinite(row["mean"])]
        if not means:
            return None
        bests.append(max(means) if higher else min(means))
    return min(bests) if higher else max(bests)


def _to_target(method: Method, group: str, target: float) -> list[str]:
    """Rounds, samples and megabytes after which a method's mean has first reached the target."""
    for row in method.curve(group, method.steps[-1]):
        if row["mean"] == target or method.metric.better(row["mean"], than=target):
            spent = [_spent(method, name) for name in ("samples", "bytes")]
            reached = [None if s is None else s[min(row["round"], len(s) - 1)] for s in spent]
            return [
                str(row["round"]),
                "none" if reached[0] is None else f"{reached[0]:.0f}",
                "none" if reached[1] is None else f"{reached[1]:.2f}",
            ]
    return ["none"] * 3


def _by_cost(evidence: Evidence, name: str, title: str) -> Figure | None:
    rows: dict[str, list[Any]] = {"method": [], name: [], "mean": []}
    ends = []
    for method in evidence.methods:
        spent = _spent(method, name)
        curve = method.curve(evidence.followed, method.steps[-1])
        if spent is None or not spent[-1] or not curve:
            continue
        at = [spent[min(row["round"], len(spent) - 1)] for row in curve]
        rows["method"] += [method.title] * len(curve)
        rows[name] += round_numbers(at)
        rows["mean"] += [finite(method.metric.scale * row["mean"]) for row in curve]
        ends.append(f"{method.title} {value(method.metric, curve[-1]['mean'])} for {at[-1]:.4g}")
    if not rows["method"]:
        return None
    metric, who = evidence.metric, evidence.who(evidence.followed)
    return figure(
        f"cost-{name}",
        f"Mean {metric.name} by {title.removesuffix(', MB')}",
        f"Of {who}, after the most steps. Where one line is left of another, it costs less for the same.",
        f"Lines of mean {metric.name} over {title}. In the end: {'; '.join(ends)}.",
        lines(name, title, "mean", f"mean {metric.title}", order=[m.title for m in evidence.methods], marked=True),
        rows=rows,
    )
