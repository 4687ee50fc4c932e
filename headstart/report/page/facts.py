"""What is known of the clients' data: how much each has, and how unlike the others it is."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from headstart.config import PYTHON
from headstart.data import Federation
from headstart.data.partitions import describe
from headstart.errors import HeadstartError
from headstart.experiment import Experiment, RunRecord
from headstart.experiment.record import read_manifest
from headstart.simulate.identity import data_digest

__all__ = ["ClientFacts", "facts_of", "parts_of", "read_facts"]


@dataclass(frozen=True)
class ClientFacts:
    """Of the clients of one run, by name; empty where it cannot be known."""

    sizes: dict[str, int] = field(default_factory=dict)
    """Samples to adapt on."""
    distances: dict[str, float] = field(default_factory=dict)
    """Total variation between a client's labels and everybody's: 0 if they are alike, near 1 if it has its own."""
    between: float | None = None
    """Its mean over pairs of clients."""
    missing: str = ""
    """Why something is not known, as a sentence."""

    def of(self, names: np.ndarray, what: dict[str, int] | dict[str, float]) -> np.ndarray:
        """One of the columns, for some clients."""
        return np.array([what.get(str(name), np.nan) for name in names], np.float64)


def read_facts(runs: Sequence[RunRecord], with_data: bool = True) -> ClientFacts:
    """Deal the data of the runs out again, if the record says how and it has not changed since.

    A record has the clients' scores, but neither how much data each has nor what it is like.
    """
    record = runs[0]
    if not with_data:
        return ClientFacts(missing="The data was not read, as asked.")
    if any(other.config["data"] != record.config["data"] for other in runs):
        return ClientFacts(missing="The runs are of different data, so clients are not described.")
    if record.path is None or PYTHON in record.config["data"]:
        return ClientFacts(missing="The run's data came from Python objects, so the record cannot say who has what.")
    try:
        federation = Experiment.from_run(record.path).federation
    except (HeadstartError, OSError) as error:
        reason = str(error).splitlines()[0]
        return ClientFacts(missing=f"The record has no samples, and the data cannot be read here: {reason}")
    if data_digest(federation) != read_manifest(record.path)["data"]:
        return ClientFacts(missing="The data has changed since the run, so clients are not described.")
    return facts_of(federation)


def facts_of(federation: Federation) -> ClientFacts:
    """How much each client has, and how unlike its labels are to everybody's."""
    evaluated = federation.tasks or federation
    sizes: dict[str, int] = {}
    if evaluated.counts is not None:
        sizes = {evaluated.name(i): int(n) for i, n in enumerate(evaluated.counts["support"])}
    if evaluated.partition is None:
        return ClientFacts(
            sizes, missing="The clients' samples come from distributions or tasks, so their labels are not compared."
        )
    summary = describe(evaluated.partition)
    totals = summary.train.sum(axis=1)
    shares = summary.train[totals > 0] / totals[totals > 0, None]
    everybody = summary.train.sum(axis=0) / summary.train.sum()
    distances = np.abs(shares - everybody).sum(axis=1) / 2
    names = [summary.client(int(i)) for i in np.flatnonzero(totals > 0)]
    return ClientFacts(sizes, dict(zip(names, distances.tolist(), strict=True)), summary.distance_between)


def parts_of(column: np.ndarray, most: int) -> list[np.ndarray]:
    """The places of a column's values in at most so many parts, from the smallest values to the largest.

    Equal values are in one part; where there are few different ones, each is a part of its own.

    >>> [part.tolist() for part in parts_of(np.array([7.0, 3.0, 7.0, np.nan, 3.0]), 4)]
    [[1, 4], [0, 2]]
    """
    finite = column[np.isfinite(column)]
    if not len(finite):
        return []
    values = np.unique(finite)
    edges = values if len(values) <= most else np.unique(np.quantile(finite, np.linspace(0, 1, most + 1)))[:-1]
    part = np.searchsorted(edges, column, side="right") - 1
    found = [np.flatnonzero((part == place) & np.isfinite(column)) for place in range(len(edges))]
    return [places for places in found if len(places)]
