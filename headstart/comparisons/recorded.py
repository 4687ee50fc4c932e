"""Comparing runs that are recorded already."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headstart.comparisons.budget import Budget, Spent
from headstart.comparisons.entries import Comparison, Entry
from headstart.errors import UsageError
from headstart.experiment import MethodRecord, RunRecord, load_run
from headstart.metrics import LOSS, Metric
from headstart.simulate import summarized_metrics

__all__ = ["compare_runs"]

COLUMNS = {"rounds": (), "samples": ("samples",), "bytes": ("bytes_up", "bytes_down")}


def compare_runs(runs: Sequence[str | Path | RunRecord], *, at: Budget = "rounds") -> Comparison:
    """Compare the methods of finished runs on the clients that they share.

    Runs of one configuration that differ in their seeds are seeds of the same methods. Each method is looked at in
    the last evaluation by which it had spent no more than the one that spent least.
    """
    records = [run if isinstance(run, RunRecord) else load_run(run) for run in runs]
    groups: dict[str, list[tuple[RunRecord, str]]] = {}
    for record in records:
        for label in record.methods:
            groups.setdefault(_identity(record, label), []).append((record, label))
    metrics = {metric.name: metric for record in records for metric in [_headline(record)]}
    if len(metrics) > 1:
        raise UsageError(f"The runs are measured by {', '.join(metrics)}.", "Compare those of one metric.")
    (metric,) = metrics.values()
    everyone = [member for members in groups.values() for member in members]
    budget = min(_spent(record.methods[label], at)[-1] for record, label in everyone)
    titles = _titles(groups)
    entries = [
        _entry(title, members, metric, at, budget) for title, members in zip(titles, groups.values(), strict=True)
    ]
    return Comparison(metric, entries, at)


def _identity(record: RunRecord, label: str) -> str:
    """All but the seed, as text."""
    config = {key: value for key, value in record.config.items() if key not in ("seed", "algorithm", "baselines")}
    return json.dumps([label, _settings(record, label), config], sort_keys=True, default=str)


def _settings(record: RunRecord, label: str) -> dict[str, Any]:
    settings: dict[str, Any] = record.config.get("baselines", {}).get(label) or record.config["algorithm"]
    return settings


def _headline(record: RunRecord) -> Metric:
    for label, method in record.methods.items():
        if method.summary is None:
            raise UsageError(f"{label} of {record.path} has not been trained to the end.", "Resume the run first.")
        metrics = summarized_metrics(method.summary)
        return next((metric for name, metric in metrics.items() if name != LOSS.name), LOSS)
    raise UsageError(f"{record.path} has no method.", "Name another run.")


def _titles(groups: dict[str, list[tuple[RunRecord, str]]]) -> list[str]:
    labels = [members[0][1] for members in groups.values()]
    if len(set(labels)) == len(labels):
        return labels
    paths = [members[0][0].path for members in groups.values()]
    names = [label if path is None else f"{path.name}: {label}" for label, path in zip(labels, paths, strict=True)]
    return names if len(set(names)) == len(names) else [f"{i}: {label}" for i, label in enumerate(labels, 1)]


def _spent(method: MethodRecord, at: Budget) -> np.ndarray:
    """What had been spent after every round, from round 0 on."""
    assert method.history is not None
    if at == "rounds":
        return np.arange(len(method.history) + 1, dtype=np.float64)
    each = sum(method.history[column].to_numpy().astype(np.float64) for column in COLUMNS[at])
    return np.concatenate([[0.0], np.cumsum(each)])


def _entry(title: str, members: Sequence[tuple[RunRecord, str]], metric: Metric, at: Budget, budget: float) -> Entry:
    seeds = tuple(record.config["seed"] for record, _ in members)
    if len(set(seeds)) < len(seeds):
        raise UsageError(f"Two runs of {title} have the same seed and settings.", "Name one of them.")
    looked = [_at_budget(record.methods[label], metric, at, budget) for record, label in members]
    first = looked[0]
    for other in looked[1:]:
        if not np.array_equal(other.clients, first.clients) or not np.array_equal(other.rounds, first.rounds):
            raise UsageError(f"The runs of {title} have evaluated different clients or rounds.", "Compare other runs.")
    return Entry(
        title=title,
        settings=_settings(*members[0]),
        seeds=seeds,
        clients=first.clients,
        new=first.new,
        steps=first.steps,
        scores=np.stack([one.scores for one in looked]),
        spent=Spent(*np.mean([one.spent for one in looked], axis=0)),
        rounds=first.rounds,
        curve=np.stack([one.curve for one in looked], axis=1),
    )


class _Looked:
    """One method of one run, when it had spent the budget."""

    def __init__(self, method: MethodRecord, metric: Metric, last: int):
        table = method.table
        assert table is not None
        columns = {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names}
        self.rounds = np.unique(columns["round"])
        self.rounds = self.rounds[self.rounds <= last]
        self.steps = tuple(int(n) for n in np.unique(columns["steps"]))
        here = columns["round"] <= last
        order = np.lexsort((columns["client"][here].astype(str), columns["steps"][here], columns["round"][here]))
        values = columns[metric.name][here][order].astype(np.float64).reshape(len(self.rounds), len(self.steps), -1)
        one = slice(0, values.shape[-1])
        self.clients = columns["client"][here][order][one].astype(str)
        held_out = columns["held_out"][here][order][one].astype(bool)
        validation = np.zeros(len(held_out), bool)
        if "validation" in columns:
            validation = columns["validation"][here][order][one].astype(bool)
        self.new = held_out & ~validation
        self.scores = values[-1]
        judged = self.new if self.new.any() else np.ones(len(self.new), bool)
        self.curve = values[:, -1][:, judged].mean(axis=-1)
        budgets: tuple[Budget, ...] = ("rounds", "samples", "bytes")
        self.spent = Spent(*(_spent(method, at)[int(self.rounds[-1])] for at in budgets))


def _at_budget(method: MethodRecord, metric: Metric, at: Budget, budget: float) -> _Looked:
    spent = _spent(method, at)
    last = int(np.flatnonzero(spent <= budget)[-1])
    return _Looked(method, metric, last)
