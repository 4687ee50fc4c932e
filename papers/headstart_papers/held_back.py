"""CIFAR-100 with training images held back, so that step sizes can be chosen without looking at test images."""

from dataclasses import replace
from typing import Literal

import numpy as np

from headstart.core import checks
from headstart.data import Federation, datasets
from headstart.data.datasets import WANG_CIFAR100
from headstart.data.partitions import Partition, Partitioner
from headstart.data.rows import RowLists
from headstart.errors import UsageError

__all__ = ["cifar100", "holding_back"]


def cifar100(
    *,
    labels: Literal["fine", "coarse"] = "coarse",
    partition: Partitioner = WANG_CIFAR100,
    held_back: float = 0.0,
    seed: int = 0,
) -> Federation:
    """The library's, whose clients keep this share of their training images for validation: `holding_back`."""
    federation = datasets.cifar100(labels=labels, partition=partition, seed=seed)
    if not held_back:
        return federation
    assert federation.partition is not None
    return holding_back(federation.partition, held_back, seed).federation()


def holding_back(partition: Partition, share: float, seed: int) -> Partition:
    """The partition with every client in it twice: without a share of its training samples, and judged by them.

    The share is of each of its classes. The second of the two never trains, and is for validation. Where clients adapt
    on some of their test samples, it adapts on as many of those held back.
    """
    checks.in_unit_interval("held_back", share)
    if partition.held_out:
        raise UsageError("held_back, but clients are held out too.", "Leave one of the two out.")
    labels = partition.samples.y
    rng = np.random.default_rng(seed)
    kept, support, query = [], [], []
    for client, rows in enumerate(partition.train):
        shuffled = rng.permutation(rows)
        back = np.zeros(len(rows), bool)
        for label in np.unique(labels[rows]):
            own = np.flatnonzero(labels[shuffled] == label)
            back[own[: round(share * len(own))]] = True
        kept.append(shuffled[~back])
        shots = 0 if partition.support is None else len(partition.support[client])
        tests = rng.permutation(shuffled[back])
        if len(tests) <= shots:
            raise UsageError(
                f"held_back = {share} leaves client {client} {len(tests)} samples, of which it adapts on {shots}.",
                "Hold a larger share back.",
            )
        support.append(tests[:shots] if shots else kept[-1])
        query.append(tests[shots:])
    return replace(
        partition,
        train=RowLists.from_lists([*kept, *kept]),
        query=RowLists.from_lists([*partition.query, *query]),
        support=RowLists.from_lists([*(partition.support or kept), *support]),
        names=None,
        held_out=len(kept),
        validation=len(kept),
    )
