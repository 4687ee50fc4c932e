"""What a partition looks like: who has how much of what, and how unlike the clients are."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from headstart.data.partitions.dealing import class_labels
from headstart.data.partitions.partition import Partition
from headstart.data.rows import RowLists

__all__ = ["PartitionSummary", "Spread", "describe"]

BINS = 10


@dataclass(frozen=True)
class Spread:
    """How a number varies over clients."""

    least: float
    median: float
    most: float
    mean: float
    deviation: float

    @classmethod
    def of(cls, values: np.ndarray) -> "Spread":
        """The spread of some numbers."""
        return cls(*(float(f(values)) for f in (np.min, np.median, np.max, np.mean, np.std)))

    @property
    def variation(self) -> float:
        """The coefficient of variation: deviation over mean."""
        return self.deviation / self.mean if self.mean else 0.0

    @property
    def ratio(self) -> float:
        """The most over the least."""
        return self.most / self.least if self.least else float("inf")


@dataclass(frozen=True, eq=False)
class PartitionSummary:
    """A partition in numbers. Distances are total variations between the clients' training label distributions.

    For a regression the labels are the tenths of all training targets (of the first, where there are several): two
    clients are at distance 0 if as much of their targets lies in each tenth, and at 1 if they share no tenth.
    """

    name: str
    classes: tuple[str, ...]
    """The classes, or the ranges of the targets' tenths."""
    regression: bool
    train: np.ndarray
    """How many training samples each client (row) has of each class (column)."""
    query: np.ndarray
    sizes: Spread
    """Training samples a client."""
    query_sizes: Spread
    distance_to_all: float
    """Mean total variation between a client's labels and everybody's, over clients with training samples."""
    distance_between: float
    """Mean total variation between two clients' labels, over all pairs of clients with training samples."""
    held_out: int
    validation: int
    """How many of those held out are for choosing settings."""
    names: Sequence[str] | None
    notes: tuple[str, ...]
    target_means: np.ndarray | None = None
    """Each client's mean training target, for a regression; NaN for a client without training samples."""
    target_deviations: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.train)

    def client(self, number: int) -> str:
        """What a client is called."""
        return str(number) if self.names is None else str(self.names[number])


def describe(partition: Partition) -> PartitionSummary:
    """Count who has what, and measure how unlike the clients are."""
    samples = partition.samples
    means = deviations = None
    if samples.classes is not None:
        labels, classes = class_labels(samples), samples.classes
    else:
        targets = samples.y.reshape(len(samples), -1)[:, 0].astype(float) + samples.target.offset
        labels, classes = _tenths(targets, partition.train.rows)
        means, deviations = _moments(targets, partition.train)
    train, query = (_counted(lists, labels, len(classes)) for lists in (partition.train, partition.query))
    to_all, between = _distances(train)
    return PartitionSummary(
        name=samples.name,
        classes=classes,
        regression=samples.classes is None,
        train=train,
        query=query,
        sizes=Spread.of(partition.train.counts),
        query_sizes=Spread.of(partition.query.counts),
        distance_to_all=to_all,
        distance_between=between,
        held_out=partition.held_out,
        validation=partition.validation,
        names=partition.names,
        notes=partition.notes,
        target_means=means,
        target_deviations=deviations,
    )


def _counted(lists: RowLists, labels: np.ndarray, classes: int) -> np.ndarray:
    """Clients by classes; 32 bits, for a million clients have many counts."""
    cells = np.repeat(np.arange(len(lists)) * classes, lists.counts) + labels[lists.rows]
    return np.bincount(cells, minlength=len(lists) * classes).reshape(len(lists), classes).astype(np.int32)


def _tenths(targets: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, tuple[str, ...]]:
    """Each row's tenth of the training targets, and what to call the tenths."""
    # Targets with few values have fewer different tenths.
    edges = np.unique(np.quantile(targets[rows], np.linspace(0, 1, BINS + 1)))
    if len(edges) < 2:
        return np.zeros(len(targets), np.int64), (f"{edges[0]:.3g}",)
    labels = np.searchsorted(edges[1:-1], targets, side="right")
    return labels, tuple(f"{low:.3g} to {high:.3g}" for low, high in pairwise(edges))


def _moments(targets: np.ndarray, lists: RowLists) -> tuple[np.ndarray, np.ndarray]:
    """Each client's mean and deviation of the targets."""
    owner = np.repeat(np.arange(len(lists)), lists.counts)
    counts = np.where(lists.counts == 0, np.nan, lists.counts)
    means = np.bincount(owner, targets[lists.rows], len(lists)) / counts
    squares = np.bincount(owner, (targets[lists.rows] - means[owner]) ** 2, len(lists))
    return means, np.sqrt(squares / counts)


def _distances(counts: np.ndarray) -> tuple[float, float]:
    """Mean total variation of the rows' distributions to that of all, and between two of them."""
    counts = counts[counts.any(axis=1)]
    clients = len(counts)
    if not clients:
        return 0.0, 0.0
    shares = counts / counts.sum(axis=1, keepdims=True)
    everybody = counts.sum(axis=0) / counts.sum()
    to_all = float(np.abs(shares - everybody).sum(axis=1).mean() / 2)
    if clients == 1:
        return to_all, 0.0
    # The sum of |a_i - a_j| over all pairs needs only a sort: the k-th smallest is above k others and below the rest.
    shares.sort(axis=0)
    above_minus_below = 2.0 * np.arange(clients) - (clients - 1)
    pairs = clients * (clients - 1) / 2
    return to_all, float((above_minus_below @ shares).sum() / pairs / 2)
