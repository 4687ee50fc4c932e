"""Many methods on the same seeds or clients, by their ranks."""

import math
from typing import NamedTuple

import numpy as np
from scipy import stats

__all__ = ["Ranking", "rank_methods"]


class Ranking(NamedTuple):
    """Mean ranks of methods (1 is the best), and how far apart two must be to differ."""

    ranks: np.ndarray
    friedman_p: float
    """Whether any method differs from any other; NaN where there are fewer than three methods or two blocks."""
    critical_difference: float
    """Nemenyi's: mean ranks that are nearer than this may be equal."""
    blocks: int
    """Seeds or clients on which all methods have a score."""

    def alike(self) -> list[tuple[int, ...]]:
        """The largest groups of methods, from the best on, no two of which differ."""
        order = np.argsort(self.ranks, kind="stable")
        groups: list[tuple[int, ...]] = []
        for place, first in enumerate(order):
            near = tuple(int(m) for m in order[place:] if self.ranks[m] - self.ranks[first] < self.critical_difference)
            if len(near) > 1 and not any(set(near) <= set(group) for group in groups):
                groups.append(near)
        return groups


def rank_methods(scores: np.ndarray, higher_is_better: bool, level: float = 0.05) -> Ranking:
    """Rank methods (columns) on each seed or client (row), with Friedman's test and Nemenyi's critical difference.

    Rows in which a method has no score are left out; ties share their mean rank.

    >>> scores = np.array([[3.0, 2.0, 1.0], [30.0, 20.0, 10.0], [3.5, 2.5, 1.5]])
    >>> rank_methods(scores, higher_is_better=True).ranks.tolist()
    [1.0, 2.0, 3.0]
    """
    scores = np.asarray(scores, np.float64)
    scores = scores[np.isfinite(scores).all(axis=1)]
    blocks, methods = scores.shape
    if not blocks:
        return Ranking(np.full(methods, math.nan), math.nan, math.nan, 0)
    ranks = stats.rankdata(-scores if higher_is_better else scores, axis=1)
    p = math.nan
    if methods > 2 and blocks > 1:
        p = 1.0 if (np.ptp(ranks, axis=1) == 0).all() else float(stats.friedmanchisquare(*scores.T).pvalue)
    # Of infinitely many degrees of freedom, for the variance of ranks is known.
    spread = float(stats.studentized_range.ppf(1 - level, methods, np.inf)) if methods > 1 else math.nan
    return Ranking(
        ranks.mean(axis=0), p, spread / math.sqrt(2) * math.sqrt(methods * (methods + 1) / (6 * blocks)), blocks
    )
