"""Jamali's split: every client has a class mixture of its own."""

from dataclasses import dataclass

import numpy as np

from headstart.core import checks
from headstart.data.partitions.dealing import check_share, class_labels, deal, shuffled_within, stock_of
from headstart.data.partitions.partition import Partition, Partitioner
from headstart.data.rows import starts_of
from headstart.data.samples import Samples
from headstart.errors import UsageError

__all__ = ["DirichletMixtures"]

NAMED_CLASSES = 20
"""A note with more classes than this is read by nobody."""


@dataclass(frozen=True)
class DirichletMixtures(Partitioner):
    """Every client draws a class mixture from a Dirichlet distribution, then its samples (jamali section 5).

    ``concentration`` is alpha_d: near 0 clients have one class each, towards infinity all are alike. A client's
    samples are split at random, ``test_share`` of them to be scored on. All come from the source's training rows.

    Samples are dealt without replacement while a class lasts. Where clients want more of a class than there is, its
    samples are dealt again, which the partition's notes say; none is then in anyone's training and test data both.
    """

    clients: int = 50
    samples_per_client: int = 1000
    concentration: float = 0.01
    test_share: float = 0.2

    def __post_init__(self) -> None:
        checks.whole("clients", self.clients, 1)
        checks.whole("samples_per_client", self.samples_per_client, 2)
        checks.positive("concentration", self.concentration)
        check_share("test_share", self.test_share)

    def __call__(self, samples: Samples, seed: int) -> Partition:
        labels = class_labels(samples)
        assert samples.classes is not None
        own_test = np.zeros(len(samples), bool) if samples.test is None else samples.test.astype(bool, copy=False)
        stock = stock_of(samples, labels, np.flatnonzero(~own_test))
        wanted, test_wanted = self._drawn_counts(stock, seed)
        demand, test_demand = wanted.sum(axis=0), test_wanted.sum(axis=0)
        test_stock = _test_stock(stock, demand, test_demand)
        for c in np.flatnonzero(((test_stock == 0) & (test_demand > 0)) | ((test_stock == stock) & (demand > 0))):
            if demand[c] + test_demand[c]:
                raise UsageError(
                    f"{samples.name} has {stock[c]} training samples of class {samples.classes[c]}, too few to train "
                    "some clients and score others.",
                    "Leave the class out, or give it more samples.",
                )
        keys = samples.keys(seed, "mixtures")
        train_rows, test_rows = _parted(labels, np.flatnonzero(~own_test), test_stock, keys)
        notes = _notes(samples, int(own_test.sum()), stock, demand + test_demand)
        train = deal(labels, train_rows, wanted, keys)
        return Partition(samples, train, deal(labels, test_rows, test_wanted, keys), notes=notes)

    def _drawn_counts(self, stock: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Training and test samples of each class that each client is to have."""
        rng = np.random.default_rng(seed)
        there = np.flatnonzero(stock)
        if not there.size:
            raise UsageError("There are no training samples.", "Mark some rows as training rows.")
        everything = np.zeros((self.clients, len(stock)), np.int64)
        mixtures = rng.dirichlet(np.full(there.size, self.concentration), self.clients)
        everything[:, there] = rng.multinomial(self.samples_per_client, mixtures)
        tests = min(max(round(self.test_share * self.samples_per_client), 1), self.samples_per_client - 1)
        test_wanted = np.stack([rng.multivariate_hypergeometric(counts, tests) for counts in everything])
        return everything - test_wanted, test_wanted


def _test_stock(stock: np.ndarray, demand: np.ndarray, test_demand: np.ndarray) -> np.ndarray:
    """How many samples of each class are only for tests: as many as are wanted, or its part of what there is."""
    total = demand + test_demand
    part = np.rint(stock * test_demand / np.maximum(total, 1)).astype(np.int64)
    # Rounding must leave something on either side that is wanted.
    part = np.clip(part, np.minimum(test_demand, 1), np.maximum(stock - np.minimum(demand, 1), 0))
    return np.where(total <= stock, test_demand, part)


def _parted(
    labels: np.ndarray, rows: np.ndarray, test_stock: np.ndarray, keys: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    order = rows[shuffled_within(labels[rows], keys[rows])]
    starts = starts_of(np.bincount(labels[rows], minlength=len(test_stock)))
    is_test = np.arange(len(order)) - starts[labels[order]] < test_stock[labels[order]]
    return order[~is_test], order[is_test]


def _notes(samples: Samples, own_tests: int, stock: np.ndarray, demand: np.ndarray) -> tuple[str, ...]:
    assert samples.classes is not None
    notes = []
    if own_tests:
        notes.append(
            f"{samples.name}'s own {own_tests} test samples are not used: clients are scored on a share of theirs."
        )
    again = np.maximum(demand - stock, 0)
    if again.any():
        short = np.flatnonzero(again)
        which = ", ".join(f"{samples.classes[c]} ({again[c]})" for c in short[:NAMED_CLASSES])
        which += f" and {short.size - NAMED_CLASSES} more" if short.size > NAMED_CLASSES else ""
        notes.append(
            f"{again.sum()} of {demand.sum()} samples were dealt before, since these classes ran out: {which}."
        )
    return tuple(notes)
