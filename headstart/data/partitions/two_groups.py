"""Fallah's split: clients that know half of the classes, and clients with mostly one of the other half."""

from dataclasses import dataclass

import numpy as np

from headstart.core import checks
from headstart.data.partitions.dealing import class_labels, deal, rank_in_runs, shuffled_within, sides, stock_of
from headstart.data.partitions.partition import Partition, Partitioner
from headstart.data.rows import RowLists
from headstart.data.samples import Samples
from headstart.errors import UsageError

__all__ = ["TwoGroups"]


@dataclass(frozen=True)
class TwoGroups(Partitioner):
    """Half of the clients know the common classes evenly, each of the others mostly one rare class (fallah section 5).

    Half of the clients have ``a`` samples of each of the first half of the classes. Of the rest, client ``i`` has
    ``a / 2`` of one of those, the ``i``-th, and ``2 a`` of the ``i``-th of the other half, counting round (Table 2).
    With ``overlap=False`` they lose the ``a / 2``: the paper's "diff. hetero". Test samples are dealt alike with
    ``test_a``. No sample goes to two clients. With 20 superclasses it is wang's split of CIFAR-100 (section 6.3).

    Clients adapt on their training samples and are scored on their test samples. With ``shots`` they adapt on that many
    of their test samples, of whatever classes, and are scored on the others: wang's "5-shot learning on the test set".

    The clients are then shuffled by the seed, so that any slice of them mixes both groups.
    """

    clients: int = 50
    a: int = 196
    test_a: int = 34
    overlap: bool = True
    shots: int | None = None

    def __post_init__(self) -> None:
        checks.whole("clients", self.clients, 2)
        checks.whole("a", self.a, 2)
        checks.whole("test_a", self.test_a, 2)
        if self.shots is not None:
            checks.whole("shots", self.shots, 1)

    def __call__(self, samples: Samples, seed: int) -> Partition:
        labels = class_labels(samples)
        assert samples.classes is not None
        if len(samples.classes) < 2:
            raise UsageError(f"{samples.name} has one class.", "Two groups need two classes or more.")
        # Both sides want the classes in the same proportions, so that this share leaves enough for both or neither.
        train, test, notes = sides(samples, seed, self.test_a / (self.a + self.test_a))
        order = np.random.default_rng(seed).permutation(self.clients)
        keys = samples.keys(seed, "two groups")
        dealt = {}
        for name, count, rows in (("a", self.a, train), ("test_a", self.test_a, test)):
            self._check_stock(samples.classes, stock_of(samples, labels, rows), name, count)
            dealt[name] = deal(labels, rows, self._wanted(len(samples.classes), count)[order], keys)
        if self.shots is None:
            return Partition(samples, train=dealt["a"], query=dealt["test_a"], notes=notes)
        support, query = _few(dealt["test_a"], self.shots, samples.keys(seed, "support"))
        return Partition(samples, train=dealt["a"], query=query, support=support, notes=notes)

    def _wanted(self, classes: int, a: int) -> np.ndarray:
        """How many samples of which class each client is dealt, before the clients are shuffled."""
        half, first = classes // 2, (self.clients + 1) // 2
        wanted = np.zeros((self.clients, classes), np.int64)
        wanted[:first, :half] = a
        rest = np.arange(self.clients - first)
        if self.overlap:
            wanted[first + rest, rest % half] = a // 2
        wanted[first + rest, half + rest % (classes - half)] = 2 * a
        return wanted

    def _check_stock(self, classes: tuple[str, ...], stock: np.ndarray, name: str, count: int) -> None:
        def short(a: int) -> np.ndarray:
            return np.flatnonzero(self._wanted(len(classes), a).sum(axis=0) > stock)

        if not short(count).size:
            return
        c = short(count)[0]
        fits = next((a for a in range(count - 1, 1, -1) if not short(a).size), None)
        raise UsageError(
            f"{self.clients} clients with {name} = {count} want {self._wanted(len(classes), count)[:, c].sum()} "
            f"samples of class {classes[c]}, but there are {stock[c]}.",
            "Take fewer clients." if fits is None else f"Lower {name} to {fits}, or take fewer clients.",
        )


def _few(tests: RowLists, shots: int, keys: np.ndarray) -> tuple[RowLists, RowLists]:
    """Every client's test rows divided into ``shots`` at random and the others."""
    fewest = int(tests.counts.min())
    if fewest <= shots:
        raise UsageError(
            f"shots = {shots} of a client's {fewest} test samples leaves none to score on.",
            f"Lower shots to {fewest - 1} or less, or raise test_a.",
        )
    owner = np.repeat(np.arange(len(tests)), tests.counts)
    order = shuffled_within(owner, keys[tests.rows])
    return RowLists(tests.rows[order], tests.starts).divided(rank_in_runs(owner) < shots)
