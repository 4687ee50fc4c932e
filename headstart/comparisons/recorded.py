"""Comparing runs that are recorded already."""

import json
from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc

from headstart.comparisons.budget import Budget, Spent
from headstart.comparisons.entries import Comparison, Entry
from headstart.errors import UsageError
from headstart.experiment import MethodRecord, RunRecord, load_run
from headstart.metrics import LOSS, Metric
from headstart.simulate import summarized_metrics
from headstart.simulate.evaluate import kept_round

__all__ = ["compare_runs"]

COLUMNS = {"rounds": (), "samples": ("samples",), "bytes": ("bytes_up", "bytes_down")}


def compare_runs(runs: Sequence[str | Path | RunRecord], *, at: Budget = "rounds") -> Comparison:
    """Compare the methods of finished runs on the clients that they share.

    Runs of one configuration that differ in their seeds are seeds of the same methods. Each method is looked at in
    the last evaluation by which it had spent no more than the one that spent least, and where the model of an earlier
    round was kept, in that one. Clients that train by themselves, without rounds, spend nothing.
    """
    records = [run if isinstance(run, RunRecord) else load_run(run) for run in runs]
    for record in records[1:]:
        if not record.same_clients(records[0]):
            raise UsageError(
                f"{records[0].path} and {record.path} are of different data, so their clients are not the same.",
                "Compare runs of the same data.",
            )
    groups: dict[str, list[tuple[RunRecord, str]]] = {}
    for record in records:
        for label in record.methods:
            groups.setdefault(_identity(record, label), []).append((record, label))
    metrics = {metric.name: metric for record in records for metric in [_headline(record)]}
    if len(metrics) > 1:
        raise UsageError(f"The runs are measured by {', '.join(metrics)}.", "Compare those of one metric.")
    (metric,) = metrics.values()
    everyone = [record.methods[label] for members in groups.values() for record, label in members]
    budget = min(_spent(method, at)[-1] for method in [m for m in everyone if _trains(m)] or everyone)
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


def _trains(method: MethodRecord) -> bool:
    """Whether its rounds compute anything."""
    history = method.history
    return history is not None and len(history) > 0 and pc.sum(history["gradients"]).as_py() > 0


def _spent(method: MethodRecord, at: Budget) -> np.ndarray:
    """What had been spent after every round, from round 0 on."""
    assert method.history is not None
    if at == "rounds":
        return np.arange(len(method.history) + 1, dtype=np.float64)
    if not _trains(method):
        return np.zeros(len(method.history) + 1)
    each = sum(method.history[column].to_numpy().astype(np.float64) for column in COLUMNS[at])
    return np.concatenate([[0.0], np.cumsum(each)])


def _entry(title: str, members: Sequence[tuple[RunRecord, str]], metric: Metric, at: Budget, budget: float) -> Entry:
    seeds = tuple(record.config["seed"] for record, _ in members)
    if len(set(seeds)) < len(seeds):
        raise UsageError(f"Two runs of {title} have the same seed and settings.", "Name one of them.")
    looked = [_at_budget(record.methods[label], metric, at, budget) for record, label in members]
    first = looked[0]
    if any(not np.array_equal(other.clients, first.clients) for other in looked[1:]):
        raise UsageError(f"The runs of {title} have evaluated different clients.", "Compare other runs.")
    rounds = reduce(np.intersect1d, [one.rounds for one in looked])
    if not len(rounds):  # each seed has kept another round, and there is no curve but the end
        rounds = first.rounds[-1:]
    return Entry(
        title=title,
        settings=_settings(*members[0]),
        seeds=seeds,
        clients=first.clients,
        new=first.new,
        steps=first.steps,
        scores=np.stack([one.scores for one in looked]),
        spent=Spent(*np.mean([one.spent for one in looked], axis=0)),
        rounds=rounds,
        curve=np.stack([one.at(rounds) for one in looked], axis=1),
    )


class _Looked:
    """One method of one run, when it had spent the budget: that round's scores, or those of an earlier one kept."""

    def __init__(self, method: MethodRecord, metric: Metric, last: int):
        assert method.summary is not None
        kept = min(last, kept_round(method.summary))
        table = method.table
        assert table is not None
        columns = {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names}
        rounds, evaluated = np.unique(columns["round"], return_counts=True)
        place = int(np.flatnonzero(rounds <= kept)[-1])
        # New clients may have been looked at in one round only; then there is no curve but that point.
        self.rounds = rounds[: place + 1][evaluated[: place + 1] == evaluated[place]]
        self.steps = tuple(int(n) for n in np.unique(columns["steps"]))
        here = np.isin(columns["round"], self.rounds)
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
        paid = last if kept < min(last, rounds[-1]) else int(self.rounds[-1])
        self.spent = Spent(*(_spent(method, at)[paid] for at in budgets))

    def at(self, rounds: np.ndarray) -> np.ndarray:
        """The curve at some of its rounds, or its end at one that it does not have."""
        places = np.searchsorted(self.rounds, rounds)
        return np.asarray(self.curve[np.minimum(places, len(self.rounds) - 1)])


def _at_budget(method: MethodRecord, metric: Metric, at: Budget, budget: float) -> _Looked:
    spent = _spent(method, at)
    last = int(np.flatnonzero(spent <= budget)[-1])
    return _Looked(method, metric, last)
