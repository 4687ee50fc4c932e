"""What a comparison is of, and what its differences are worth."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from headstart.comparisons.budget import Budget, Spent
from headstart.data import Federation
from headstart.errors import UsageError
from headstart.metrics import Metric
from headstart.statistics import Interval, PairedTest, Ranking, holm, mean_interval, paired_test, rank_methods

__all__ = ["Comparison", "Entry", "Pair"]

NEW = "new"


@dataclass(frozen=True, eq=False)
class Entry:
    """One method with its settings, trained with several seeds."""

    title: str
    settings: Mapping[str, Any]
    seeds: tuple[int, ...]
    clients: np.ndarray
    """The names of the clients evaluated."""
    new: np.ndarray
    """Which of them nothing was trained on or chosen by."""
    steps: tuple[int, ...]
    scores: np.ndarray
    """The metric over (seed, number of steps, client), when the budget was spent."""
    spent: Spent
    """By each seed."""
    rounds: np.ndarray
    """The rounds evaluated."""
    curve: np.ndarray
    """The mean over judged clients after the most steps: one row per round evaluated, one column per seed."""


class Pair(NamedTuple):
    """Two methods compared; above zero the first is better."""

    first: str
    second: str
    test: PairedTest
    p: float
    """Of the test, corrected by Holm for all pairs of the comparison."""

    def differs(self, level: float = 0.05) -> bool:
        """Whether the difference is more than chance."""
        return self.p < level


@dataclass(frozen=True, eq=False)
class Comparison:
    """Methods at equal budgets."""

    metric: Metric
    entries: Sequence[Entry]
    at: Budget
    """What each was given equally much of."""
    federation: Federation | None = None
    """The clients, where they are the same for all methods and at hand."""
    data: str | None = None
    """What the data is called."""

    def __post_init__(self) -> None:
        if len(self.entries) < 2:
            raise UsageError("There is one method only.", "Name two or more to compare.")

    @property
    def judged(self) -> str:
        """The group of clients that methods are compared on."""
        return NEW if all(entry.new.any() for entry in self.entries) else "all"

    @cached_property
    def clients(self) -> np.ndarray:
        """The names of the judged clients, which all methods were evaluated on."""
        shared = self._judged(self.entries[0])
        for entry in self.entries[1:]:
            shared = np.intersect1d(shared, self._judged(entry))
        return np.unique(shared)

    @property
    def seeds(self) -> list[int]:
        """Those that all methods were trained with."""
        return sorted(set.intersection(*(set(entry.seeds) for entry in self.entries)))

    def scores(self, entry: Entry, steps: int | None = None) -> np.ndarray:
        """A method's scores on the judged clients: one row per seed, one column per client; after the most steps."""
        _, _, places = np.intersect1d(self.clients, entry.clients, return_indices=True)
        return entry.scores[:, -1 if steps is None else entry.steps.index(steps)][:, places]

    def diverged(self, entry: Entry) -> int:
        """With how many of its seeds a method has left a judged client without a score."""
        return int(np.isnan(self.scores(entry)).any(axis=1).sum())

    def means(self) -> list[Interval]:
        """Each method's mean over clients, with its interval over the seeds that have not diverged."""
        return [mean_interval(self.scores(entry).mean(axis=1)) for entry in self.entries]

    def order(self) -> list[int]:
        """The methods from the best mean to the worst; those that diverged with any seed come after all others."""
        means = np.array([mean.mean for mean in self.means()])
        lost = np.array([self.diverged(entry) for entry in self.entries])
        return [int(i) for i in np.lexsort((np.where(np.isnan(means), np.inf, self._sign * -means), lost))]

    def over_seeds(self) -> list[Pair]:
        """Every pair of methods on the same seeds, by Student's paired test; the mean over clients is what differs."""
        seeds = self.seeds
        rows = [self.scores(entry)[[entry.seeds.index(seed) for seed in seeds]].mean(axis=1) for entry in self.entries]
        return self._pairs(rows, lambda test: test.t_p)

    def over_clients(self) -> list[Pair]:
        """Every pair of methods on the same clients, by Wilcoxon's signed ranks; the mean over seeds is what differs.

        Clients of one federation share their models, so that they are not quite independent.
        """
        return self._pairs(list(self._client_means().T), lambda test: test.rank_p)

    def ranking(self) -> Ranking:
        """The methods' ranks on each client, by its mean over seeds; one that has diverged there is the last."""
        means = self._client_means()
        finite = means[np.isfinite(means)]
        if finite.size:
            worst = finite.min() - 1 if self.metric.higher_is_better else finite.max() + 1
            means = np.where(np.isfinite(means), means, worst)
        return rank_methods(means, self.metric.higher_is_better)

    def best_for(self) -> np.ndarray:
        """The number of the method that is best for each client; -1 where several are, or none has a score."""
        means = self._sign * self._client_means()
        means = np.where(np.isnan(means), -np.inf, means)
        best = means.max(axis=1, keepdims=True)
        alone = ((means == best).sum(axis=1) == 1) & np.isfinite(best[:, 0])
        return np.where(alone, means.argmax(axis=1), -1)

    @property
    def _sign(self) -> float:
        return 1.0 if self.metric.higher_is_better else -1.0

    def _judged(self, entry: Entry) -> np.ndarray:
        return entry.clients[entry.new] if self.judged == NEW else entry.clients

    def _client_means(self) -> np.ndarray:
        """One row per client, one column per method."""
        return np.stack([self.scores(entry).mean(axis=0) for entry in self.entries], axis=1)

    def _pairs(self, rows: Sequence[np.ndarray], p_of: Any) -> list[Pair]:
        numbers = list(combinations(range(len(self.entries)), 2))
        tests = [paired_test(self._sign * rows[i], self._sign * rows[j]) for i, j in numbers]
        corrected = holm([p_of(test) for test in tests])
        return [
            Pair(self.entries[i].title, self.entries[j].title, test, p)
            for (i, j), test, p in zip(numbers, tests, corrected, strict=True)
        ]
