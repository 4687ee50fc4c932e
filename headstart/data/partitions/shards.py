"""McMahan's split: few classes a client."""

from dataclasses import dataclass

import numpy as np

from headstart.core import checks
from headstart.data.partitions.dealing import as_tests, check_share, class_labels, deal, sides, stock_of
from headstart.data.partitions.partition import Partition, Partitioner
from headstart.data.rows import starts_of
from headstart.data.samples import Samples
from headstart.errors import UsageError

__all__ = ["Shards"]


@dataclass(frozen=True)
class Shards(Partitioner):
    """Samples sorted by label and cut into equal shards, of which every client gets a few (McMahan et al. 2017).

    Shards differ by one sample at most. The test samples of a class are dealt in the proportions in which clients have
    the class; ``test_share`` is set apart first where the samples have no test set of their own.
    """

    clients: int = 100
    shards_per_client: int = 2
    test_share: float = 0.2

    def __post_init__(self) -> None:
        checks.whole("clients", self.clients, 1)
        checks.whole("shards_per_client", self.shards_per_client, 1)
        check_share("test_share", self.test_share)

    def __call__(self, samples: Samples, seed: int) -> Partition:
        labels = class_labels(samples)
        train, test, notes = sides(samples, seed, self.test_share)
        shards = self.clients * self.shards_per_client
        if len(train) < shards:
            raise UsageError(
                f"{samples.name} has {len(train)} training samples, fewer than {shards} shards "
                f"({self.shards_per_client} for each of {self.clients} clients).",
                f"Take {len(train) // self.shards_per_client} clients or fewer.",
            )
        stock, test_stock = (stock_of(samples, labels, rows) for rows in (train, test))
        # A shard's share of a class is the overlap of two intervals of the sorted samples.
        ends, class_ends = np.arange(shards + 1) * len(train) // shards, starts_of(stock)
        overlap = np.minimum(ends[1:, None], class_ends[None, 1:]) - np.maximum(ends[:-1, None], class_ends[None, :-1])
        hands = np.random.default_rng(seed).permutation(shards).reshape(self.clients, self.shards_per_client)
        wanted = np.maximum(overlap, 0)[hands].sum(axis=1)
        test_wanted = as_tests(wanted, test_stock)
        empty = np.flatnonzero(test_wanted.sum(axis=1) == 0)
        if empty.size:
            raise UsageError(
                f"{len(test)} test samples are too few for {self.clients} clients: client {empty[0]} would get none"
                + (f" (nor would {empty.size - 1} others)." if empty.size > 1 else "."),
                "Take fewer clients" + (", or a larger test_share." if samples.test is None else "."),
            )
        keys = samples.keys(seed, "shards")
        return Partition(samples, deal(labels, train, wanted, keys), deal(labels, test, test_wanted, keys), notes=notes)
