"""Pictures of a run."""

import math
from pathlib import Path

from headstart.experiment import RunRecord
from headstart.report.canvas import COLOURS, pyplot
from headstart.report.comparison import (
    adapted_after,
    finished_summaries,
    headline_metric,
    method_title,
    settings_of,
    shown_groups,
)

__all__ = ["plot_run"]


def plot_run(record: RunRecord, path: Path) -> None:
    """Draw the clients' mean score against rounds, before and after adapting, for all and for new clients."""
    plt = pyplot()
    metric = headline_metric(record)
    finished = finished_summaries(record)
    groups = list(shown_groups(row["group"] for rows in finished.values() for row in rows))
    figure, axes = plt.subplots(
        1, len(groups), figsize=(5.2 * len(groups), 3.8), sharex=True, sharey=True, squeeze=False
    )
    for axis, group in zip(axes[0], groups, strict=True):
        for colour, (label, summary) in zip(COLOURS * len(finished), finished.items(), strict=False):
            rows = [r for r in summary if r["metric"] == metric.name and r["group"] == group]
            if not rows:
                continue
            most = max(row["steps"] for row in rows)
            for steps in sorted({row["steps"] for row in rows}):
                curve = sorted((row["round"], metric.scale * row["mean"]) for row in rows if row["steps"] == steps)
                title = method_title(label, settings_of(record, label))
                ended = "" if math.isfinite(curve[-1][1]) else ", diverged"
                axis.plot(
                    *zip(*curve, strict=True),
                    marker="o" if len(curve) == 1 else None,  # new clients are looked at once
                    color=colour,
                    linestyle="-" if steps == most else (0, (2, 2)) if steps else (0, (1, 2)),
                    linewidth=2 if steps == most else 1.5,
                    label=f"{title}, {adapted_after(steps)}{ended}",
                )
        axis.set_title("all clients" if group == "all" else "new clients, which never trained", fontsize=11)
        axis.set_xlabel("communication round")
        axis.grid(color="#e4e4e4", linewidth=0.8)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_ylabel(f"mean {metric.title}")
    handles, labels = axes[0][0].get_legend_handles_labels()
    columns = min(len(finished), 3)  # one per method
    figure.legend(handles, labels, loc="lower center", ncols=columns, frameon=False, fontsize=9)
    figure.tight_layout(rect=(0, 0.06 + 0.05 * -(-len(labels) // columns), 1, 1))
    figure.savefig(path, dpi=150)
    plt.close(figure)
