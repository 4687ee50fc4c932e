"""Clients' samples as a compiled program sees them: drawn where they lie, without padding or copies."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from headstart.core import FULL, Batch, ClientSamples, ShapedSamples, Shapes, Sides, Size, Weighted
from headstart.data.rows import RowLists
from headstart.errors import UsageError

__all__ = [
    "PARTS",
    "ClientView",
    "Clients",
    "GeneratedClients",
    "GroupedClients",
    "IndexLists",
    "IndexedClients",
    "OnlineClients",
    "Part",
    "shapes_of",
]

Part = Literal["train", "support", "query"]
"""What clients train on; what they adapt on when evaluated; what the adapted model is scored on."""

PARTS: tuple[Part, ...] = ("train", "support", "query")


class Clients(eqx.Module):
    """All clients' data as a pytree, so that it is an argument of compiled programs and never a constant."""

    @abstractmethod
    def sample(self, part: Part, client: Array, key: Array, size: Size) -> Batch:
        """Draws from one part of one client's data."""

    @abstractmethod
    def train_count(self, client: Array) -> Array:
        """How many training samples a client has."""

    @abstractmethod
    def rows(self, number: int) -> Batch:
        """So many rows of any client, of which only the shapes matter."""

    def shapes(self) -> ShapedSamples:
        """What a client's samples look like, without any: all that a server may know of them."""
        return shapes_of(self.rows)

    def view(self, part: Part, client: Array) -> ClientSamples:
        """One part of one client's data, as an algorithm wants it."""
        return ClientView(self, client, part)

    def gather(self, parts: Sequence[Part], ids: np.ndarray, room: int) -> tuple["Clients", np.ndarray]:
        """Some parts of some clients' data, at most ``room`` clients', and where among them each one's lie."""
        return self, ids

    def most_at_once(self, parts: Sequence[Part], wanted: int, most_bytes: int | None = None) -> int:
        """How many clients' data can be gathered together; all that are wanted, for they are in memory already."""
        return wanted


def shapes_of(rows: Callable[[int], Batch]) -> ShapedSamples:
    """The shapes of one row of what ``rows`` gives."""
    batch = jax.eval_shape(lambda: rows(1))
    return ShapedSamples(Shapes.of(jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), batch)))


class ClientView(eqx.Module):
    """One part of one client's data; keeps core's ``ClientSamples`` contract."""

    clients: Clients
    client: Array
    part: Part = eqx.field(static=True)

    def sample(self, key: Array, size: Size) -> Batch:
        """``size`` independent draws, or every sample once for ``"full"``."""
        return self.clients.sample(self.part, self.client, key, size)

    def episode(self, key: Array) -> Sides:
        """Both sides of a local step draw from all of it."""
        return Sides(self, self)

    @property
    def task_count(self) -> Array | int:
        """How many tasks the client has: one, unless tasks were grouped."""
        return self.clients.sizes[self.client] if isinstance(self.clients, GroupedClients) else 1

    def task(self, number: Array | int) -> ClientSamples:
        """The samples of one of the client's tasks."""
        if isinstance(self.clients, GroupedClients):
            return self.clients.tasks.view(self.part, self.clients.members[self.client, number])
        return self


class IndexLists(eqx.Module):
    """Which rows of a pool belong to which client: one flat list and where each client's part begins."""

    rows: Array
    starts: Array
    longest: int = eqx.field(static=True)
    equal: bool = eqx.field(static=True)

    @classmethod
    def of(cls, lists: RowLists, trained: int | None = None) -> "IndexLists":
        """All of a federation's lists; what shapes depend on looks at the first ``trained`` of them only."""
        counts = lists.counts[:trained]
        return cls(
            rows=jnp.asarray(lists.rows.astype(np.int32)),
            starts=jnp.asarray(lists.starts.astype(np.int32)),
            longest=int(counts.max(initial=0)),
            equal=bool(counts.size) and bool((counts == counts[0]).all()),
        )

    def count(self, client: Array) -> Array:
        """How many rows a client has."""
        return self.starts[client + 1] - self.starts[client]


class IndexedClients(Clients):
    """Clients as lists of rows of one shared pool of samples, which stays as it is stored (uint8, say).

    ``transform`` turns the gathered rows into what the loss wants, batch by batch.
    """

    pool: Batch
    parts: dict[str, IndexLists]
    transform: Callable[[Batch], Batch] = eqx.field(static=True)

    def sample(self, part: Part, client: Array, key: Array, size: Size) -> Batch:
        lists = self.parts[part]
        count = lists.count(client)
        if size == FULL:
            offsets = jnp.arange(lists.longest)
            weight = offsets < count
            offsets = jnp.minimum(offsets, count - 1)
        else:
            offsets = jax.random.randint(key, (size,), 0, count)
        rows = lists.rows[lists.starts[client] + offsets]
        batch = self.transform(jax.tree.map(lambda a: a[rows], self.pool))
        if size == FULL and not lists.equal:
            return Weighted(batch, weight.astype(jnp.result_type(float)))
        return batch

    def rows(self, number: int) -> Batch:
        return self.transform(jax.tree.map(lambda a: jnp.zeros((number, *a.shape[1:]), a.dtype), self.pool))

    def train_count(self, client: Array) -> Array:
        return self.parts["train"].count(client)


class GeneratedClients(Clients):
    """Clients as functions that draw samples: ``draw(task, key, size)`` for a pytree of task parameters.

    Training draws are endless, so a training batch of ``"full"`` is refused. A client's whole support and query
    data are ``support_size`` and ``query_size`` samples that stay the same whenever they are asked for.
    """

    tasks: Any
    draw: Callable[[Any, Array, int], Batch] = eqx.field(static=True)
    support_size: int = eqx.field(static=True)
    query_size: int = eqx.field(static=True)

    def sample(self, part: Part, client: Array, key: Array, size: Size) -> Batch:
        task = jax.tree.map(lambda a: a[client], self.tasks)
        key, number = _whole_or_fresh(part, client, key, size, self.support_size, self.query_size)
        return self.draw(task, key, number)

    def rows(self, number: int) -> Batch:
        return self.draw(jax.tree.map(lambda a: a[0], self.tasks), jax.random.key(0), number)

    def train_count(self, client: Array) -> Array:
        raise UsageError(NO_COUNT, "Use weighting = 'uniform'.")


class OnlineClients(Clients):
    """Endlessly many clients, each a task drawn from a distribution: ``draw(draw_task(key), key, size)``.

    Client number i always is the same task, so that held-out ones can be scored again and again.
    """

    key: Array
    draw_task: Callable[[Array], Any] = eqx.field(static=True)
    draw: Callable[[Any, Array, int], Batch] = eqx.field(static=True)
    support_size: int = eqx.field(static=True)
    query_size: int = eqx.field(static=True)

    def sample(self, part: Part, client: Array, key: Array, size: Size) -> Batch:
        task = self.draw_task(jax.random.fold_in(self.key, client))
        key, number = _whole_or_fresh(part, client, key, size, self.support_size, self.query_size)
        return self.draw(task, key, number)

    def rows(self, number: int) -> Batch:
        return self.draw(self.draw_task(self.key), self.key, number)

    def train_count(self, client: Array) -> Array:
        raise UsageError(NO_COUNT, "Use weighting = 'uniform'.")


class GroupedClients(Clients):
    """Clients that have several tasks each: rows of task numbers, and how many of a row count."""

    tasks: Clients
    members: Array
    sizes: Array

    def sample(self, part: Part, client: Array, key: Array, size: Size) -> Batch:
        if size == FULL:
            raise UsageError(
                "A client with several tasks has no one batch that is all its data.", "Give the batch size as a number."
            )
        task_key, key = jax.random.split(key)
        number = jax.random.randint(task_key, (), 0, self.sizes[client])
        return self.tasks.sample(part, self.members[client, number], key, size)

    def rows(self, number: int) -> Batch:
        return self.tasks.rows(number)

    def train_count(self, client: Array) -> Array:
        counts = jax.vmap(self.tasks.train_count)(self.members[client])
        return jnp.sum(jnp.where(jnp.arange(self.members.shape[1]) < self.sizes[client], counts, 0))


NO_COUNT = "Clients that generate their samples have no sample count."


def _whole_or_fresh(
    part: Part, client: Array, key: Array, size: Size, support_size: int, query_size: int
) -> tuple[Array, int]:
    """The key and number of a generated draw: a fixed one for a client's whole support or query data."""
    if size == FULL:
        if part == "train":
            raise UsageError(
                "Clients that generate their samples have no whole data for a batch size of 'full'.",
                "Give the batch size as a number.",
            )
        size = support_size if part == "support" else query_size
        key = jax.random.fold_in(jax.random.key(0), client)
    return jax.random.fold_in(key, PARTS.index(part)), size
