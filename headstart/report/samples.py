"""Samples for people: what a data set holds, and a picture of some of it."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from headstart.data.samples import Samples
from headstart.report.canvas import pyplot

__all__ = ["plot_samples", "samples_table"]

SHOWN_CLASSES = 12
SHOWN_EACH = 10
SHOWN_FEATURES = 12
LOOKED_AT = 100_000
"""Rows that a picture of a table's features is drawn from."""


def samples_table(samples: Samples) -> Group:
    """How many samples of what, what is known of each, and how much memory they take."""
    facts = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    facts.add_column(no_wrap=True)
    facts.add_column()
    tests = 0 if samples.test is None else int(samples.test.sum())
    own = f" ({len(samples) - tests:,} for training, {tests:,} for tests)" if tests else ""
    facts.add_row("samples", f"{len(samples):,}{own}")
    facts.add_row("one sample", f"{' x '.join(map(str, samples.x.shape[1:])) or 'a number'} of {samples.x.dtype}")
    size = (samples.x.nbytes + samples.y.nbytes) / 1e6
    facts.add_row("memory", f"{size:,.1f} MB" + (", on disk" if isinstance(samples.x, np.memmap) else ""))
    facts.add_row("to predict", _target(samples))
    for name, values in samples.columns.items():
        facts.add_row(f"column {name}", _column(values))
    if samples.subset:
        facts.add_row("subset", samples.subset)
    if samples.source:
        facts.add_row("source", samples.source)
    title = Text(samples.name, style="bold")
    return Group(title, facts) if samples.classes is None else Group(title, facts, _class_counts(samples))


def _target(samples: Samples) -> str:
    if samples.classes is not None:
        return f"one of {len(samples.classes)} classes"
    y = np.asarray(samples.y, np.float64)
    return f"a number, mean {y.mean():.4g}, deviation {y.std():.4g}, from {y.min():.4g} to {y.max():.4g}"


def _column(values: np.ndarray) -> str:
    distinct = pa.array(values, from_pandas=True).dictionary_encode().dictionary
    some = ", ".join(str(value) for value in distinct[:4].to_pylist())
    return f"{len(distinct):,} values: {some}{', ...' if len(distinct) > 4 else ''}"


def _class_counts(samples: Samples) -> Table:
    assert samples.classes is not None
    counts = np.bincount(samples.y, minlength=len(samples.classes))
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("class", no_wrap=True)
    table.add_column("samples", justify="right")
    for c in range(min(len(counts), SHOWN_CLASSES)):
        table.add_row(samples.classes[c], f"{counts[c]:,}")
    if len(counts) > SHOWN_CLASSES:
        rest = counts[SHOWN_CLASSES:]
        table.add_row(f"... and {len(rest):,} more", f"{rest.min():,} to {rest.max():,} each")
    return table


def plot_samples(samples: Samples, path: Path) -> None:
    """Draw some samples: images in rows of their class, signals over time, or a table's columns as histograms."""
    plt = pyplot()
    shape = samples.x.shape[1:]
    if samples.classes is not None and _is_image(shape):
        figure = _images(plt, samples)
    elif samples.classes is not None and len(shape) == 2:
        figure = _signals(plt, samples)
    else:
        figure = _histograms(plt, samples)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _is_image(shape: tuple[int, ...]) -> bool:
    """Height, width and perhaps three colours; a signal is longer than it has channels."""
    return (len(shape) == 3 and shape[2] == 3) or (len(shape) == 2 and max(shape) <= 4 * min(shape))


def _some(samples: Samples, each: int) -> list[tuple[str, np.ndarray]]:
    """A few rows of some classes."""
    assert samples.classes is not None
    classes = np.unique(np.linspace(0, len(samples.classes) - 1, min(SHOWN_CLASSES, len(samples.classes))).astype(int))
    return [(samples.classes[c], np.flatnonzero(samples.y == c)[:each]) for c in classes]


def _images(plt: Any, samples: Samples) -> Any:
    rows = _some(samples, SHOWN_EACH)
    margin = 0.3 + 0.08 * max(len(name) for name, _ in rows)
    width = 0.62 * SHOWN_EACH + margin
    figure, axes = plt.subplots(len(rows), SHOWN_EACH, figsize=(width, 0.62 * len(rows) + 0.4), squeeze=False)
    most = float(samples.x[:1000].max())
    for line, (name, chosen) in zip(axes, rows, strict=True):
        for axis in line:
            axis.set_axis_off()
        for axis, row in zip(line, chosen, strict=False):
            axis.imshow(samples.x[row], cmap="gray_r", vmin=0, vmax=most)
        line[0].text(-0.15, 0.5, name, transform=line[0].transAxes, ha="right", va="center", fontsize=8)
    figure.suptitle(f"{samples.name}: {len(samples):,} samples", fontsize=10)
    figure.subplots_adjust(left=margin / width, right=0.99, bottom=0.01, top=0.93, wspace=0.05, hspace=0.05)
    return figure


def _signals(plt: Any, samples: Samples) -> Any:
    rows = _some(samples, 1)
    columns = min(3, len(rows))
    lines = -(-len(rows) // columns)
    figure, axes = plt.subplots(
        lines, columns, figsize=(3.4 * columns, 1.9 * lines), sharex=True, sharey=True, squeeze=False,
        layout="constrained",
    )  # fmt: skip
    for axis, (name, chosen) in zip(axes.ravel(), rows, strict=False):
        axis.plot(samples.x[chosen[0]], linewidth=0.9)
        axis.set_title(name, fontsize=9)
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(color="#e4e4e4", linewidth=0.6)
    figure.suptitle(f"{samples.name}: one of {len(samples):,} samples of each class", fontsize=10)
    return figure


def _histograms(plt: Any, samples: Samples) -> Any:
    step = max(1, len(samples) // LOOKED_AT)
    x = np.asarray(samples.x[::step], np.float64).reshape(len(samples.x[::step]), -1)
    shown = min(SHOWN_FEATURES, x.shape[1])
    columns = min(4, shown)
    lines = -(-shown // columns)
    figure, axes = plt.subplots(
        lines, columns, figsize=(2.6 * columns, 1.8 * lines + 0.4), squeeze=False, layout="constrained"
    )
    names = samples.features or [f"feature {j}" for j in range(x.shape[1])]
    for axis in axes.ravel()[shown:]:
        axis.set_axis_off()
    for j, axis in zip(range(shown), axes.ravel(), strict=False):
        axis.hist(x[np.isfinite(x[:, j]), j], bins=40, color="#0b6e99")
        axis.set_title(names[j], fontsize=9)
        axis.set_yticks([])
        axis.spines[["top", "right", "left"]].set_visible(False)
    more = f", the first {shown} of {x.shape[1]} features" if x.shape[1] > shown else ""
    figure.suptitle(f"{samples.name}: {len(samples):,} samples{more}", fontsize=10)
    return figure
