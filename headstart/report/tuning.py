"""What tuning has found, as a table and as a picture."""

from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.markup import escape
from rich.table import Table

from headstart.experiment import Tuned
from headstart.report.canvas import COLOURS, pyplot

__all__ = ["plot_tuning", "tuning_table"]

ROWS = 12
"""So many of the best are shown."""


def tuning_table(tuned: Tuned, rows: int = ROWS) -> Table:
    """The best settings that were tried, the best one first."""
    metric = tuned.metric
    shown = tuned.tried[:rows]
    diverged = sum(row[metric.name] is None for row in tuned.tried)
    notes = [f"{len(shown)} of {len(tuned.tried)} that were tried."] if len(shown) < len(tuned.tried) else []
    notes += [f"{diverged} of them diverged."] if diverged else []
    table = Table(
        title=f"{escape(metric.title)} of the clients that choose",
        title_justify="left",
        caption=" ".join(notes) or None,
        caption_justify="left",
        box=box.SIMPLE_HEAD,
    )
    for heading in (*(key.partition(".")[2] for key in tuned.over), "rounds", escape(metric.title)):
        table.add_column(heading, justify="right")
    for row in shown:
        value = row[metric.name]
        table.add_row(
            *(f"{row[key]:.4g}" for key in tuned.over),
            str(row["rounds"]),
            "diverged" if value is None else metric.show(value),
        )
    return table


def plot_tuning(tuned: Tuned, path: str | Path) -> None:
    """Draw the score over the first two settings that were tuned as a heat map, or over the only one as a curve.

    What diverged is crossed out, and the best is circled. Of points that were dropped on the way, the score is that of
    the round when they were.
    """
    plt = pyplot()
    metric, keys = tuned.metric, list(tuned.over)[:2]
    figure, axis = plt.subplots(figsize=(5.6, 4.2))
    finite = [row for row in tuned.tried if row[metric.name] is not None]
    lost = [row for row in tuned.tried if row[metric.name] is None]
    for key, scale in zip(keys, (axis.set_xscale, axis.set_yscale), strict=False):
        if tuned.over[key].log:
            scale("log")
    axis.set_xlabel(keys[0])
    if len(keys) == 1:
        rows = sorted(finite, key=lambda row: float(row[keys[0]]))
        values = [metric.scale * row[metric.name] for row in rows]
        axis.plot([row[keys[0]] for row in rows], values, "o-", color=COLOURS[0])
        axis.set_ylabel(metric.title)
    else:
        _heat(plt, figure, axis, finite, keys, metric, tuned)
        axis.set_ylabel(keys[1])
        axis.plot(*([row[key] for row in lost] for key in keys), "x", color="#888888", label="diverged")
        axis.plot(*([tuned.tried[0][key]] for key in keys), "o", mfc="none", mec="black", ms=16, mew=2, label="best")
        axis.legend(loc="upper right", fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _heat(plt: Any, figure: Any, axis: Any, rows: list[Any], keys: list[str], metric: Any, tuned: Tuned) -> None:
    """Cells where the points are a grid, coloured points where they are not."""
    better = "viridis" if metric.higher_is_better else "viridis_r"
    values = np.array([metric.scale * row[metric.name] for row in rows])
    # One bad setting would take all the colours; half of them are for the better half.
    low, high = np.quantile(values, (0.0, 0.75) if not metric.higher_is_better else (0.25, 1.0))
    sides = [sorted({row[key] for row in tuned.tried}) for key in keys]
    if len(tuned.over) == 2 and len(sides[0]) * len(sides[1]) == len(tuned.tried):
        cells = np.full((len(sides[1]), len(sides[0])), np.nan)
        for row, value in zip(rows, values, strict=True):
            cells[sides[1].index(row[keys[1]]), sides[0].index(row[keys[0]])] = value
        edges = [_edges(side, tuned.over[key].log) for key, side in zip(keys, sides, strict=True)]
        drawn = axis.pcolormesh(*edges, cells, cmap=better, vmin=low, vmax=high)
    else:
        places = ([row[key] for row in rows] for key in keys)
        drawn = axis.scatter(*places, c=values, cmap=better, vmin=low, vmax=high, s=160, edgecolors="white")
    figure.colorbar(drawn, label=metric.title)


def _edges(values: list[float], log: bool) -> np.ndarray:
    """Where the cells of a grid begin and end: in the middle between its values, as the axis has them."""
    places = np.log(values) if log else np.asarray(values, float)
    steps = np.diff(places) if len(places) > 1 else np.ones(1)
    ends = [places[0] - steps[0] / 2, *(places[:-1] + np.diff(places) / 2), places[-1] + steps[-1] / 2]
    return np.exp(ends) if log else np.asarray(ends)
