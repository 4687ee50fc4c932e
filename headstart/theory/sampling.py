"""Which clients, and which of their samples, stand for a federation when something is estimated."""

from collections.abc import Sequence

import numpy as np

from headstart.core import FULL, Size, check_size, checks
from headstart.data import Clients, Federation, MappedClients, Part
from headstart.errors import UsageError

__all__ = ["DRAWS", "choose_clients", "choose_size", "in_memory"]

DRAWS = 1024
"""Samples that stand for a client's distribution where clients generate them."""


def choose_clients(federation: Federation, clients: int | Sequence[int] | None, seed: int) -> tuple[np.ndarray, int]:
    """The clients to look at, and of how many they are a sample: given ones, so many, or all that train."""
    if clients is None:
        if federation.endless:
            raise UsageError("There are endlessly many clients.", "Say how many to look at: clients=20.")
        return np.arange(federation.trained, dtype=np.int32), federation.trained
    if isinstance(clients, int):
        checks.whole("clients", clients, 1)
        if clients > federation.trained:
            raise UsageError(f"clients = {clients}, but only {federation.trained} train.", "Ask for fewer.")
        drawn = np.random.default_rng(seed).choice(federation.trained, clients, replace=False, shuffle=False)
        return np.sort(drawn).astype(np.int32), federation.trained
    chosen = np.asarray(clients, np.int32)
    if not chosen.size or chosen.min() < 0 or chosen.max() >= federation.total:
        raise UsageError(
            f"clients = {list(clients)} are not clients of this federation.",
            f"Clients have the numbers 0 to {federation.total - 1}.",
        )
    return chosen, chosen.size


def choose_size(federation: Federation, batch_size: Size | None) -> Size:
    """How many samples stand for a client: all where it has so many and no more, unless told otherwise."""
    if federation.tasks is not None:
        raise UsageError(
            "These clients have several tasks each, and a batch is of one task.",
            "Give the federation of single tasks: federation.tasks.",
        )
    if batch_size is None:
        return DRAWS if federation.counts is None else FULL
    check_size("batch_size", batch_size)
    return batch_size


def in_memory(federation: Federation, part: Part, ids: np.ndarray) -> tuple[Clients, np.ndarray]:
    """Data of the chosen clients, brought from disk where it lies there, and each one's number within it."""
    if isinstance(federation.clients, MappedClients):
        clients, places = federation.clients.gather([part], ids, len(ids))
        return clients, places.astype(np.int32)
    return federation.clients, ids
