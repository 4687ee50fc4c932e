"""Two methods on the same seeds or clients: how far apart they are, and whether that may be chance."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

from headstart.statistics.intervals import Interval, mean_interval

__all__ = ["PairedTest", "holm", "paired_test"]

EXACT_UP_TO = 25
"""Pairs up to which the signed-rank test counts all signs; beyond, it takes the normal approximation."""


class PairedTest(NamedTuple):
    """One method minus another, pair by pair."""

    difference: Interval
    t_p: float
    """Of Student's paired test; NaN where there are fewer than two pairs."""
    rank_p: float
    """Of Wilcoxon's signed-rank test, which supposes no normal distribution; 1 where all pairs are tied."""
    above: int
    """Pairs in which the first is larger."""
    below: int
    ties: int


def paired_test(first: np.ndarray, second: np.ndarray) -> PairedTest:
    """Compare pairs of values; those in which one is not finite are left out.

    >>> test = paired_test(np.array([3.0, 4.0, 5.0, 7.0]), np.array([1.0, 2.0, 4.0, 7.0]))
    >>> test.above, test.below, test.ties, round(test.t_p, 4)
    (3, 0, 1, 0.0796)
    """
    differences = np.asarray(first, np.float64) - np.asarray(second, np.float64)
    differences = differences[np.isfinite(differences)]
    above, below = int((differences > 0).sum()), int((differences < 0).sum())
    return PairedTest(
        mean_interval(differences), _t(differences), _signed_rank(differences), above, below,
        len(differences) - above - below,
    )  # fmt: skip


def _t(differences: np.ndarray) -> float:
    if len(differences) < 2:
        return math.nan
    if np.ptp(differences) == 0:
        # Without any deviation the statistic is 0 / 0 or infinite.
        return 1.0 if differences[0] == 0 else 0.0
    return float(stats.ttest_1samp(differences, 0).pvalue)


def _signed_rank(differences: np.ndarray) -> float:
    moved = differences[differences != 0]
    if not len(moved):
        return 1.0 if len(differences) else math.nan
    tied = len(np.unique(np.abs(moved))) < len(moved)
    method = "exact" if len(moved) <= EXACT_UP_TO and not tied else "asymptotic"
    return float(stats.wilcoxon(moved, method=method, correction=method == "asymptotic").pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values corrected for there being many: the chance of one false finding or more stays below the level.

    Holm's step-down: the smallest is multiplied by their number, the next by one less, and none is below the one
    before it. Those that are NaN stay so and are not counted.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, np.float64)
    there = np.flatnonzero(~np.isnan(p))
    order = there[np.argsort(p[there], kind="stable")]
    corrected = np.full(len(p), np.nan)
    factors = len(order) - np.arange(len(order))
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(p[order] * factors)) if len(order) else []
    return [float(value) for value in corrected]
