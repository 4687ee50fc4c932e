"""Means and deviations of columns, whose parts can be computed apart and joined."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from headstart.data.blocks import in_blocks
from headstart.data.tables.encoding import MISSING

__all__ = ["Moments"]

BLOCK_ROWS = 8192

FEW_ROWS = 1000
"""So many rows say about where a column's values lie."""


def _as_they_are(block: np.ndarray) -> np.ndarray:
    return block.astype(np.float64)


@dataclass(frozen=True, eq=False)
class Moments:
    """Of every column: how many values there are, their mean, and the sum of their squared distances from it.

    >>> one, other = (Moments.of(np.array(rows), np.arange(len(rows))) for rows in ([[1.0], [2.0]], [[3.0], [6.0]]))
    >>> both = one.joined(other)
    >>> both.counts.tolist(), both.means.tolist(), both.squares.tolist()
    ([4.0], [3.0], [14.0])
    """

    counts: np.ndarray
    means: np.ndarray
    squares: np.ndarray

    @classmethod
    def of(cls, x: np.ndarray, rows: np.ndarray, take: Callable[[np.ndarray], np.ndarray] = _as_they_are) -> "Moments":
        """Of some rows; ``take`` makes numbers in double precision of a block of them, missing ones as they are."""
        few = take(x[rows[:FEW_ROWS]])
        # Sums of differences from something near the mean lose nothing to rounding.
        near = np.array([np.median(there) if len(there := column[column != MISSING]) else 0.0 for column in few.T])
        chosen = np.zeros(len(x), bool)
        chosen[rows] = True

        def block_sums(part: slice) -> np.ndarray:
            weight, values = chosen[part].astype(np.float64), take(x[part])
            counts = np.full(len(near), weight.sum())
            missing = values == MISSING if len(values) and values.min() <= MISSING else None
            values -= near
            if missing is not None:
                counts -= weight @ missing
                values[missing] = 0
            first = weight @ values
            values *= values
            return np.stack([counts, first, weight @ values])

        blocks = in_blocks(block_sums, len(x), BLOCK_ROWS)
        counts, first, second = np.array(blocks).sum(axis=0) if blocks else np.zeros((3, len(near)))
        beyond = first / np.maximum(counts, 1)
        return cls(counts, near + beyond, np.maximum(second - beyond * first, 0))

    @property
    def deviations(self) -> np.ndarray:
        """Standard deviations; 0 of a constant column, whose rounding may vary a little."""
        variances = self.squares / np.maximum(self.counts, 1)
        rounding = np.finfo(np.float32).eps * np.abs(self.means) / 4
        return np.sqrt(np.where(variances < rounding**2, 0, variances))

    def joined(self, other: "Moments") -> "Moments":
        """Of the rows of both."""
        counts = self.counts + other.counts
        share = other.counts / np.maximum(counts, 1)
        apart = other.means - self.means
        # A column without values has a mean of no meaning.
        means = np.where(self.counts > 0, self.means + share * apart, other.means)
        return Moments(counts, means, self.squares + other.squares + apart**2 * share * self.counts)
