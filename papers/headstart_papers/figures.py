"""Pictures like the papers': curves with their intervals, fitted functions, and sweeps of a setting."""

import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from headstart.report.canvas import COLOURS, pyplot
from headstart_papers.panels import legend, legend_columns, plain, scales
from headstart_papers.record import Figure, PaperExperiment
from headstart_papers.results import Cell, Results
from headstart_papers.statistics import estimate

__all__ = ["Drawn", "draw", "planned"]

COLUMNS = 3
"""Panels side by side, at most."""
STYLES = ("-", (0, (5, 1.5)), (0, (2, 1.2)), (0, (6, 1.2, 1.2, 1.2)))
X_TITLES = {"round": "communication round", "samples": "samples drawn", "seconds": "seconds of training"}
HEADROOM = 1.5
"""How much higher than the true functions the panels of fits are; a fit may be far off."""


class Drawn(NamedTuple):
    """A figure of the record and its file."""

    figure: Figure
    path: Path


class _Line(NamedTuple):
    """One curve of a panel."""

    cell: Cell
    label: str
    colour: Any
    style: Any
    reported: float | None


def draw(experiment: PaperExperiment, results: Results, folder: Path) -> list[Drawn]:
    """Draw all figures for which there is something to show, as ``figure1.png`` and so on in ``folder``."""
    kinds: Mapping[str, Callable[..., Any]] = {"curves": _curves, "sweep": _sweep, "fits": _fits}
    plt = pyplot()
    folder.mkdir(parents=True, exist_ok=True)
    drawn = []
    for number, figure in enumerate(experiment.figures, 1):
        picture = kinds[figure.kind](plt, experiment, results, figure)
        if picture is None:
            continue
        picture.suptitle(textwrap.fill(_title(figure, results), int(10 * picture.get_figwidth())), fontsize=12)
        path = folder / f"figure{number}.png"
        picture.savefig(path, dpi=150)
        plt.close(picture)
        drawn.append(Drawn(figure, path))
    return drawn


def planned(experiment: PaperExperiment, results: Results, folder: Path) -> list[Drawn]:
    """What `draw` would draw, and where."""
    return [
        Drawn(figure, folder / f"figure{number}.png")
        for number, figure in enumerate(experiment.figures, 1)
        if any(
            figure.kind != "fits" or "fits" in cell.extras
            for row in _rows(experiment, figure)
            for _, _, cell in _cells(experiment, results, figure, row)
        )
    ]


def _title(figure: Figure, results: Results) -> str:
    """A picture travels without its report, so it says itself when it is of a smaller run."""
    place = figure.like.replace(" ", "\N{NO-BREAK SPACE}")
    like = f"like the paper's {place}" if place else ""
    smaller = "" if results.profile == "full" else f"{results.profile}, smaller run"
    said = "; ".join(filter(None, (like, smaller)))
    return f"{figure.title} ({said})" if said else figure.title


def _cells(experiment: PaperExperiment, results: Results, figure: Figure, row: str) -> Iterator[tuple[int, str, Cell]]:
    """The methods to be shown of a row, each with a number that is the same in all figures of the experiment."""
    for number, method in enumerate(experiment.methods):
        cell = results.cell(row, method)
        if cell is not None and (not figure.methods or method in figure.methods):
            yield number, method, cell


def _rows(experiment: PaperExperiment, figure: Figure) -> tuple[str, ...]:
    return figure.rows or tuple(experiment.rows)


def _reported(experiment: PaperExperiment, figure: Figure, row: str, method: str) -> float | None:
    value = experiment.rows[row].reported.get(figure.score, {}).get(method)
    return None if value is None else value[0]


def _curves(plt: Any, experiment: PaperExperiment, results: Results, figure: Figure) -> Any:
    panels = {}
    for row in _rows(experiment, figure):
        lines = [
            _Line(
                cell,
                experiment.methods[method].title,
                COLOURS[number % len(COLOURS)],
                STYLES[number % len(STYLES)],
                _reported(experiment, figure, row, method),
            )
            for number, method, cell in _cells(experiment, results, figure, row)
        ]
        if lines:
            panels[experiment.rows[row].title] = lines
    return _panels(plt, experiment, figure, panels) if panels else None


def _sweep(plt: Any, experiment: PaperExperiment, results: Results, figure: Figure) -> Any:
    rows = _rows(experiment, figure)
    # Rows of a sweep are in an order, and so are their colours.
    colours = plt.get_cmap("viridis")(np.linspace(0.0, 0.88, len(rows)))
    panels: dict[str, list[_Line]] = {}
    for number, row in enumerate(rows):
        for _, method, cell in _cells(experiment, results, figure, row):
            panels.setdefault(experiment.methods[method].title, []).append(
                _Line(
                    cell,
                    experiment.rows[row].title,
                    colours[number],
                    STYLES[number % len(STYLES)],
                    _reported(experiment, figure, row, method),
                )
            )
    return _panels(plt, experiment, figure, panels) if panels else None


def _panels(plt: Any, experiment: PaperExperiment, figure: Figure, panels: Mapping[str, list[_Line]]) -> Any:
    columns = 2 if len(panels) == 4 else min(COLUMNS, len(panels))
    lines = -(-len(panels) // columns)
    width = max(4.2 * columns, 6.4)
    labels = {line.label for drawn in panels.values() for line in drawn}
    below = -(-len(labels) // legend_columns(labels, width))
    picture, axes = plt.subplots(
        lines, columns, figsize=(width, 3.1 * lines + 0.6 + 0.22 * below), squeeze=False, layout="constrained"
    )
    for axis in axes.ravel()[len(panels) :]:
        axis.set_axis_off()
    for place, (axis, (title, drawn)) in enumerate(zip(axes.ravel(), panels.items(), strict=False)):
        for line in drawn:
            _draw_line(axis, line, figure)
        axis.set_title(textwrap.fill(title, int(10 * width / columns)), fontsize=10)
        if place + columns >= len(panels):  # nothing below it
            axis.set_xlabel(X_TITLES[figure.x])
        if place % columns == 0:
            axis.set_ylabel(experiment.scores[figure.score].title)
        plain(axis)
        scales(axis, figure)
    legend(picture, axes)
    return picture


def _draw_line(axis: Any, line: _Line, figure: Figure) -> None:
    x, values = line.cell.x(figure.x), line.cell.curve(figure.score)
    if figure.log_x:
        x, values = x[x > 0], values[:, x > 0]
    found = [estimate(column) for column in values.T]
    mean = np.array([e.mean for e in found])
    axis.plot(x, mean, color=line.colour, linestyle=line.style, linewidth=1.8, label=line.label)
    if len(values) > 2:  # of two seeds the interval is so wide that nothing else could be seen; the table has it
        low, high = np.array([e.low for e in found]), np.array([e.high for e in found])
        if figure.log:
            low = np.maximum(low, mean / 10)  # a logarithm has no room for zero
        axis.fill_between(x, low, high, color=line.colour, alpha=0.15, linewidth=0)
    finite = np.flatnonzero(np.isfinite(mean))
    if len(finite) < len(mean):
        last = finite[-1:] if finite.size else [0]
        height = mean[last] if finite.size else [0.5]
        transform = axis.transData if finite.size else axis.get_xaxis_transform()
        axis.plot(
            x[last], height, "x", color=line.colour, markersize=8, markeredgewidth=2, label="diverged",
            transform=transform,
        )  # fmt: skip
    if line.reported is not None:
        axis.plot(
            x[-1:], [line.reported], "o", color=line.colour, markerfacecolor="white", markersize=6,
            markeredgewidth=1.6, label="the paper's value", clip_on=False, zorder=5,
        )  # fmt: skip


def _fits(plt: Any, experiment: PaperExperiment, results: Results, figure: Figure) -> Any:
    shown = {
        row: cells
        for row in _rows(experiment, figure)
        if (cells := [c for c in _cells(experiment, results, figure, row) if "fits" in c[2].extras])
    }
    if not shown:
        return None
    tasks = len(next(iter(shown.values()))[0][2].extras["fits"]["amplitude"])
    picture, axes = plt.subplots(
        len(shown), tasks, figsize=(2.6 * tasks, 2.4 * len(shown) + 0.9), squeeze=False, layout="constrained",
        sharex=True, sharey="row",
    )  # fmt: skip
    for line, (row, cells) in zip(axes, shown.items(), strict=True):
        truth = cells[0][2].extras["fits"]
        x = np.array(truth["x"])
        for task, axis in enumerate(line):
            amplitude, phase = truth["amplitude"][task], truth["phase"][task]
            axis.plot(x, amplitude * np.sin(x + phase), color="#c4c4c4", linewidth=5, label="the task's function")
            for number, method, cell in cells:
                axis.plot(
                    x, cell.extras["fits"]["curves"][cell.chosen][task], color=COLOURS[number % len(COLOURS)],
                    linestyle=STYLES[number % len(STYLES)], linewidth=1.5, label=experiment.methods[method].title,
                )  # fmt: skip
            axis.set_title(f"{amplitude:.2g} sin(x + {phase:.2g})", fontsize=9)
            plain(axis)
        limit = HEADROOM * max(map(abs, truth["amplitude"]))
        line[0].set_ylim(-limit, limit)
        line[0].set_ylabel(experiment.rows[row].title, fontsize=10)
    for axis in axes[-1]:
        axis.set_xlabel("x")
    legend(picture, axes)
    return picture
