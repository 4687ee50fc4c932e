"""The share of a host: the samples of its own clients and no others."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jax import Array

from headstart.core import ClientSamples, ShapedSamples
from headstart.data.clients import Clients, IndexedClients, IndexLists, Part
from headstart.data.federation import Federation
from headstart.data.mapped import MappedClients
from headstart.errors import UsageError

__all__ = ["SharedClients", "share_of", "shared_clients"]


class SharedClients:
    """The clients of a federation, of which this host has the samples of every ``hosts``-th, from ``host`` on.

    Samples that stay on disk, and clients that are numbers rather than samples, are not divided: every host sees them.
    """

    def __init__(self, whole: Clients | MappedClients, host: int, hosts: int, total: int, digest: str):
        self.host, self.hosts = host, hosts
        self.digest = digest
        """Of the whole federation."""
        self.divided = isinstance(whole, IndexedClients)
        self.own: Clients | MappedClients = whole
        if isinstance(whole, IndexedClients):
            self.own = _divided(whole, np.arange(host, total, hosts))

    def places(self, ids: np.ndarray) -> np.ndarray:
        """Where the data of clients who live here lie."""
        return ids // self.hosts if self.divided else ids

    def gather(self, parts: Sequence[Part], ids: np.ndarray, room: int) -> tuple[Clients, np.ndarray]:
        """Some parts of some of this host's clients' data, and where among them each one's lie."""
        return self.own.gather(parts, self.places(ids), room)

    def most_at_once(self, parts: Sequence[Part], wanted: int, most_bytes: int | None = None) -> int:
        """How many clients' data can be gathered together."""
        return self.own.most_at_once(parts, wanted, most_bytes)

    def shapes(self) -> ShapedSamples:
        """What a client's samples look like, without any."""
        return self.own.shapes()

    def view(self, part: Part, client: Array) -> ClientSamples:
        """One part of the data of a client who lives here."""
        number = int(client)
        if self.divided and number % self.hosts != self.host:
            raise UsageError(
                f"Client {number} lives on host {number % self.hosts}, and its samples are there alone.",
                "Ask there, or load the model and the data on one machine.",
            )
        return self.own.view(part, jax.numpy.asarray(self.places(np.array(number))))


def share_of(federation: Federation, host: int, hosts: int, digest: Callable[[Federation], str]) -> Federation:
    """A federation with the samples of this host's clients alone; nothing else of it is less than it was."""
    if shared_clients(federation) is not None:
        return federation
    clients: Any = SharedClients(federation.clients, host, hosts, federation.total, digest(federation))
    partition = federation.partition
    if partition is not None and clients.divided:
        samples = partition.samples
        x, y = np.array(samples.x[:1]), np.array(samples.y[:1])  # which say what all look like
        few = replace(samples, x=x, y=y, test=None, columns={}, known_fingerprints=None)
        partition = replace(partition, samples=few)
    return replace(federation, clients=clients, partition=partition)


def shared_clients(federation: Federation) -> SharedClients | None:
    """The clients of a federation that is the share of a host; ``None`` of a whole one."""
    clients: object = federation.clients
    return clients if isinstance(clients, SharedClients) else None


def _divided(whole: IndexedClients, ids: np.ndarray) -> IndexedClients:
    """The rows of some clients, in a pool of their own; what shapes depend on stays as it is for all clients."""
    parts: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for name, lists in whole.parts.items():
        starts, rows = np.asarray(lists.starts), np.asarray(lists.rows)
        counts = starts[ids + 1] - starts[ids]
        begins = np.concatenate([[0], np.cumsum(counts)])
        offsets = np.arange(begins[-1]) - np.repeat(begins[:-1], counts)
        parts[name] = rows[np.repeat(starts[ids], counts) + offsets], begins
    used = np.unique(np.concatenate([rows for rows, _ in parts.values()]))
    return IndexedClients(
        jax.tree.map(lambda leaf: np.asarray(leaf)[used], whole.pool),
        {
            name: IndexLists(
                np.searchsorted(used, rows).astype(np.int32),  # type: ignore[arg-type]
                begins.astype(np.int32),  # type: ignore[arg-type]
                whole.parts[name].longest,
                whole.parts[name].equal,
            )
            for name, (rows, begins) in parts.items()
        },
        whole.transform,
    )
