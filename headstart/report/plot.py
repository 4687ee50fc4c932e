"""Pictures of a run."""

from pathlib import Path

from headstart.report.canvas import COLOURS, pyplot
from headstart.report.comparison import adapted_after, finished_summaries, headline_metric, method_title, settings_of
from headstart.simulate import RunRecord

__all__ = ["plot_run"]


def plot_run(record: RunRecord, path: Path) -> None:
    """Draw the clients' mean score against rounds, before and after adapting, for all and for new clients."""
    plt = pyplot()
    metric = headline_metric(record)
    scale = 100 if metric == "accuracy" else 1
    finished = finished_summaries(record)
    groups = sorted({row["group"] for rows in finished.values() for row in rows})
    figure, axes = plt.subplots(1, len(groups), figsize=(5.2 * len(groups), 3.8), sharey=True, squeeze=False)
    for axis, group in zip(axes[0], groups, strict=True):
        for colour, (label, summary) in zip(COLOURS * len(finished), finished.items(), strict=False):
            rows = [r for r in summary if r["metric"] == metric and r["group"] == group]
            most = max(row["steps"] for row in rows)
            for steps in sorted({row["steps"] for row in rows}):
                curve = [(row["round"], scale * row["mean"]) for row in rows if row["steps"] == steps]
                title = method_title(label, settings_of(record, label))
                axis.plot(
                    *zip(*sorted(curve), strict=True),
                    color=colour,
                    linestyle="-" if steps == most else (0, (2, 2)) if steps else (0, (1, 2)),
                    linewidth=2 if steps == most else 1.5,
                    label=f"{title}, {adapted_after(steps)}",
                )
        axis.set_title("all clients" if group == "all" else "new clients, which never trained", fontsize=11)
        axis.set_xlabel("communication round")
        axis.grid(color="#e4e4e4", linewidth=0.8)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_ylabel("mean accuracy, %" if metric == "accuracy" else f"mean {metric}")
    handles, labels = axes[0][0].get_legend_handles_labels()
    columns = min(len(finished), 3)  # a column a method
    figure.legend(handles, labels, loc="lower center", ncols=columns, frameon=False, fontsize=9)
    figure.tight_layout(rect=(0, 0.06 + 0.05 * -(-len(labels) // columns), 1, 1))
    figure.savefig(path, dpi=150)
    plt.close(figure)
