"""What clients would have without any model: a constant, beside which the scores of models are seen."""

from typing import NamedTuple

import numpy as np

from headstart.data import Federation
from headstart.data.partitions import Partition
from headstart.data.rows import RowLists
from headstart.data.tables import commonest_class
from headstart.experiment import RunRecord
from headstart.report.comparison import finished_summaries, headline_metric, settings_of, shown_round

__all__ = ["Constants", "constant_scores", "naive_note"]

MOST_CLIENTS = 50_000
"""Of more clients this would take seconds, and they are nobody's own table."""


class Constants(NamedTuple):
    """The mean score over clients of the best constant of each client's own rows, and of one for all clients."""

    own: float
    shared: float


def constant_scores(partition: Partition, metric: str, group: str) -> Constants | None:
    """The scores of constants for the clients of a group, ``new`` or ``all``, as the metric of a model's are.

    A client's own constant is learned from the rows that it adapts on: the class that most of them have, or their mean.
    ``None`` for other metrics than these are best for, where samples are no rows with one label each, and where a host
    of several has let go of them.
    """
    samples = partition.samples
    labels = np.asarray(samples.y)
    wanted = "accuracy" if samples.classes is not None else "rmse"
    if metric != wanted or labels.ndim != 1 or partition.episodes is not None:
        return None
    if len(labels) <= partition.train.rows.max(initial=-1):
        return None
    clients = len(partition)
    trained = clients - partition.held_out
    first = trained + partition.validation if group == "new" else 0
    support = partition.train if partition.support is None else partition.support
    everyone = _constant(labels[partition.train.rows[: partition.train.starts[trained]]], wanted)
    scores = [
        [
            _score(labels[partition.query[i]], constant, wanted)
            for constant in (_own(labels, support, i, wanted), everyone)
        ]
        for i in range(first, clients)
        if len(partition.query[i]) and len(support[i])
    ]
    return Constants(*map(float, np.mean(scores, axis=0))) if scores else None


def _own(labels: np.ndarray, support: RowLists, client: int, metric: str) -> float:
    return _constant(labels[support[client]], metric)


def _constant(labels: np.ndarray, metric: str) -> float:
    return float(np.bincount(labels).argmax() if metric == "accuracy" else labels.mean(dtype=np.float64))


def _score(labels: np.ndarray, constant: float, metric: str) -> float:
    if metric == "accuracy":
        return float(np.mean(labels == constant))
    return float(np.sqrt(np.mean((labels.astype(np.float64) - constant) ** 2)))


def naive_note(record: RunRecord, federation: Federation) -> str | None:
    """A line that says what constants give, and whether clients' own models are better; ``None`` if that is unknown."""
    metric, partition = headline_metric(record), federation.partition
    if partition is None or federation.total != len(partition) or len(partition) > MOST_CLIENTS:
        return None
    group = "new" if partition.held_out > partition.validation else "all"
    constants = constant_scores(partition, metric.name, group)
    if constants is None:
        return None
    what = "most frequent class" if metric.name == "accuracy" else "mean"
    shown = f"{metric.show(constants.own)}{metric.unit}", f"{metric.show(constants.shared)}{metric.unit}"
    note = (
        f"Without a model, {group} clients have {metric.name} {shown[0]} by each one's own {what}, "
        f"{shown[1]} by that of all."
    )
    least = constants.own if metric.better(constants.own, constants.shared) else constants.shared
    found = _own_models(record, metric.name, group)
    if found and not any(metric.better(value, least) for value in found):
        uneven = commonest_class(partition) is not None
        why = (
            "whoever names the usual class is hard to beat; the AUC says whether others are told from it."
            if uneven
            else "the columns may tell little of the label, or rows are too few."
        )
        note += f" No method's own models are better: {why}"
    return note


def _own_models(record: RunRecord, metric: str, group: str) -> list[float]:
    """The mean scores of clients' own models, by method; clients who train alone share none."""
    found = []
    for label, rows in finished_summaries(record).items():
        if settings_of(record, label).get("name") == "local-only":
            continue
        groups = {row["group"] for row in rows}
        of = next((name for name in (group, "held-out") if name in groups), "all")
        here = [r for r in rows if (r["round"], r["group"], r["metric"]) == (shown_round(record, label), of, metric)]
        if here:
            found.append(max(here, key=lambda row: row["steps"])["mean"])
    return found
