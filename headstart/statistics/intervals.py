"""How well a mean, and how well an association, is known from so many values."""

import math
from typing import NamedTuple

import numpy as np
from scipy import stats

__all__ = ["LEVEL", "Association", "Interval", "association", "mean_interval"]

LEVEL = 0.95
"""Intervals cover the truth with this probability, if values are independent."""


class Interval(NamedTuple):
    """A mean, and where it may lie; ends are NaN where there are too few values to say."""

    mean: float
    low: float
    high: float
    number: int

    @property
    def known(self) -> bool:
        """Whether it has ends."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    def excludes(self, value: float) -> bool:
        """Whether a value lies outside."""
        return self.known and not self.low <= value <= self.high


def mean_interval(values: np.ndarray, level: float = LEVEL) -> Interval:
    """The mean of the values that are finite, with Student's interval.

    >>> interval = mean_interval(np.array([1.0, 2.0, 3.0]))
    >>> interval.mean, round(interval.low, 3), round(interval.high, 3)
    (2.0, -0.484, 4.484)
    """
    finite = np.asarray(values, np.float64)
    finite = finite[np.isfinite(finite)]
    count = len(finite)
    if not count:
        return Interval(math.nan, math.nan, math.nan, 0)
    mean = float(finite.mean())
    if count == 1:
        return Interval(mean, math.nan, math.nan, 1)
    half = float(stats.t.ppf((1 + level) / 2, count - 1) * finite.std(ddof=1) / math.sqrt(count))
    return Interval(mean, mean - half, mean + half, count)


class Association(NamedTuple):
    """Spearman's rank correlation of two columns: 1 if they rise together, -1 if one falls as the other rises."""

    rho: float
    low: float
    high: float
    number: int

    @property
    def excludes_none(self) -> bool:
        """Whether zero lies outside its interval."""
        return math.isfinite(self.low) and not self.low <= 0 <= self.high


def association(x: np.ndarray, y: np.ndarray, level: float = LEVEL) -> Association:
    """The rank correlation of pairs that are finite; its interval is by Fisher's z with Bonett and Wright's variance.

    NaN where there are fewer than five pairs, or one column is constant.
    """
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    both = np.isfinite(x) & np.isfinite(y)
    x, y = x[both], y[both]
    count = len(x)
    if count < 5 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return Association(math.nan, math.nan, math.nan, count)
    rho = float(stats.spearmanr(x, y).statistic)
    inside = min(max(rho, -1 + 1e-12), 1 - 1e-12)
    half = stats.norm.ppf((1 + level) / 2) * math.sqrt((1 + rho**2 / 2) / (count - 3))
    return Association(rho, math.tanh(math.atanh(inside) - half), math.tanh(math.atanh(inside) + half), count)
