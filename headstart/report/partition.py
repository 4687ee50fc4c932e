"""A partition for people: tables of who has what, and a picture."""

from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from headstart.data.partitions.summary import PartitionSummary, Spread
from headstart.report.canvas import pyplot

__all__ = ["partition_table", "plot_partition"]

SHOWN_CLIENTS = 10
SHOWN_CLASSES = 10
MAIN_CLASSES = 3
"""Where there are more classes than fit, a client's row names the most frequent."""

BUBBLE_CLIENTS = 100
"""With more clients than this, single ones cannot be told apart."""
BUBBLE_CLASSES = 30
BLUE, PALE, ORANGE, GREY = "#0b6e99", "#9cc8dc", "#d9730d", "#e4e4e4"
CLASS_COLOURS = (
    "#0b6e99", "#d9730d", "#4d7c3f", "#9065b0", "#ad1a72", "#8c6d3f",
    "#6cb4d6", "#f2b27a", "#a3c995", "#c9b1dc", "#e08fbf", "#cbb78f",
)  # fmt: skip
"""Of few classes; many are told apart by their place on a colour scale."""
COLUMNS, LINES = 1200, 400
"""Pixels of the picture of very many clients."""


def partition_table(summary: PartitionSummary) -> Group:
    """The first clients with what they have, then what holds for all."""
    notes = [Text(f"• {note}") for note in summary.notes]
    return Group(_clients_table(summary), _facts(summary), *notes)


def _clients_table(summary: PartitionSummary) -> Table:
    shown = min(len(summary), SHOWN_CLIENTS)
    every_class = len(summary.classes) <= SHOWN_CLASSES and not summary.regression
    what = "targets" if summary.regression else "training samples of each class"
    table = Table(
        title=f"{summary.name}: {what}",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    table.add_column("client", no_wrap=True)
    table.add_column("train/test", justify="right", no_wrap=True)
    if summary.regression:
        headings = ["mean target", "deviation"]
    elif every_class:
        headings = list(summary.classes)
    else:
        headings = ["most of its training samples"]
    for heading in headings:
        table.add_column(heading, justify="right" if every_class or summary.regression else "left")
    for client in range(shown):
        mine, tests = summary.train[client], summary.query[client]
        if summary.target_means is not None and summary.target_deviations is not None:
            cells = [f"{values[client]:.4g}" for values in (summary.target_means, summary.target_deviations)]
        elif every_class:
            cells = [str(count) if count else "·" for count in mine]
        else:
            main = np.argsort(-mine, kind="stable")[:MAIN_CLASSES]
            cells = [", ".join(f"{summary.classes[c]} {mine[c]}" for c in main if mine[c])]
        name = summary.client(client) + _standing(summary, client)
        table.add_row(name, _pair(mine.sum(), tests.sum()), *cells)
    if shown < len(summary):
        table.add_row(f"... and {len(summary) - shown:,} more")
    return table


def _standing(summary: PartitionSummary, client: int) -> str:
    """Why a client does not train, if so."""
    away = client - (len(summary) - summary.held_out)
    return "" if away < 0 else " (validation)" if away < summary.validation else " (held out)"


def _pair(train: int, tests: int) -> str:
    return f"{train}/{tests}" if train or tests else "·"


def _facts(summary: PartitionSummary) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column()
    trained = len(summary) - summary.held_out
    away = f", {summary.held_out:,} held out" if summary.held_out else ""
    away += f", of which {summary.validation:,} for validation" if summary.validation else ""
    table.add_row("clients", f"{trained:,} train{away}")
    for name, part, sizes in (
        ("training", summary.train, summary.sizes),
        ("test", summary.query, summary.query_sizes),
    ):
        table.add_row(f"{name} samples", f"{part.sum(dtype=np.int64):,} in all; a client has {_range(sizes)}")
    table.add_row(
        "imbalance", f"sizes vary by {summary.sizes.variation:.2f} (deviation / mean); {_ratio(summary.sizes)}"
    )
    labels = "tenths of the targets" if summary.regression else "labels"
    table.add_row(
        "heterogeneity",
        f"total variation of {labels}: {summary.distance_to_all:.3f} from a client to all, "
        f"{summary.distance_between:.3f} between two clients",
    )
    return table


def _range(sizes: Spread) -> str:
    if sizes.least == sizes.most:
        return f"{sizes.least:,.0f}"
    return f"{sizes.least:,.0f} to {sizes.most:,.0f}, median {sizes.median:,.0f}"


def _ratio(sizes: Spread) -> str:
    if not sizes.least:
        return "some clients have none"
    return f"the largest client has {sizes.ratio:,.1f} times the smallest" if sizes.ratio > 1 else "all are equal"


def plot_partition(summary: PartitionSummary, path: Path) -> None:
    """Draw who has what: a bubble for every client and class, or the mixtures of very many clients side by side."""
    plt = pyplot()
    figure = _few_clients(plt, summary) if len(summary) <= BUBBLE_CLIENTS else _many_clients(plt, summary)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _headline(summary: PartitionSummary) -> str:
    held_out = f" ({summary.held_out:,} held out)" if summary.held_out else ""
    return (
        f"{summary.name}: {len(summary):,} clients{held_out}, {summary.train.sum(dtype=np.int64):,} training samples\n"
        f"mean distance between two clients: {summary.distance_between:.2f} (0 alike, 1 nothing in common)"
    )


def _label_name(summary: PartitionSummary) -> str:
    return "target" if summary.regression else "class"


def _few_clients(plt: Any, summary: PartitionSummary) -> Any:
    clients, classes = summary.train.shape
    tall = max(0.2 * min(classes, BUBBLE_CLASSES), 0.8)
    figure, (top, main) = plt.subplots(
        2, 1, figsize=(max(6.4, 1.9 + 0.17 * clients), 2.4 + tall), sharex=True, height_ratios=[1, tall],
        layout="constrained",
    )  # fmt: skip
    place = range(clients)
    train, query = summary.train.sum(axis=1), summary.query.sum(axis=1)
    top.bar(place, train, color=BLUE, width=0.75, label="training")
    top.bar(place, query, bottom=train, color=PALE, width=0.75, label="test")
    top.set_ylabel("samples")
    top.grid(axis="y", color=GREY, linewidth=0.6)
    top.legend(frameon=False, fontsize=8, ncols=2, loc="lower right", bbox_to_anchor=(1, 0.98), borderaxespad=0)
    top.set_title(_headline(summary), fontsize=10, loc="left", pad=20)
    (_bubbles if classes <= BUBBLE_CLASSES else _heat)(figure, main, summary)
    main.set_ylabel(_label_name(summary))
    main.set_xlabel("client")
    main.set_xlim(-0.7, clients - 0.3)
    if summary.names is not None and clients <= 40:
        main.set_xticks(place, [summary.client(i) for i in place], rotation=90, fontsize=8)
    if summary.held_out:
        for axis in (top, main):
            axis.axvspan(clients - summary.held_out - 0.5, clients - 0.5, color="#f5ead9", zorder=-1, linewidth=0)
        main.annotate(
            "held out", (clients - summary.held_out / 2 - 0.5, 1), (0, 3), color=ORANGE, fontsize=8, ha="center",
            xycoords=main.get_xaxis_transform(), textcoords="offset points",
        )  # fmt: skip
    for axis in (top, main):
        axis.spines[["top", "right"]].set_visible(False)
        axis.set_axisbelow(True)
    return figure


def _bubbles(figure: Any, axis: Any, summary: PartitionSummary) -> None:
    """Areas in proportion to training samples; the largest bubble fills its cell."""
    client, label = np.nonzero(summary.train)
    count = summary.train[client, label]
    axis.scatter(client, label, s=115 * count / count.max(initial=1), color=BLUE, linewidths=0)
    axis.set_ylim(len(summary.classes) - 0.4, -0.6)
    axis.set_yticks(range(len(summary.classes)), summary.classes, fontsize=8)
    axis.grid(color=GREY, linewidth=0.6)


def _heat(figure: Any, axis: Any, summary: PartitionSummary) -> None:
    """A cell for every client and class; few samples are to be seen too."""
    counts = np.ma.masked_equal(summary.train.T, 0)
    most = max(int(summary.train.max(initial=0)), 2)
    shown = axis.imshow(counts, aspect="auto", cmap="YlGnBu", norm="log", vmin=1, vmax=most, interpolation="nearest")
    figure.colorbar(shown, ax=axis, label="training samples", pad=0.01, fraction=0.04, format="{x:,.0f}")


def _many_clients(plt: Any, summary: PartitionSummary) -> Any:
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), width_ratios=[1, 1.9], layout="constrained")
    figure.suptitle(_headline(summary), fontsize=10, x=0.01, ha="left")
    _size_histogram(left, summary)
    _mixtures(plt, figure, right, summary)
    for axis in (left, right):
        axis.spines[["top", "right"]].set_visible(False)
    return figure


def _size_histogram(axis: Any, summary: PartitionSummary) -> None:
    sizes, spread = summary.train.sum(axis=1), summary.sizes
    least, most = int(spread.least), int(spread.most)
    if spread.ratio > 30:
        bins: np.ndarray = np.unique(np.round(np.geomspace(max(least, 1), most + 1, 31)))
        axis.set_xscale("log")
        axis.xaxis.set_major_formatter("{x:,.0f}")
    else:
        width = max(1, -(-(most - least) // 30))
        bins = np.arange(least, most + width + 1, width) - 0.5
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.set_xlim(max(min(bins[0], least - 5), -0.5), max(bins[-1], most + 5))
    axis.hist(sizes, bins=bins, color=BLUE)
    axis.axvline(spread.median, color=ORANGE, linewidth=1.5)
    axis.annotate(
        f"median {spread.median:,.0f}", (spread.median, 1), (0, 3), color=ORANGE, fontsize=8, ha="center",
        xycoords=axis.get_xaxis_transform(), textcoords="offset points",
    )  # fmt: skip
    axis.yaxis.set_major_formatter("{x:,.0f}")
    axis.set_xlabel("training samples of a client")
    axis.set_ylabel("clients")
    axis.grid(axis="y", color=GREY, linewidth=0.6)
    axis.set_axisbelow(True)


def _mixtures(plt: Any, figure: Any, axis: Any, summary: PartitionSummary) -> None:
    """A column for every client (or every so many), its classes stacked from the most frequent up, the others paler."""
    from matplotlib.colors import ListedColormap

    classes = len(summary.classes)
    few = classes <= len(CLASS_COLOURS) and not summary.regression
    colours = (
        ListedColormap(CLASS_COLOURS[:classes]) if few else plt.get_cmap("viridis" if summary.regression else "turbo")
    )
    classes_shown, main = _stacked(summary.train)
    shown = axis.imshow(
        classes_shown, alpha=np.where(main, 1, 0.4), cmap=colours, vmin=-0.5, vmax=classes - 0.5,
        aspect="auto", origin="lower", extent=(0, 100, 0, 100), interpolation="nearest",
    )  # fmt: skip
    bar = figure.colorbar(shown, ax=axis, pad=0.02, fraction=0.05)
    bar.solids.set_alpha(1)
    bar.ax.set_title(_label_name(summary), fontsize=9, loc="left")
    if classes <= BUBBLE_CLASSES:
        bar.set_ticks(range(classes), labels=summary.classes, fontsize=8)
    bar.outline.set_visible(False)
    axis.set_xlabel("clients, sorted by what they have most of, %")
    axis.set_ylabel("share of their training samples, %")


def _stacked(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The class of every pixel, clients side by side sorted by their main class and its share; and which are main."""
    counts = counts[counts.any(axis=1)]
    shares = counts / counts.sum(axis=1, keepdims=True)
    order = np.lexsort((-shares.max(axis=1), shares.argmax(axis=1)))
    shares = shares[order[np.linspace(0, len(order) - 1, min(COLUMNS, len(order))).astype(int)]]
    ranked = np.argsort(-shares, axis=1, kind="stable")
    ends = np.cumsum(np.take_along_axis(shares, ranked, axis=1), axis=1)
    heights = (np.arange(LINES) + 0.5) / LINES
    rank = np.stack([np.searchsorted(mine, heights) for mine in ends]).clip(max=shares.shape[1] - 1)
    return np.take_along_axis(ranked, rank, axis=1).T, rank.T == 0
