"""What a report is made from: the records of runs, method by method, as arrays over clients."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headstart.errors import UsageError
from headstart.experiment import MethodRecord, RunRecord, load_run
from headstart.metrics import LOSS, METRICS, Metric
from headstart.report.comparison import method_title, settings_of
from headstart.simulate import summarize, summarized_metrics
from headstart.simulate.evaluate import kept_round

__all__ = ["NEW", "TRAINED", "VALIDATION", "Evidence", "Method", "read_evidence"]

TRAINED, VALIDATION, NEW = "trained", "validation", "new"
"""What a client is to a run."""
NOT_METRICS = frozenset({"round", "client", "held_out", "validation", "steps"})


@dataclass(frozen=True, eq=False)
class Method:
    """One method of one run, as far as it has come."""

    run: RunRecord
    label: str
    title: str
    """For people, and different from every other method's."""
    record: MethodRecord
    metric: Metric
    summary: list[dict[str, Any]]
    """Over clients: one row per round evaluated, group, number of steps and metric."""
    last: int
    """The round whose scores are shown: that of the model which was kept, or else the last evaluation's."""
    once: bool
    """Whether new clients were looked at in that round only, so that they chose nothing; they have no curve then."""
    clients: np.ndarray
    """The names of the clients evaluated."""
    roles: np.ndarray
    """What each of them is to the run: trained, validation or new."""
    scores: dict[int, np.ndarray]
    """The metric of each client in the last evaluation, by number of steps; NaN where it has none."""

    @property
    def steps(self) -> list[int]:
        """The numbers of adaptation steps that were evaluated."""
        return sorted(self.scores)

    @property
    def rounds(self) -> int:
        """Rounds asked for."""
        return int(self.run.config["train"]["rounds"])

    @property
    def trained_rounds(self) -> int:
        """How many rounds there have been; none of a method whose clients all train by themselves."""
        history = self.record.history
        return 0 if history is None or not self.trains else len(history)

    @property
    def trains(self) -> bool:
        """Whether rounds compute anything."""
        history = self.record.history
        if history is None or "gradients" not in history.column_names:
            return True
        return not len(history) or pc.sum(history["gradients"]).as_py() > 0

    @property
    def judged(self) -> str:
        """The group that the method is judged by: new clients, or all where there are none."""
        return NEW if (self.roles == NEW).any() else "all"

    def chosen(self, group: str) -> np.ndarray:
        """Which clients are of a group."""
        return np.ones(len(self.roles), bool) if group == "all" else self.roles == group

    def after(self, group: str) -> np.ndarray:
        """Scores after the most steps."""
        return self.scores[self.steps[-1]][self.chosen(group)]

    @property
    def adapts(self) -> bool:
        """Whether clients were scored before and after adapting."""
        return self.steps[0] == 0 and len(self.steps) > 1

    @cached_property
    def gains(self) -> np.ndarray:
        """What adapting did for each client; above zero is better, whatever the metric."""
        if not self.adapts:
            return np.full(len(self.clients), math.nan)
        change = self.scores[self.steps[-1]] - self.scores[0]
        return change if self.metric.higher_is_better else -change

    def curve(self, group: str, steps: int) -> list[dict[str, Any]]:
        """The summary of the metric in every evaluation; where new clients have none, ``all`` are the others."""
        there = {row["group"] for row in self.summary}
        wanted = "held-out" if group == NEW and NEW not in there else group
        rows = [r for r in self.summary if (r["metric"], r["group"], r["steps"]) == (self.metric.name, wanted, steps)]
        return sorted(rows, key=lambda row: row["round"])

    def spent(self, column: str) -> np.ndarray | None:
        """The sum of a column of the rounds' table after every round, from round 0 on; ``None`` where there is none."""
        history = self.record.history
        if history is None or column not in history.column_names:
            return None
        return np.concatenate([[0.0], np.cumsum(history[column].to_numpy().astype(np.float64))])


@dataclass(frozen=True, eq=False)
class Evidence:
    """All methods of all runs of a report."""

    runs: list[RunRecord]
    methods: list[Method]
    """Those that have been evaluated."""
    waiting: list[str]
    """Those that have not."""
    metric: Metric

    @property
    def groups(self) -> list[str]:
        """The groups that are reported."""
        return ["all", NEW] if any(method.judged == NEW for method in self.methods) else ["all"]

    @property
    def judged(self) -> str:
        """The group by which methods are compared."""
        return self.groups[-1]

    @property
    def followed(self) -> str:
        """The group whose scores are known round by round: the judged one, or whoever stands for it."""
        if not any(method.once for method in self.methods):
            return self.judged
        return VALIDATION if any((method.roles == VALIDATION).any() for method in self.methods) else "all"

    def who(self, group: str) -> str:
        """The clients of a group whose curves are drawn."""
        if group == "all":
            return "all clients but the new ones" if any(method.once for method in self.methods) else "all clients"
        return f"{group} clients"

    @cached_property
    def names(self) -> np.ndarray:
        """Every client that any method was evaluated on."""
        return np.unique(np.concatenate([method.clients for method in self.methods]))


def read_evidence(runs: Sequence[str | Path | RunRecord]) -> Evidence:
    """Read run directories, finished or not; records that are in memory pass through."""
    if not runs:
        raise UsageError("There is no run to report on.", "Name one or more run directories.")
    records = [run if isinstance(run, RunRecord) else load_run(run) for run in runs]
    names = _run_names(records)
    metrics = [_metrics(record) for record in records]
    methods, waiting = [], []
    for record, name, known in zip(records, names, metrics, strict=True):
        for label, method in record.methods.items():
            title = f"{name}{method_title(label, settings_of(record, label))}"
            if method.table is None or not len(method.table):
                waiting.append(title)
            else:
                methods.append(_method(record, label, title, method, known))
    if not methods:
        raise UsageError(
            f"Nothing has been evaluated yet in {', '.join(str(record.path) for record in records)}.",
            "Wait for the first evaluation, or resume the run.",
        )
    different = {method.metric.name: method.title for method in methods}
    if len(different) > 1:
        which = ", ".join(f"{title} by {metric}" for metric, title in different.items())
        raise UsageError(f"These runs are measured by different metrics: {which}.", "Report on them one by one.")
    return Evidence(records, methods, waiting, methods[0].metric)


def _run_names(records: Sequence[RunRecord]) -> list[str]:
    """What methods' titles begin with, so that no two are the same."""
    if len(records) == 1:
        return [""]
    names = [f"run {i}" if record.path is None else record.path.resolve().name for i, record in enumerate(records)]
    if len(set(names)) < len(names):
        names = [name if record.path is None else str(record.path) for name, record in zip(names, records, strict=True)]
    if len(set(names)) < len(names):
        raise UsageError("A run is named twice.", "Name every run directory once.")
    return [f"{name}: " for name in names]


def _metrics(record: RunRecord) -> dict[str, Metric]:
    """The metrics of a run: as a finished method has them, or by their names."""
    for method in record.methods.values():
        if method.summary is not None:
            return summarized_metrics(method.summary)
    names = {n for m in record.methods.values() if m.table is not None for n in m.table.column_names} - NOT_METRICS
    return {name: METRICS.get(name, Metric(name)) for name in sorted(names, key=lambda name: name == LOSS.name)}


def _method(record: RunRecord, label: str, title: str, method: MethodRecord, metrics: dict[str, Metric]) -> Method:
    table = method.table
    assert table is not None
    metric = next((m for name, m in metrics.items() if name != LOSS.name), LOSS)
    last = pc.max(table["round"]).as_py() if method.summary is None else kept_round(method.summary)
    rows = table.filter(pc.equal(table["round"], last))
    steps = sorted(pc.unique(rows["steps"]).to_pylist())
    by_steps = {n: rows.filter(pc.equal(rows["steps"], n)) for n in steps}
    first = by_steps[steps[0]]
    roles = np.where(_flags(first, "held_out"), np.where(_flags(first, "validation"), VALIDATION, NEW), TRAINED)
    new = _flags(table, "held_out") & ~_flags(table, "validation")
    once = bool(new.any()) and pc.count_distinct(table.filter(new)["round"]).as_py() == 1
    once = once and pc.count_distinct(table["round"]).as_py() > 1
    if once:  # a mean over all would be over other clients in that round
        summary = summarize(table.filter(~new), metrics.values())
    else:
        summary = method.summary if method.summary is not None else summarize(table, metrics.values())
    return Method(
        run=record, label=label, title=title, record=method, metric=metric, summary=summary.to_pylist(), last=last,
        once=once,
        clients=first["client"].to_numpy(zero_copy_only=False).astype(str), roles=roles,
        scores={n: part[metric.name].to_numpy().astype(np.float64) for n, part in by_steps.items()},
    )  # fmt: skip


def _flags(table: pa.Table, name: str) -> np.ndarray:
    if name not in table.column_names:
        return np.zeros(len(table), bool)
    return np.asarray(table[name].to_numpy(zero_copy_only=False), bool)
