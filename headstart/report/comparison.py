"""The table that a run ends with: what adapting did for clients, method by method."""

from typing import Any

from rich import box
from rich.table import Table

from headstart.simulate import RunRecord

__all__ = ["adapted_after", "comparison_table", "finished_summaries", "headline_metric", "method_title", "settings_of"]


def method_title(label: str, settings: dict[str, Any]) -> str:
    """A method's name for people: its label, and what distinguishes it."""
    curvature = settings.get("curvature")
    if isinstance(curvature, dict):
        curvature = curvature["name"]
    steps = settings.get("inner_steps")
    details = [d for d in (f"{steps} steps" if steps and settings["name"] == "meta-fl" else None, curvature) if d]
    return f"{label} ({', '.join(details)})" if details else label


def settings_of(record: RunRecord, label: str) -> dict[str, Any]:
    """The resolved settings of one method of a run."""
    settings: dict[str, Any] = record.config.get("baselines", {}).get(label) or record.config["algorithm"]
    return settings


def headline_metric(record: RunRecord) -> str:
    """Accuracy where the problem has it, otherwise the loss."""
    names = {row["metric"] for rows in finished_summaries(record).values() for row in rows}
    return "accuracy" if "accuracy" in names else "loss"


def finished_summaries(record: RunRecord) -> dict[str, list[dict[str, Any]]]:
    """The summary rows of every method that was trained to the end."""
    return {label: m.summary.to_pylist() for label, m in record.methods.items() if m.summary is not None}


def comparison_table(record: RunRecord) -> Table:
    """Two rows a finished method, all clients and new ones: the shared model, and the clients' own after each step."""
    metric = headline_metric(record)
    percent = metric == "accuracy"
    finished = finished_summaries(record)
    steps = sorted({row["steps"] for rows in finished.values() for row in rows})
    unit = ", %" if percent else ""
    table = Table(
        title=f"{metric}{unit} at the last round, mean ± deviation over all and over new clients",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    table.add_column("method", overflow="fold", vertical="bottom", min_width=12)
    table.add_column("", no_wrap=True)
    for heading in (*map(adapted_after, steps), "worst 10%", "best round", "time"):
        # In two lines, so that a usual terminal has room for three numbers of steps.
        table.add_column(heading.replace(" ", "\n", 1), justify="right", no_wrap=True)

    def shown(value: float) -> str:
        return f"{100 * value:.1f}" if percent else f"{value:.3f}"

    for label, summary in finished.items():
        rows = [row for row in summary if row["metric"] == metric]
        last = max(row["round"] for row in rows)
        history = record.methods[label].history
        seconds = 0.0 if history is None else sum(history["seconds"].to_pylist())
        title, spent = method_title(label, settings_of(record, label)), f"{seconds:.0f} s"
        for group in sorted({row["group"] for row in rows}):
            mine = {row["steps"]: row for row in rows if (row["round"], row["group"]) == (last, group)}
            curve = [row for row in rows if (row["group"], row["steps"]) == (group, steps[-1])]
            table.add_row(
                title,
                "all" if group == "all" else "new",
                *(f"{shown(mine[step]['mean'])} ± {shown(mine[step]['std'])}" for step in steps),
                shown(mine[steps[-1]]["worst10"]),
                str((max if percent else min)(curve, key=lambda row: row["mean"])["round"]),
                spent,
            )
            title = spent = ""
        table.add_section()
    return table


def adapted_after(steps: int) -> str:
    """How the columns and curves of a number of adaptation steps are called."""
    return "shared model" if steps == 0 else f"after {steps} step{'s' if steps > 1 else ''}"
