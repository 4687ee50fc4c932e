"""A federation: many clients' samples, drawn from inside a compiled program without padding or copies."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from headstart.core import FULL, Batch, Size, Weighted, checks
from headstart.errors import UsageError
from headstart.problems import SupervisedTask

__all__ = ["PARTS", "ClientView", "Clients", "Federation", "GeneratedClients", "IndexLists", "IndexedClients", "Part"]

Part = Literal["train", "support", "query"]
"""What clients train on; what they adapt on when evaluated; what the adapted model is scored on."""

PARTS: tuple[Part, ...] = ("train", "support", "query")


class Clients(eqx.Module):
    """All clients' data as a pytree, so that it is an argument of compiled programs and never a constant."""

    @abstractmethod
    def sample(self, part: Part, client: Array, key: Array, size: Size) -> Batch:
        """Draws from one part of one client's data."""

    def view(self, part: Part, client: Array) -> "ClientView":
        """One part of one client's data, as an algorithm wants it."""
        return ClientView(self, client, part)


class ClientView(eqx.Module):
    """One part of one client's data; keeps core's ``ClientSamples`` contract."""

    clients: Clients
    client: Array
    part: Part = eqx.field(static=True)

    def sample(self, key: Array, size: Size) -> Batch:
        """``size`` independent draws, or every sample once for ``"full"``."""
        return self.clients.sample(self.part, self.client, key, size)


class IndexLists(eqx.Module):
    """Which rows of a pool belong to which client: one flat list and where each client's part begins."""

    rows: Array
    starts: Array
    longest: int = eqx.field(static=True)
    equal: bool = eqx.field(static=True)

    def __init__(self, lists: Sequence[np.ndarray]):
        counts = np.array([len(rows) for rows in lists], dtype=np.int64)
        self.rows = jnp.asarray(np.concatenate([*lists, np.zeros(0, np.int64)]).astype(np.int32))
        self.starts = jnp.asarray(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))
        self.longest = int(counts.max(initial=0))
        self.equal = bool(counts.size) and bool((counts == counts[0]).all())

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
        if size == FULL:
            if part == "train":
                raise UsageError(
                    "Clients that generate their samples have no whole data for a batch size of 'full'.",
                    "Give the batch size as a number.",
                )
            size = self.support_size if part == "support" else self.query_size
            key = jax.random.fold_in(jax.random.key(0), client)
        task = jax.tree.map(lambda a: a[client], self.tasks)
        return self.draw(task, jax.random.fold_in(key, PARTS.index(part)), size)


@dataclass(frozen=True, eq=False)
class Federation:
    """The clients of a run. The first ``trained`` of them train; the rest are held out and never do."""

    clients: Clients
    names: Sequence[str] | None
    total: int
    trained: int
    counts: dict[str, np.ndarray] | None
    """Samples a client and part, or ``None`` where clients generate them."""
    task: SupervisedTask | None = None
    """What the samples are for, where they are supervised examples."""

    @classmethod
    def from_arrays(
        cls,
        pool: Batch,
        train: Sequence[np.ndarray],
        query: Sequence[np.ndarray],
        support: Sequence[np.ndarray] | None = None,
        *,
        held_out: int = 0,
        names: Sequence[str] | None = None,
        transform: Callable[[Batch], Batch] = lambda batch: batch,
        task: SupervisedTask | None = None,
    ) -> "Federation":
        """Clients as row lists into ``pool``, a pytree of arrays with one leading axis.

        ``support`` is what a client adapts on when it is evaluated, its training rows unless given. The last
        ``held_out`` clients never train.
        """
        parts = {"train": train, "support": train if support is None else support, "query": query}
        total = len(train)
        checks.whole("the number of clients", total, 1)
        checks.whole("held_out", held_out, 0)
        if held_out >= total:
            raise UsageError(f"held_out = {held_out} of {total} clients leaves none to train.", "Hold out fewer.")
        for part, lists in parts.items():
            if len(lists) != total:
                raise UsageError(
                    f"{total} clients have training rows but {len(lists)} have {part} rows.",
                    "Give one list a client, in the same order.",
                )
        if names is not None:
            _check_names(names, total)
        length = _check_pool(pool)
        federation = cls(
            clients=IndexedClients(
                jax.tree.map(jnp.asarray, pool), {part: IndexLists(lists) for part, lists in parts.items()}, transform
            ),
            names=names,
            total=total,
            trained=total - held_out,
            counts={part: np.array([len(rows) for rows in lists]) for part, lists in parts.items()},
            task=task,
        )
        federation._check_lists(parts, length)
        _check_finite(pool, parts, federation.name)
        return federation

    @classmethod
    def from_tasks(
        cls,
        tasks: Any,
        draw: Callable[[Any, Array, int], Batch],
        *,
        query_size: int,
        support_size: int = 10,
        held_out: int = 0,
        names: Sequence[str] | None = None,
        task: SupervisedTask | None = None,
    ) -> "Federation":
        """Clients that draw samples from a distribution of their own; ``tasks`` has one leading axis of clients."""
        total = {leaf.shape[0] for leaf in jax.tree.leaves(tasks)}
        if len(total) != 1:
            raise UsageError(
                "The task parameters do not agree on the number of clients.", "Give every leaf the same leading axis."
            )
        checks.whole("support_size", support_size, 1)
        checks.whole("query_size", query_size, 1)
        (n,) = total
        checks.whole("held_out", held_out, 0)
        if held_out >= n:
            raise UsageError(f"held_out = {held_out} of {n} clients leaves none to train.", "Hold out fewer.")
        if names is not None:
            _check_names(names, n)
        clients = GeneratedClients(jax.tree.map(jnp.asarray, tasks), draw, support_size, query_size)
        return cls(clients, names, n, n - held_out, counts=None, task=task)

    def name(self, client: int) -> str:
        """What a client is called."""
        return str(client) if self.names is None else str(self.names[client])

    def check_batch(self, size: int) -> None:
        """Refuse clients with fewer training samples than a batch holds."""
        if self.counts is None:
            return
        short = np.flatnonzero(self.counts["train"][: self.trained] < size)
        if short.size:
            has = int(self.counts["train"][short[0]])
            raise UsageError(
                f"Client {self.name(short[0])} has {has} training samples, fewer than a batch of {size}"
                + (f" ({short.size} clients are that small)." if short.size > 1 else "."),
                f"Lower the batch size to {int(self.counts['train'][: self.trained].min())}, use 'full', "
                "or leave small clients out.",
            )

    def _check_lists(self, parts: dict[str, Sequence[np.ndarray]], length: int) -> None:
        assert self.counts is not None
        for part, lists in parts.items():
            used = self.counts[part][: self.trained] if part == "train" else self.counts[part]
            empty = np.flatnonzero(used == 0)
            if empty.size:
                raise UsageError(
                    f"Client {self.name(empty[0])} has no {part} samples"
                    + (f" (nor have {empty.size - 1} others)." if empty.size > 1 else "."),
                    "Give it some, or leave it out of the federation.",
                )
            flat = np.concatenate([np.asarray(rows) for rows in lists])
            if flat.size and (flat.min() < 0 or flat.max() >= length):
                raise UsageError(
                    f"The {part} rows reach from {flat.min()} to {flat.max()}, but the pool has {length} rows.",
                    f"Row numbers go from 0 to {length - 1}.",
                )


def _check_names(names: Sequence[str], total: int) -> None:
    if len(names) != total:
        raise UsageError(f"{len(names)} names for {total} clients.", "Give one name a client.")
    if len(set(names)) != total:
        twice = next(name for name in names if list(names).count(name) > 1)
        raise UsageError(f"Two clients are called {twice!r}.", "Give every client a name of its own.")


def _check_pool(pool: Batch) -> int:
    lengths = {leaf.shape[0] for leaf in jax.tree.leaves(pool)}
    if len(lengths) != 1:
        raise UsageError(
            f"The pool's arrays have different lengths: {sorted(lengths)}.", "Give every array one row a sample."
        )
    return int(lengths.pop())


def _check_finite(pool: Batch, parts: dict[str, Sequence[np.ndarray]], name: Callable[[int], str]) -> None:
    for path, leaf in jax.tree_util.tree_leaves_with_path(pool):
        values = np.asarray(leaf)
        if not np.issubdtype(values.dtype, np.floating):
            continue
        bad = np.flatnonzero(~np.isfinite(values.reshape(len(values), -1)).all(axis=1))
        if not bad.size:
            continue
        owners = [name(i) for lists in parts.values() for i, rows in enumerate(lists) if np.isin(rows, bad).any()]
        where = f" (client {owners[0]})" if owners else ""
        raise UsageError(
            f"Row {bad[0]} of the data{jax.tree_util.keystr(path)} holds a NaN or an infinity{where}; "
            f"{bad.size} rows do.",
            "Drop those rows or fill the values in.",
        )
