"""Means, deviations and categories, fitted on what clients train on and on nothing else."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from headstart.data.partitions import Partition
from headstart.data.rows import RowLists
from headstart.data.samples import TargetScale
from headstart.data.tables.encoding import MISSING, CategoryColumn, Encoding, NumberColumn, bent
from headstart.data.tables.middles import EXACT, ROUGH, lower_median
from headstart.data.tables.moments import Moments
from headstart.errors import UsageError

__all__ = [
    "Bend",
    "Standardize",
    "Statistics",
    "bend_of",
    "distances_of",
    "drawn_in",
    "fitted",
    "fitted_by",
    "fitted_target",
    "sample_step",
    "standardize_by_client",
    "target_moments",
    "target_scale",
    "training_rows",
    "values_of",
]

Standardize = Literal["federation", "client", "none"]
"""Whose mean and deviation numbers are standardised with."""

LIMIT = 8.0
"""The most deviations from the mean that a model is given: rare, wild or wrong numbers are worth no more."""

HEAVY = 2.0
"""Tails are heavy where the deviation is so many times that of a normal variable with the same middle half."""

SAMPLED_ROWS = 10_000
"""About as many rows are looked at for the middle of a column."""


@dataclass(frozen=True, eq=False)
class Statistics:
    """What the training rows say of every column; those of rows that lie apart can be joined."""

    rows: int
    moments: Moments
    seen: Mapping[int, np.ndarray]
    """Of each column of categories, which there are."""

    @classmethod
    def of(cls, encoding: Encoding, x: np.ndarray, rows: np.ndarray) -> "Statistics":
        """Of some rows, as an encoding stores them."""
        seen = {}
        for j, column in encoding.categories:
            codes = x[rows, j].astype(np.int64)
            seen[j] = np.bincount(codes[codes >= 0], minlength=len(column.categories)) > 0
        return cls(len(rows), Moments.of(x, rows), seen)

    def joined(self, other: "Statistics") -> "Statistics":
        """Of the rows of both."""
        seen = {j: here | other.seen[j] for j, here in self.seen.items()}
        return Statistics(self.rows + other.rows, self.moments.joined(other.moments), seen)


class Bend(NamedTuple):
    """About which value a column is drawn in, and how far from it that begins."""

    middle: float
    width: float


def fitted(encoding: Encoding, partition: Partition, standardize: Standardize) -> Encoding:
    """The encoding with what the training rows of the training clients say."""
    x, rows = partition.samples.x, training_rows(partition)
    statistics = Statistics.of(encoding, x, rows)
    bends = _bends(x, rows, encoding, statistics.moments.deviations) if standardize == "federation" else {}
    bent_moments = Moments.of(x, rows, drawn_in(bends)) if bends else None
    return fitted_by(encoding, standardize, statistics, bends, bent_moments)


def fitted_by(
    encoding: Encoding,
    standardize: Standardize,
    statistics: Statistics,
    bends: Mapping[int, Bend],
    bent_moments: Moments | None,
) -> Encoding:
    """The encoding with what is known of the training rows; ``bends`` and their moments are of heavy tails."""
    counts, means, deviations = statistics.moments.counts, statistics.moments.means, statistics.moments.deviations
    heavy = {} if bent_moments is None else _bent_columns(encoding, bends, bent_moments)
    columns: list[NumberColumn | CategoryColumn] = []
    for j, column in enumerate(encoding.columns):
        if isinstance(column, CategoryColumn):
            known = tuple(name for name, there in zip(column.categories, statistics.seen[j], strict=True) if there)
            columns.append(replace(column, known=known))
            continue
        column = replace(column, fill=float(means[j]), indicated=bool(counts[j] < statistics.rows))
        if j in heavy:
            columns.append(replace(heavy[j], indicated=column.indicated))
        elif standardize == "federation":
            columns.append(replace(column, center=float(means[j]), scale=_inverse(deviations[j])))
        elif standardize == "client":
            columns.append(replace(column, fill=0.0))
        else:
            columns.append(replace(column, center=-column.offset))
    return Encoding(tuple(columns), standardize == "client", None if standardize == "none" else LIMIT)


def fitted_target(partition: Partition) -> TargetScale:
    """The scale of a regression's targets: those of the training rows get mean 0 and deviation 1."""
    samples = partition.samples
    return target_scale(samples.target, target_moments(samples.y, training_rows(partition)))


def target_moments(y: np.ndarray, rows: np.ndarray) -> Moments:
    """Of the targets of some rows."""
    return Moments.of(y.reshape(-1, 1), rows)


def target_scale(target: TargetScale, moments: Moments) -> TargetScale:
    """The scale that gives the targets of the training rows mean 0 and deviation 1."""
    return replace(target, center=float(moments.means[0]), scale=float(moments.deviations[0]) or 1.0)


def training_rows(partition: Partition) -> np.ndarray:
    """The training rows of the clients that train."""
    trained = len(partition) - partition.held_out
    return partition.train.rows[: partition.train.starts[trained]]


def sample_step(rows: int) -> int:
    """Of so many training rows, one in how many is looked at for the middle of a column."""
    return max(1, rows // SAMPLED_ROWS)


def values_of(column: np.ndarray) -> np.ndarray:
    """The values that there are."""
    return column[column != MISSING].astype(np.float64)


def distances_of(values: np.ndarray, middle: float) -> np.ndarray:
    """How far values are from the median; rows that have the median itself (most, of a count that is mostly zero) do
    not count for the width of the middle."""
    distances = np.abs(values - middle)
    return distances[distances > 0]


def bend_of(middle: float | None, distance: float | None, deviation: float) -> Bend | None:
    """How a column of heavy tails is drawn in, from its median, the median distance from it, and its deviation.

    Its deviation is a multiple of what it would be if it came from the middle half.
    """
    if middle is None or distance is None:
        return None
    # The median distance of a normal variable from its mean is 0.6745 deviations.
    width = distance / 0.6745
    return Bend(middle, width) if width and deviation > HEAVY * width else None


def _bends(x: np.ndarray, rows: np.ndarray, encoding: Encoding, deviations: np.ndarray) -> dict[int, Bend]:
    """The columns of heavy tails."""
    found = {}
    few = x[np.sort(rows[:: sample_step(len(rows))])]
    for j, _ in encoding.numbers:
        values = values_of(few[:, j])
        middle = lower_median(values, EXACT) if len(values) else None
        distances = values if middle is None else distances_of(values, middle)
        distance = lower_median(distances, ROUGH) if len(distances) else None
        if (bend := bend_of(middle, distance, deviations[j])) is not None:
            found[j] = bend
    return found


def drawn_in(bends: Mapping[int, Bend]) -> Callable[[np.ndarray], np.ndarray]:
    """What takes the columns of heavy tails from a block of rows, and draws them in."""
    where, (middles, widths) = list(bends), np.array(list(bends.values())).T

    def take(block: np.ndarray) -> np.ndarray:
        values = block[:, where].astype(np.float64)
        return np.where(values == MISSING, MISSING, bent(values, middles, widths, np.arcsinh))

    return take


def _bent_columns(encoding: Encoding, bends: Mapping[int, Bend], moments: Moments) -> dict[int, NumberColumn]:
    """The columns of heavy tails, standardised after they have been drawn in."""
    found = {}
    for (j, (middle, width)), center, deviation in zip(bends.items(), moments.means, moments.deviations, strict=True):
        column = encoding.columns[j]
        assert isinstance(column, NumberColumn)
        found[j] = replace(
            column,
            middle=middle,
            bend=width,
            center=float(center),
            scale=_inverse(deviation),
            # What is missing becomes the mean of what a model is given, which is 0.
            fill=float(middle + width * np.sinh(center)),
        )
    return found


def _inverse(deviation: float) -> float:
    return 1 / float(deviation) if deviation else 0.0


def standardize_by_client(encoding: Encoding, partition: Partition) -> None:
    """Standardise clients' stored numbers in place, each with the mean and deviation of what it trains or adapts on."""
    x = partition.samples.x
    if not x.flags.writeable:
        raise UsageError(
            f"{partition.samples.name} is on disk, and is not rewritten for every client's own mean and deviation.",
            "Set standardize to 'federation' or 'none'.",
        )
    own = _adapted_on(partition)
    owner, fit_owner = (np.repeat(np.arange(len(partition)), lists.counts) for lists in (_both(partition), own))
    rows = _both(partition).rows
    for j, _ in encoding.numbers:
        values = x[own.rows, j].astype(np.float64)
        there = values != MISSING
        counts = np.maximum(np.bincount(fit_owner[there], minlength=len(partition)), 1)
        means = np.bincount(fit_owner[there], values[there], minlength=len(partition)) / counts
        spread = np.where(there, values - means[fit_owner], 0) ** 2
        deviations = np.sqrt(np.bincount(fit_owner, spread, minlength=len(partition)) / counts)
        scales = np.divide(1, deviations, out=np.zeros_like(deviations), where=deviations > 0)
        values = x[rows, j].astype(np.float64)
        x[rows, j] = np.where(values == MISSING, MISSING, (values - means[owner]) * scales[owner])


def _adapted_on(partition: Partition) -> RowLists:
    """What each client may learn from: its training rows, or its support where it never trains."""
    if partition.support is None or not partition.held_out:
        return partition.train
    trained = len(partition) - partition.held_out
    return _joined(partition.train[:trained], partition.support[trained:])


def _joined(first: RowLists, second: RowLists) -> RowLists:
    return RowLists(
        np.concatenate([first.rows, second.rows]), np.concatenate([first.starts, first.starts[-1] + second.starts[1:]])
    )


def _both(partition: Partition) -> RowLists:
    """All rows of each client."""
    owner = np.concatenate(
        [np.repeat(np.arange(len(partition)), lists.counts) for lists in (partition.train, partition.query)]
    )
    rows = np.concatenate([partition.train.rows, partition.query.rows])
    return RowLists.by_owner(owner, len(partition), rows)
