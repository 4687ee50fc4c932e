"""What a run has to say beside its comparison: the metrics that are not in it, and which model to take."""

import math
from itertools import zip_longest
from pathlib import Path
from textwrap import wrap

import numpy as np
from rich import box
from rich.markup import escape
from rich.table import Table

from headstart.experiment import RunRecord
from headstart.metrics import LOSS, Metric
from headstart.report.comparison import (
    broken_title,
    finished_summaries,
    headline_metric,
    method_title,
    settings_of,
    shown_groups,
    shown_round,
    step_columns,
)
from headstart.simulate import summarized_metrics

__all__ = ["best_model", "further_table"]

WIDEST = 14
"""So wide are names of metrics before they are broken."""
MOST_STEPS = 3
"""Of more numbers of steps, the first and the last are shown."""


def further_table(record: RunRecord) -> Table | None:
    """The metrics beside the headline, of new clients or of all if there are none; ``None`` where there are no others.

    Medians over clients: the share of variance that is explained, say, has no lower bound, and a client of few samples
    would have a mean to itself.
    """
    labels = list(finished_summaries(record))
    headline = headline_metric(record)
    others = [metric for name, metric in _metrics(record, labels[0]).items() if name not in (LOSS.name, headline.name)]
    if not others:
        return None
    whose = "new" if "new" in _groups(record, labels[0]).values() else "all"
    columns = step_columns(record)
    if len(columns) > MOST_STEPS:
        columns = [columns[0], columns[-1]]
    title = f"Other metrics, median over {whose} clients"
    table = Table(
        title=title,
        min_width=len(title) + 1,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    table.add_column("method", no_wrap=True)
    table.add_column("metric", no_wrap=True)
    for column in columns:
        table.add_column(column.heading.replace(" ", "\n", 1), justify="right", no_wrap=True)
    for label in labels:
        names = broken_title(method_title(label, settings_of(record, label))).split("\n")
        rows = _clients(record, label, whose)
        steps = [column.steps[label] for column in columns]
        lines = [line for metric in others for line in _lines(rows, metric, steps)]
        for name, cells in zip_longest(names, lines, fillvalue=""):
            table.add_row(escape(name), *map(escape, cells or [""] * (1 + len(steps))))
        table.add_section()
    return table


def best_model(record: RunRecord) -> Path | None:
    """The model file of the method that served best the clients that nothing was trained on.

    Validation clients decide where there are any, so that new ones are looked at only once. Clients who train alone
    share no model.
    """
    metric = headline_metric(record)
    best: tuple[float, Path] | None = None
    for label, rows in finished_summaries(record).items():
        folder = record.methods[label].path
        if settings_of(record, label).get("name") == "local-only" or folder is None:
            continue
        file = folder / "model.safetensors"
        groups = {row["group"] for row in rows}
        group = next(group for group in ("validation", "new", "held-out", "all") if group in groups)
        kept = shown_round(record, label)
        means = [r["mean"] for r in rows if (r["round"], r["group"], r["metric"]) == (kept, group, metric.name)]
        finite = [mean for mean in means if math.isfinite(mean)]
        if not finite or not file.exists():
            continue
        value = max(finite) if metric.higher_is_better else min(finite)
        if best is None or metric.better(value, best[0]):
            best = value, file
    return None if best is None else best[1]


def _metrics(record: RunRecord, label: str) -> dict[str, Metric]:
    summary = record.methods[label].summary
    assert summary is not None
    return summarized_metrics(summary)


def _groups(record: RunRecord, label: str) -> dict[str, str]:
    return shown_groups(row["group"] for row in finished_summaries(record)[label])


def _clients(record: RunRecord, label: str, whose: str) -> dict[str, np.ndarray]:
    """The columns of a method's table of clients, in the round that is shown."""
    table = record.methods[label].table
    assert table is not None
    columns = {name: table[name].to_numpy() for name in table.column_names}
    chosen = columns["round"] == shown_round(record, label)
    if whose == "new":
        chosen &= columns["held_out"] & ~columns.get("validation", np.zeros(len(chosen), bool))
    return {name: values[chosen] for name, values in columns.items()}


def _lines(rows: dict[str, np.ndarray], metric: Metric, steps: list[int]) -> list[list[str]]:
    """A metric's row, in as many lines as its name has."""
    first, *rest = wrap(metric.title, WIDEST)
    return [
        [first, *(_median(rows, metric, number) for number in steps)],
        *([word, *[""] * len(steps)] for word in rest),
    ]


def _median(rows: dict[str, np.ndarray], metric: Metric, steps: int) -> str:
    values = rows[metric.name][rows["steps"] == steps].astype(float)
    values = values[np.isfinite(values)]
    return metric.show(float(np.median(values))) if len(values) else "undefined"
