"""The table that a run ends with: what adapting did for clients, method by method."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import reduce
from textwrap import wrap
from typing import Any, NamedTuple

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from headstart.errors import UsageError
from headstart.experiment import RunRecord
from headstart.metrics import LOSS, Metric
from headstart.simulate import summarized_metrics
from headstart.simulate.evaluate import kept_round

__all__ = [
    "adapted_after",
    "broken_title",
    "comparison_notes",
    "comparison_table",
    "finished_summaries",
    "headline_metric",
    "lost",
    "method_title",
    "settings_of",
    "shown_groups",
    "shown_round",
    "step_columns",
]

WIDTH = 80
"""Columns of a usual terminal."""
LEAST_NAME, MOST_NAME = 12, 24
"""Between these, the width of methods' names is that of their longest word."""

Row = Mapping[str, Any]
"""A row of a summary."""


def method_title(label: str, settings: dict[str, Any]) -> str:
    """A method's name for people: its label, and what distinguishes it."""
    curvature = settings.get("curvature")
    if isinstance(curvature, dict):
        curvature = curvature["name"]
    steps = settings.get("inner_steps")
    details = [f"{steps} steps"] if steps and settings["name"] == "meta-fl" else []
    details += [curvature] if curvature and curvature not in label else []
    return f"{label} ({', '.join(details)})" if details else label


def settings_of(record: RunRecord, label: str) -> dict[str, Any]:
    """The resolved settings of one method of a run."""
    settings: dict[str, Any] = record.config.get("baselines", {}).get(label) or record.config["algorithm"]
    return settings


def headline_metric(record: RunRecord) -> Metric:
    """The first metric that the problem reports beside its loss, or the loss if there is no other."""
    summary = next((m.summary for m in record.methods.values() if m.summary is not None), None)
    if summary is None:
        raise UsageError(f"No method of {record.path} was trained to the end.", "Resume the run first.")
    metrics = summarized_metrics(summary)
    return next((metric for name, metric in metrics.items() if name != LOSS.name), LOSS)


def finished_summaries(record: RunRecord) -> dict[str, list[dict[str, Any]]]:
    """The summary rows of every method that was trained to the end."""
    return {label: m.summary.to_pylist() for label, m in record.methods.items() if m.summary is not None}


def shown_round(record: RunRecord, label: str) -> int:
    """The round of a method whose model is its result."""
    summary = record.methods[label].summary
    assert summary is not None
    return kept_round(summary)


class StepColumn(NamedTuple):
    """A column of scores: its heading, and after how many steps of adaptation each method's are."""

    heading: str
    steps: Mapping[str, int]


def step_columns(record: RunRecord) -> list[StepColumn]:
    """One column per number of steps; where methods adapt by different numbers, the shared model and clients' own."""
    summaries = finished_summaries(record)
    steps = {
        label: sorted({row["steps"] for row in rows if row["round"] == shown_round(record, label)})
        for label, rows in summaries.items()
    }
    first = next(iter(steps.values()))
    if all(numbers == first for numbers in steps.values()):
        return [StepColumn(adapted_after(n), dict.fromkeys(steps, n)) for n in first]
    shared = StepColumn(adapted_after(0), {label: numbers[0] for label, numbers in steps.items()})
    return [shared, StepColumn("own model", {label: numbers[-1] for label, numbers in steps.items()})]


def comparison_table(record: RunRecord, width: int = WIDTH) -> Table:
    """Two rows per finished method, all clients and new ones: the shared model, and the clients' own after each step.

    Fits the width: where it would be wider, it breaks the methods' names between words, leaves out the time, the best
    round and the deviations, and at last has a row for every number of steps.
    """
    metric = headline_metric(record)
    methods = [_Method(record, label, metric) for label in finished_summaries(record)]
    tables = (_table(record, methods, layout) for layout in LAYOUTS)
    console = Console(width=10 * width)
    # Title and notes are broken into lines where the columns end.
    fitting = (table for table in tables if console.measure(_without_text(table)).maximum <= width)
    return next(fitting, _table(record, methods, LAYOUTS[-1]))


class _Layout(NamedTuple):
    """What a comparison shows, and how."""

    extras: tuple[str, ...]
    deviations: bool = True
    whole_names: bool = False
    stacked: bool = False
    """Whether each number of steps has a row instead of a column."""


WORST, BEST, TIME = "worst 10%", "best round", "time"
LAYOUTS = (
    _Layout((WORST, BEST, TIME), whole_names=True),
    _Layout((WORST, BEST, TIME)),
    _Layout((WORST, BEST)),
    _Layout((WORST,)),
    _Layout((WORST, BEST, TIME), deviations=False),
    _Layout((WORST,), deviations=False),
    _Layout((WORST,), stacked=True),
    _Layout((WORST,), deviations=False, stacked=True),
)
"""From the widest to the narrowest."""


def _table(record: RunRecord, methods: list["_Method"], layout: _Layout) -> Table:
    shown = "mean ± deviation" if layout.deviations else "mean"
    summaries = finished_summaries(record).values()
    whose = "all and over new clients" if _any_new(summaries) else "all clients"
    table = Table(
        title=f"{methods[0].metric.title} at the {_which(record)} round, {shown} over {whose}",
        title_justify="left",
        caption="\n".join(map(escape, comparison_notes(record))) or None,
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    table.add_column("method", vertical="bottom", no_wrap=True)
    table.add_column("", vertical="bottom", no_wrap=True)
    numbers = ["steps", "own model"] if layout.stacked else [column.heading for column in step_columns(record)]
    for heading in (*numbers, *layout.extras):
        # In two lines, so that a usual terminal has room for three numbers of steps.
        table.add_column(heading.replace(" ", "\n", 1), justify="right", vertical="bottom", no_wrap=True)
    for method in methods:
        for row in method.table_rows(layout):
            table.add_row(*map(escape, row))
        table.add_section()
    return table


def _any_new(summaries: Iterable[Sequence[Row]]) -> bool:
    """Whether there are clients that never trained."""
    return any("new" in shown_groups(row["group"] for row in rows).values() for rows in summaries)


def _which(record: RunRecord) -> str:
    """Whether all methods are shown as they were in the end."""
    finished = finished_summaries(record)
    ends = all(shown_round(record, label) == max(row["round"] for row in rows) for label, rows in finished.items())
    return "last" if ends else "best"


def _without_text(table: Table) -> Table:
    bare = copy(table)
    bare.title = bare.caption = None
    return bare


class _Method:
    """One method's part of the comparison."""

    def __init__(self, record: RunRecord, label: str, metric: Metric):
        self.title = method_title(label, settings_of(record, label))
        self.metric = metric
        summary = finished_summaries(record)[label]
        self._last = shown_round(record, label)
        self._rows = [row for row in summary if row["metric"] == metric.name]
        self._losses = {_place(row): row for row in summary if row["metric"] == LOSS.name}
        self.steps = [column.steps[label] for column in step_columns(record)]
        self._lost = lost(record, label)
        self._kept = keeps_best(record)
        history = record.methods[label].history
        # Training that diverges at once has no rounds to tell of.
        self._seconds = 0.0 if history is None or not len(history) else sum(history["seconds"].to_pylist())

    def table_rows(self, layout: _Layout) -> Iterator[list[str]]:
        """The rows for all and for new clients."""
        title = self.title if layout.whole_names else broken_title(self.title)
        time = f"{self._seconds:.0f} s"
        for group, name in shown_groups(row["group"] for row in self._rows).items():
            last = {row["steps"]: row for row in self._rows if (row["round"], row["group"]) == (self._last, group)}
            if layout.stacked:
                for steps in self.steps:
                    yield [
                        title,
                        name,
                        str(steps),
                        self._mean(last[steps], layout),
                        self._shown(last[steps], "worst10"),
                    ]
                    title = name = ""
                continue
            most = self.steps[-1]
            curve = [row for row in self._rows if (row["group"], row["steps"]) == (group, most)]
            extras = {WORST: self._shown(last[most], "worst10"), BEST: self._best_round(curve), TIME: time}
            means = [self._mean(last[steps], layout) for steps in self.steps]
            yield [title, name, *means, *(extras[extra] for extra in layout.extras)]
            title = time = ""

    def _mean(self, row: Row, layout: _Layout) -> str:
        mean = self._shown(row, "mean")
        if not layout.deviations or self._lost or not math.isfinite(row["mean"]):
            return mean
        if row["clients"] < 2:
            return mean
        return f"{mean} ± {self.metric.show(row['std'], beside=row['mean'])}"

    def _shown(self, row: Row, name: str) -> str:
        if self._lost:
            return "diverged"
        if math.isfinite(row[name]):
            return self.metric.show(row[name])
        return "undefined" if math.isfinite(self._losses[_place(row)]["mean"]) else "diverged"

    def _best_round(self, curve: Sequence[Row]) -> str:
        if self._lost or self._kept:
            return "none" if self._lost else str(self._last)
        best = reduce(lambda one, other: other if self.metric.better(other["mean"], one["mean"]) else one, curve)
        return str(best["round"]) if math.isfinite(best["mean"]) else "none"


def shown_groups(groups: Iterable[str]) -> dict[str, str]:
    """The groups of clients that are reported, and what they are called: all, and those that nothing was chosen by."""
    there = set(groups)
    new = next((group for group in ("new", "held-out") if group in there), None)
    return {"all": "all"} if new is None else {"all": "all", new: "new"}


def keeps_best(record: RunRecord) -> bool:
    """Whether the best round was kept, and not the last."""
    return record.config.get("train", {}).get("keep") == "best"


def lost(record: RunRecord, label: str) -> bool:
    """Whether a method has diverged, and no model of an earlier round was kept."""
    return record.methods[label].diverged is not None and not keeps_best(record)


def _ways_to_adapt(record: RunRecord) -> list[str]:
    """By how many steps of which size clients have made their own models, where a search has found it."""
    ways = []
    for label, adapting in record.config.get("adapt", {}).items():
        settings = settings_of(record, label)
        steps = settings.get("own_steps", adapting["steps"])
        size = adapting.get("inner_lr", settings.get("inner_lr", settings.get("learning_rate")))
        if label in finished_summaries(record):
            ways.append(f"{label} {steps}" + (f" of {size:.3g}" if steps and size is not None else ""))
    return [f"Steps of adaptation: {'; '.join(ways)}."] if ways else []


def comparison_notes(record: RunRecord) -> list[str]:
    """What a comparison has to say beside its numbers.

    How clients adapt, the privacy that they cost, methods and clients that diverged, and clients on whom a metric is
    undefined.
    """
    notes, metric = _ways_to_adapt(record), headline_metric(record)
    if record.privacy is not None:
        notes.append(f"Each method has {record.privacy}.")
    for label, summary in finished_summaries(record).items():
        title, last = method_title(label, settings_of(record, label)), shown_round(record, label)
        if (reason := record.methods[label].diverged) is not None:
            kept = "" if lost(record, label) else f" Round {last} was kept."
            notes.append(f"{title} diverged: {reason[0].lower()}{reason[1:]}{kept}")
            if lost(record, label):
                continue
        here = [row for row in summary if row["round"] == last and row["group"] == "all"]
        missing = {name: {r["steps"]: r for r in here if r["metric"] == name} for name in (LOSS.name, metric.name)}
        diverged = {steps: row["left_out"] for steps, row in missing[LOSS.name].items()}
        undefined = {steps: row["left_out"] - diverged[steps] for steps, row in missing[metric.name].items()}
        total = here[0]["clients"] + here[0]["left_out"]
        for counts, what in ((diverged, "diverged"), (undefined, f"have no {metric.name}")):
            some = {steps: count for steps, count in counts.items() if 0 < count < total}
            for count in sorted(set(some.values())):
                where = ", ".join(adapted_after(steps) for steps in some if some[steps] == count)
                notes.append(f"{title}: {count} of {total} clients {what} ({where}) and are left out.")
    notes += [f"{label} was not trained to the end." for label, m in record.methods.items() if m.summary is None]
    return notes


def _place(row: Row) -> tuple[int, str, int]:
    return row["round"], row["group"], row["steps"]


def broken_title(title: str) -> str:
    """A name in lines, broken between words, and within one only if it is very long."""
    longest = max(len(word) for word in title.split())
    return "\n".join(wrap(title, max(LEAST_NAME, min(longest, MOST_NAME)), break_on_hyphens=False))


def adapted_after(steps: int) -> str:
    """How the columns and curves of a number of adaptation steps are called."""
    return "shared model" if steps == 0 else f"after {steps} step{'s' if steps > 1 else ''}"
