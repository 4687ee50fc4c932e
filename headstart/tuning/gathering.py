"""The clients that a search looks at: all, or as many as have room in memory where samples stay on disk."""

from dataclasses import replace

import numpy as np

from headstart.data import Federation, MappedClients
from headstart.data.clients import PARTS

__all__ = ["in_memory"]


def in_memory(federation: Federation) -> Federation:
    """A federation whose samples are in memory: some of its training clients and some of those for validation."""
    clients = federation.clients
    if not isinstance(clients, MappedClients):
        return federation
    most = clients.most_at_once(PARTS, federation.trained + federation.validation)
    validation = min(federation.validation, max(1, most // 4))
    trained = min(federation.trained, max(1, most - validation))
    ids = np.concatenate(
        [
            np.arange(trained) * federation.trained // trained,
            federation.trained + np.arange(validation) * federation.validation // max(validation, 1),
        ]
    )
    gathered, _ = clients.gather(PARTS, ids, len(ids))
    counts = None if federation.counts is None else {part: of[ids] for part, of in federation.counts.items()}
    return replace(
        federation,
        clients=gathered,
        names=[federation.name(i) for i in ids],
        total=len(ids),
        trained=trained,
        validation=validation,
        counts=counts,
        partition=None,
    )
