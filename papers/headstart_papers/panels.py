"""How the panels of figures look: their scales, grids and common legend."""

from collections.abc import Iterable
from typing import Any

from headstart_papers.record import Figure

__all__ = ["legend", "legend_columns", "plain", "scales"]

GREY = "#8a8a8a"


def scales(axis: Any, figure: Figure) -> None:
    """Logarithms where asked for, with ticks at 1, 2 and 5 as plain numbers; thousands as ``20k``."""
    from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

    for wanted, scale, line in ((figure.log, axis.set_yscale, axis.yaxis), (figure.log_x, axis.set_xscale, axis.xaxis)):
        if wanted:
            scale("log")
            low, high = line.get_view_interval()
            line.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 1000 * low else (1.0,)))
            line.set_major_formatter("{x:g}")
            line.set_minor_formatter(NullFormatter())
    if axis.get_xlim()[1] >= 10_000:
        axis.xaxis.set_major_formatter(EngFormatter(sep=""))


def plain(axis: Any) -> None:
    """A light grid, and no box around it."""
    axis.grid(color="#e4e4e4", linewidth=0.8)
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(labelsize=9)


def legend(picture: Any, axes: Any) -> None:
    """One for all panels, below them; marks that every line has are named once, in grey and last."""
    from matplotlib.lines import Line2D

    named: dict[str, Any] = {}
    marks: dict[str, Any] = {}
    for axis in axes.ravel():
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            if label in ("the paper's value", "diverged"):
                marks[label] = Line2D(
                    [], [], linestyle="none", marker=handle.get_marker(), color=GREY, markerfacecolor="white",
                    markersize=6, markeredgewidth=1.6,
                )  # fmt: skip
            else:
                named.setdefault(label, handle)
    entries = named | marks
    picture.legend(
        entries.values(), entries.keys(), loc="outside lower center", frameon=False, fontsize=9,
        ncols=legend_columns(entries, picture.get_figwidth()), handlelength=2.8,
    )  # fmt: skip


def legend_columns(labels: Iterable[str], width: float) -> int:
    """As many as fit into so many inches."""
    labels = list(labels)
    each = 0.8 + 0.075 * max(map(len, labels))
    return max(1, min(len(labels), int(width / each)))
