"""Means, deviations and categories, fitted on what clients train on and on nothing else."""

from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np

from headstart.data.blocks import in_blocks
from headstart.data.partitions import Partition
from headstart.data.rows import RowLists
from headstart.data.samples import TargetScale
from headstart.data.tables.encoding import MISSING, CategoryColumn, Encoding, NumberColumn, bent
from headstart.errors import UsageError

__all__ = ["Standardize", "fitted", "fitted_target", "standardize_by_client", "training_rows"]

Standardize = Literal["federation", "client", "none"]
"""Whose mean and deviation numbers are standardised with."""

BLOCK_ROWS = 8192

LIMIT = 8.0
"""The most deviations from the mean that a model is given: rare, wild or wrong numbers are worth no more."""

HEAVY = 2.0
"""Tails are heavy where the deviation is so many times that of a normal variable with the same middle half."""

SAMPLED_ROWS = 10_000
"""About as many rows are looked at for the middle of a column."""


def fitted(encoding: Encoding, partition: Partition, standardize: Standardize) -> Encoding:
    """The encoding with what the training rows of the training clients say."""
    x, rows = partition.samples.x, training_rows(partition)
    counts, means, deviations = _moments(x, rows)
    bends = _bends(x, rows, encoding, deviations) if standardize == "federation" else {}
    drawn_in = _bent_columns(encoding, bends, x, rows) if bends else {}
    columns: list[NumberColumn | CategoryColumn] = []
    for j, column in enumerate(encoding.columns):
        if isinstance(column, CategoryColumn):
            seen = np.bincount(x[rows, j].astype(np.int64), minlength=len(column.categories))
            known = tuple(name for name, count in zip(column.categories, seen, strict=True) if count)
            columns.append(replace(column, known=known))
            continue
        column = replace(column, fill=float(means[j]), indicated=bool(counts[j] < len(rows)))
        if j in drawn_in:
            columns.append(replace(drawn_in[j], indicated=column.indicated))
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
    y = samples.y[training_rows(partition)].astype(np.float64)
    return replace(samples.target, center=float(y.mean()), scale=float(y.std()) or 1.0)


def training_rows(partition: Partition) -> np.ndarray:
    """The training rows of the clients that train."""
    trained = len(partition) - partition.held_out
    return partition.train.rows[: partition.train.starts[trained]]


class _Bend(NamedTuple):
    """About which value a column is drawn in, and how far from it that begins."""

    middle: float
    width: float


def _bends(x: np.ndarray, rows: np.ndarray, encoding: Encoding, deviations: np.ndarray) -> dict[int, _Bend]:
    """The columns of heavy tails: their deviation is a multiple of what it would be if it came from the middle half.

    Rows that have the median itself (most, of a count that is mostly zero) do not count for the width of the middle.
    """
    found = {}
    few = x[np.sort(rows[:: max(1, len(rows) // SAMPLED_ROWS)])]
    for j, _ in encoding.numbers:
        values = few[:, j][few[:, j] != MISSING].astype(np.float64)
        if not len(values):
            continue
        middle = float(np.median(values))
        distances = np.abs(values - middle)
        distances = distances[distances > 0]
        # The median distance of a normal variable from its mean is 0.6745 deviations.
        width = float(np.median(distances)) / 0.6745 if len(distances) else 0.0
        if width and deviations[j] > HEAVY * width:
            found[j] = _Bend(middle, width)
    return found


def _bent_columns(
    encoding: Encoding, bends: dict[int, _Bend], x: np.ndarray, rows: np.ndarray
) -> dict[int, NumberColumn]:
    """The columns of heavy tails, standardised after they have been drawn in."""
    where, middles, widths = list(bends), *np.array(list(bends.values())).T
    chosen = np.zeros(len(x), bool)
    chosen[rows] = True

    def block_sums(part: slice) -> np.ndarray:
        block = x[part][:, where].astype(np.float64)
        there = chosen[part, None] & (block != MISSING)
        values = np.where(there, bent(block, middles, widths, np.arcsinh), 0)
        return np.stack([there.sum(axis=0), values.sum(axis=0), (values**2).sum(axis=0)])

    counts, first, second = np.array(in_blocks(block_sums, len(x), BLOCK_ROWS)).sum(axis=0)
    centers = first / counts
    scales = 1 / np.sqrt(second / counts - centers**2)
    # What is missing becomes the mean of what a model is given, which is 0.
    fills = middles + widths * np.sinh(centers)
    found = {}
    for j, middle, width, center, scale, fill in zip(where, middles, widths, centers, scales, fills, strict=True):
        fitted_as = {"middle": middle, "bend": width, "center": center, "scale": scale, "fill": fill}
        found[j] = replace(encoding.columns[j], **{name: float(value) for name, value in fitted_as.items()})
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


def _moments(x: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of every column: how many of some rows have a value, and their mean and standard deviation."""
    few = np.where((few := x[rows[:1000]].astype(np.float64)) == MISSING, np.nan, few)
    # Sums of differences from something near the mean lose nothing to rounding, even in single precision.
    near = np.array([np.median(column[~np.isnan(column)]) if (~np.isnan(column)).any() else 0.0 for column in few.T])
    chosen = np.zeros(len(x), bool)
    chosen[rows] = True
    for precision in (np.float32, np.float64):
        sums = np.array(in_blocks(lambda part: _block_sums(x[part], chosen[part], near, precision), len(x), BLOCK_ROWS))  # noqa: B023
        counts, first, second = sums.sum(axis=0)
        if np.isfinite(second).all():
            break
    mean = first / np.maximum(counts, 1)
    variance = np.maximum(second / np.maximum(counts, 1) - mean**2, 0)
    # Rounding makes a constant column vary a little.
    rounding = np.finfo(np.float32).eps * np.abs(near) / 4
    return counts, near + mean, np.sqrt(np.where(variance < rounding**2, 0, variance))


def _block_sums(block: np.ndarray, chosen: np.ndarray, near: np.ndarray, precision: type) -> np.ndarray:
    """Of every column's values in chosen rows: how many there are, and their sum and sum of squares, less something."""
    weight: np.ndarray = chosen.astype(precision)
    counts = np.full(block.shape[1], weight.sum(), np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        values = block - near.astype(precision)
        if block.min() <= MISSING:
            missing = block == MISSING
            counts -= weight @ missing
            values[missing] = 0
        first = weight @ values
        values *= values
        return np.stack([counts, first, weight @ values])
