"""Clients as they are: a column says whose sample it is."""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from headstart.core import checks
from headstart.data.partitions.dealing import (
    check_share,
    class_labels,
    factorized,
    rank_in_runs,
    runs_of,
    shuffled_within,
    sorted_within,
)
from headstart.data.partitions.partition import Partition, Partitioner
from headstart.data.rows import RowLists, starts_of
from headstart.data.samples import Samples
from headstart.errors import UsageError

__all__ = ["Natural", "SmallClients"]


class SmallClients(UsageError):
    """Clients are too small to be split; ``droppable`` unless all of them are."""

    def __init__(self, problem: str, remedy: str, droppable: bool):
        super().__init__(problem, remedy)
        self.droppable = droppable


class _Owned(NamedTuple):
    """Some rows, whose they are, and how many each client has."""

    rows: np.ndarray | None
    """``None`` for all of them."""
    owner: np.ndarray
    counts: np.ndarray

    def of(self, values: np.ndarray) -> np.ndarray:
        """The values of these rows."""
        return values if self.rows is None else values[self.rows]


@dataclass(frozen=True)
class Natural(Partitioner):
    """One client for every value of a column, such as the person that a sample is from.

    Each client's test samples are a random ``test_share`` of its own. With ``group`` they are whole groups (recordings,
    say), so that overlapping windows of one recording are never on both sides; where a class is the majority in two
    or more of a client's groups, one of them at least is for training and one for tests. With ``order`` they are the
    last in the order of that column. ``test_share="own"`` takes the source's own test rows.

    Clients with fewer than ``min_samples`` samples, or with nothing for one of the sides, are refused or dropped as
    ``small`` says. With ``shots``, clients that are evaluated adapt on that many of their training samples of each
    class (of all, for a regression), and on the fewer they have where they have fewer.
    """

    column: str
    test_share: float | Literal["own"] = 0.2
    group: str | None = None
    order: str | None = None
    min_samples: int = 2
    small: Literal["refuse", "drop"] = "refuse"
    shots: int | None = None

    def __post_init__(self) -> None:
        if self.test_share != "own":
            check_share("test_share", self.test_share)
        ways = [f"{name} = {value!r}" for name, value in (("group", self.group), ("order", self.order)) if value]
        ways += ["test_share = 'own'"] if self.test_share == "own" else []
        if len(ways) > 1:
            raise UsageError(f"{' and '.join(ways)} each say which samples are for tests.", "Give one of them.")
        checks.whole("min_samples", self.min_samples, 1)
        if self.small not in ("refuse", "drop"):
            raise UsageError(f"small = {self.small!r} is not known.", "Set it to 'refuse' or 'drop'.")
        if self.shots is not None:
            checks.whole("shots", self.shots, 1)

    def __call__(self, samples: Samples, seed: int) -> Partition:
        names, owner = factorized(samples.column(self.column), f"{samples.name}: column {self.column}")
        if not len(names):
            raise UsageError(f"{samples.name} has no samples.", "Give it some.")
        groups, group_clients = self._groups(samples, owner)
        names, owned, notes = self._without_small(samples, names, owner, group_clients)
        row_keys = samples.keys(seed, "natural")
        keys = owned.of(row_keys)
        if self.group is not None:
            group_keys = _sums(groups, row_keys, len(group_clients))
            chosen = self._test_groups(groups, group_clients, _strata(samples), group_keys)
            order, is_test = _marked(owned, keys, chosen[owned.of(groups)])
        elif self.test_share == "own":
            order, is_test = _marked(owned, keys, owned.of(_own_test(samples)))
        else:
            order, is_test = self._counted_off(samples, owned, keys)
        rows = order if owned.rows is None else owned.rows[order]
        query, train = RowLists(rows, starts_of(owned.counts)).divided(is_test)
        share = len(query.rows) / len(rows)
        if self.test_share != "own" and abs(share - self.test_share) > 0.05:
            notes.append(
                f"{share:.0%} of the samples are test samples rather than {self.test_share:.0%}: clients are small."
            )
        support = None if self.shots is None else self._few(samples, train, seed, notes)
        return Partition(samples, train, query, support, names=names.cast(pa.string()).to_pylist(), notes=tuple(notes))

    def _counted_off(self, samples: Samples, owned: _Owned, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """An order of the rows by client, and which of them are for tests: the first at random, or the last in time."""
        assert self.test_share != "own"
        tests = np.clip(np.rint(self.test_share * owned.counts), 1, owned.counts - 1).astype(np.int64)
        if self.order is None:
            # Alternately the tests of a client and its other rows.
            lengths = np.stack([tests, owned.counts - tests], axis=1).ravel()
            return shuffled_within(owned.owner, keys), np.repeat(np.tile([True, False], len(tests)), lengths)
        when = samples.column(self.order)
        if not isinstance(when, np.ndarray) or when.dtype.kind not in "iufM" or np.isnan(when).any():
            _, when = factorized(when, f"{samples.name}: column {self.order}")
        lengths = np.stack([owned.counts - tests, tests], axis=1).ravel()
        order = sorted_within(owned.owner, owned.of(when), keys)
        return order, np.repeat(np.tile([False, True], len(tests)), lengths)

    def _groups(self, samples: Samples, owner: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Each row's group and each group's client. Equal values at two clients are two groups."""
        if self.group is None:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        values, group = factorized(samples.column(self.group), f"{samples.name}: column {self.group}")
        pairs, groups = factorized(owner * len(values) + group, "groups")
        return groups, pairs.to_numpy() // len(values)

    def _without_small(
        self, samples: Samples, names: pa.Array, owner: np.ndarray, group_clients: np.ndarray
    ) -> tuple[pa.Array, _Owned, list[str]]:
        """The clients that are large enough, their rows, and a word about the others."""
        counts = np.bincount(owner, minlength=len(names))
        groups = None if self.group is None else np.bincount(group_clients, minlength=len(names))
        tests = None
        if self.test_share == "own":
            tests = np.bincount(owner[_own_test(samples)], minlength=len(names))
        kept, notes = self.large_enough(names, samples.name, counts, groups, tests)
        if kept.all():
            return names, _Owned(None, owner, counts), notes
        rows = np.flatnonzero(kept[owner])
        number = np.cumsum(kept) - 1
        return names.filter(pa.array(kept)), _Owned(rows, number[owner[rows]], counts[kept]), notes

    def large_enough(
        self,
        names: pa.Array,
        where: str,
        counts: np.ndarray,
        groups: np.ndarray | None = None,
        tests: np.ndarray | None = None,
    ) -> tuple[np.ndarray, list[str]]:
        """Which clients can be split, and a word about the others, from their numbers of rows, groups and test rows."""
        least = max(self.min_samples, 2)
        wrong = [(counts < least, lambda i: f"{_samples(counts[i])}, fewer than {least}")]
        if groups is not None:
            wrong.append((groups < 2, lambda i: f"all of its {_samples(counts[i])} in one {self.group}"))
        if tests is not None:
            wrong.append((tests == 0, lambda i: f"none of its {_samples(counts[i])} in the test set"))
            wrong.append((tests == counts, lambda i: f"all of its {_samples(counts[i])} in the test set"))
        small = np.logical_or.reduce([mask for mask, _ in wrong])
        if not small.any():
            return ~small, []
        first = int(np.flatnonzero(small)[0])
        reason = next(words(first) for mask, words in wrong if mask[first])
        number = int(small.sum())
        others = f"{number} of {len(names)} clients {'is' if number == 1 else 'are'} too small"
        if self.small == "refuse" or small.all():
            remedy = "Lower min_samples, or choose another column."
            if not small.all():
                remedy = "Drop such clients with small = 'drop', or give them more samples."
            raise SmallClients(
                f"{where}: client {names[first].as_py()!r} of column {self.column} has {reason}; {others}.",
                remedy,
                droppable=not small.all(),
            )
        lost, are = _samples(int(counts[small].sum())), "is" if number == 1 else "are"
        note = f"{others} and {are} left out with {lost}: {names[first].as_py()!r} has {reason}."
        return ~small, [note]

    def _test_groups(self, groups: np.ndarray, clients: np.ndarray, labels: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """Which groups are for tests: of each client, a share of those of each majority label, drawn by keys."""
        assert self.test_share != "own"
        classes = int(labels.max(initial=0)) + 1
        stratum = clients * classes + _majority(groups, labels, classes)
        order = shuffled_within(stratum, keys)
        _, alike = runs_of(stratum[order])
        tests = np.where(alike > 1, np.clip(np.rint(self.test_share * alike), 1, np.maximum(alike - 1, 1)), 0)
        chosen = np.zeros(len(clients), bool)
        chosen[order] = rank_in_runs(stratum[order]) < np.repeat(tests, alike)
        # Where no two groups of a client are alike, any one of them is for tests.
        some = np.zeros(int(clients.max(initial=0)) + 1, bool)
        some[clients[chosen]] = True
        order = shuffled_within(clients, keys)
        first = order[rank_in_runs(clients[order]) == 0]
        chosen[first[~some[clients[first]]]] = True
        return chosen

    def _few(self, samples: Samples, train: RowLists, seed: int, notes: list[str]) -> RowLists:
        """``shots`` training rows of each class of each client."""
        labels = _strata(samples)
        owner = np.repeat(np.arange(len(train)), train.counts)
        stratum = owner * (int(labels.max(initial=0)) + 1) + labels[train.rows]
        order = shuffled_within(stratum, samples.keys(seed, "support")[train.rows])
        rank = rank_in_runs(stratum[order])
        last = np.append(rank[1:] == 0, True)
        scarce = np.unique(owner[order[last & (rank + 1 < self.shots)]])
        if scarce.size:
            what = "training samples" if samples.classes is None else "training samples of a class"
            notes.append(
                f"{scarce.size} of {len(train)} clients have fewer than {self.shots} {what}, and adapt on those."
            )
        few = order[rank < self.shots]
        return RowLists(train.rows[few], starts_of(np.bincount(owner[few], minlength=len(train))))


def _marked(owned: _Owned, keys: np.ndarray, is_test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    order = shuffled_within(owned.owner, keys)
    return order, is_test[order]


def _strata(samples: Samples) -> np.ndarray:
    """Each row's class; a regression is all of one."""
    return np.zeros(len(samples), np.int64) if samples.classes is None else class_labels(samples)


def _samples(number: Any) -> str:
    return "1 sample" if number == 1 else f"{number} samples"


def _own_test(samples: Samples) -> np.ndarray:
    if samples.test is None:
        raise UsageError(f"{samples.name} has no test set of its own.", "Give test_share a value between 0 and 1.")
    return samples.test.astype(bool, copy=False)


def _sums(groups: np.ndarray, keys: np.ndarray, count: int) -> np.ndarray:
    """A random key for every group, which depends on its rows alone: the sum of theirs."""
    lists = RowLists.by_owner(groups, count)
    return np.add.reduceat(keys[lists.rows], lists.starts[:-1])


def _majority(groups: np.ndarray, labels: np.ndarray, classes: int) -> np.ndarray:
    """The most frequent label of each group, the lowest of several."""
    pairs, counts = np.unique(groups * classes + labels, return_counts=True)
    starts, _ = runs_of(pairs // classes)
    best = np.maximum.reduceat(counts * classes + (classes - 1 - pairs % classes), starts)
    return classes - 1 - best % classes
