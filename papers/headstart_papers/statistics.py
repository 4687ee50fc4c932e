"""Means and differences over seeds, with 95% confidence intervals."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

__all__ = ["Estimate", "difference", "estimate", "paired_difference"]

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A mean with the half-width of its 95% interval by Student's t."""

    mean: float
    half_width: float | None
    """``None`` if there is one value only."""
    count: int
    """How many values; the fewer of the two where two samples are compared."""
    p: float | None = None
    """Of the two-sided t-test that the mean is zero."""

    @property
    def low(self) -> float:
        """The interval's lower end."""
        return self.mean - (self.half_width or 0.0)

    @property
    def high(self) -> float:
        """The interval's upper end."""
        return self.mean + (self.half_width or 0.0)


def estimate(values: Sequence[float] | np.ndarray) -> Estimate:
    """The mean over seeds.

    >>> print(f"{estimate([1.0, 2.0, 3.0]).half_width:.3f}")
    2.484
    """
    values = np.asarray(values, float)
    mean = float(values.mean())
    if values.size < 2:
        return Estimate(mean, None, values.size)
    error = float(values.std(ddof=1)) / math.sqrt(values.size)
    return _student(mean, error, values.size - 1, values.size)


def paired_difference(left: Sequence[float] | np.ndarray, right: Sequence[float] | np.ndarray) -> Estimate:
    """The mean of ``left - right``, whose values belong to the same seeds."""
    return estimate(np.asarray(left, float) - np.asarray(right, float))


def difference(left: Sequence[float] | np.ndarray, right: Sequence[float] | np.ndarray) -> Estimate:
    """The difference of means of two samples that have nothing to do with one another, by Welch's t-test."""
    left, right = np.asarray(left, float), np.asarray(right, float)
    mean, count = float(left.mean() - right.mean()), min(left.size, right.size)
    if count < 2:
        return Estimate(mean, None, count)
    first, second = float(left.var(ddof=1)) / left.size, float(right.var(ddof=1)) / right.size
    error = math.sqrt(first + second)
    if not error:
        return _student(mean, 0.0, count - 1, count)
    # Welch and Satterthwaite's degrees of freedom.
    freedom = (first + second) ** 2 / (first**2 / (left.size - 1) + second**2 / (right.size - 1))
    return _student(mean, error, freedom, count)


def _student(mean: float, error: float, freedom: float, count: int) -> Estimate:
    half_width = error * float(stats.t.ppf((1 + CONFIDENCE) / 2, freedom))
    if not error:  # all values are the same
        return Estimate(mean, half_width, count, 0.0 if mean else 1.0)
    return Estimate(mean, half_width, count, 2 * float(stats.t.sf(abs(mean) / error, freedom)))
