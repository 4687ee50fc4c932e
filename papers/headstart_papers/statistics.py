"""Means and differences over seeds with 95% confidence intervals, and what decides where there are many."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

__all__ = [
    "CONTRARY",
    "Estimate",
    "difference",
    "diverges_more",
    "estimate",
    "holm",
    "paired_difference",
]

CONFIDENCE = 0.95

CONTRARY = (1 - CONFIDENCE) / 2
"""The level at which one side of an interval is left behind."""


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
    error: float | None = None
    """The standard error of the mean."""
    freedom: float | None = None
    """Student's degrees of freedom."""

    @property
    def low(self) -> float:
        """The interval's lower end."""
        return self.mean - (self.half_width or 0.0)

    @property
    def high(self) -> float:
        """The interval's upper end."""
        return self.mean + (self.half_width or 0.0)

    def p_below(self, bound: float) -> float:
        """Of the one-sided t-test that the true mean is ``bound`` or more: small where it lies below."""
        if self.error is None or self.freedom is None:
            return 1.0
        if not self.error:
            return 0.0 if self.mean < bound else 1.0
        return float(stats.t.cdf((self.mean - bound) / self.error, self.freedom))

    def with_count(self, count: int) -> "Estimate":
        """The same with so many values, if mean and spread stay.

        >>> estimate([0.0, 2.0, 4.0]).with_count(7).low > 0 > estimate([0.0, 2.0, 4.0]).with_count(6).low
        True
        """
        if self.error is None:
            return self
        return _student(self.mean, self.error * math.sqrt(self.count / count), count - 1, count)


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
        return Estimate(mean, half_width, count, 0.0 if mean else 1.0, error, freedom)
    return Estimate(mean, half_width, count, 2 * float(stats.t.sf(abs(mean) / error, freedom)), error, freedom)


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values of several tests, adjusted so that the smallest of them may be looked at (Holm 1979).

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    adjusted, reached = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        reached = max(reached, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = reached
    return adjusted


def diverges_more(first: int, second: int, of: int) -> float:
    """The one-sided p of Fisher's exact test that ``first`` of so many runs is no more than chance beside ``second``.

    >>> round(diverges_more(4, 0, 5), 3), round(diverges_more(1, 0, 5), 3)
    (0.024, 0.5)
    """
    return float(stats.fisher_exact([[first, of - first], [second, of - second]], alternative="greater").pvalue)
