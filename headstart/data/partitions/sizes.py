"""Splits that look at no label: equal shares, and unequal ones."""

from dataclasses import dataclass

import numpy as np

from headstart.core import checks
from headstart.data.partitions.dealing import apportioned, check_share, dealt_by_size, sides
from headstart.data.partitions.partition import Partition, Partitioner
from headstart.data.samples import Samples
from headstart.errors import UsageError

__all__ = ["IID", "QuantitySkew"]


@dataclass(frozen=True)
class IID(Partitioner):
    """Every sample goes to a client at random, and clients have equally many (or one fewer).

    ``test_share`` is set apart first where the samples have no test set of their own.
    """

    clients: int = 50
    test_share: float = 0.2

    def __post_init__(self) -> None:
        checks.whole("clients", self.clients, 1)
        check_share("test_share", self.test_share)

    def __call__(self, samples: Samples, seed: int) -> Partition:
        return _dealt(samples, seed, np.ones(self.clients), self.test_share, min_samples=1)


@dataclass(frozen=True)
class QuantitySkew(Partitioner):
    """Every sample goes to a client at random, and the clients' sizes are drawn from a Dirichlet distribution.

    Every client has ``min_samples`` training samples or more; a small ``concentration`` makes few clients rich. Test
    samples are dealt in the same proportions, one at least.
    """

    clients: int = 50
    concentration: float = 0.5
    min_samples: int = 10
    test_share: float = 0.2

    def __post_init__(self) -> None:
        checks.whole("clients", self.clients, 1)
        checks.positive("concentration", self.concentration)
        checks.whole("min_samples", self.min_samples, 1)
        check_share("test_share", self.test_share)

    def __call__(self, samples: Samples, seed: int) -> Partition:
        weights = np.random.default_rng(seed).dirichlet(np.full(self.clients, self.concentration))
        return _dealt(samples, seed, weights, self.test_share, self.min_samples)


def _dealt(samples: Samples, seed: int, weights: np.ndarray, test_share: float, min_samples: int) -> Partition:
    train, test, notes = sides(samples, seed, test_share)
    for part, rows, least in (("training", train, min_samples), ("test", test, 1)):
        if len(rows) < least * len(weights):
            raise UsageError(
                f"{samples.name} has {len(rows)} {part} samples, too few for {len(weights)} clients with {least} each.",
                f"Take {len(rows) // least} clients or fewer.",
            )
    keys = samples.keys(seed, "sizes")
    sizes = apportioned(len(train), weights, min_samples)
    return Partition(
        samples,
        dealt_by_size(train, sizes, keys),
        dealt_by_size(test, apportioned(len(test), sizes, 1), keys),
        notes=notes,
    )
