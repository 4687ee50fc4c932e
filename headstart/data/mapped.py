"""Clients whose samples are larger than memory: they stay on disk until their client takes part."""

from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from headstart.core import Batch, ClientSamples, ShapedSamples
from headstart.data.clients import Clients, IndexedClients, IndexLists, Part, shapes_of
from headstart.data.rows import RowLists

__all__ = ["MappedClients"]

GATHER_BYTES = 2**28
"""How much of the samples is brought into memory at once, where one client alone does not need more."""


class MappedClients:
    """Clients as lists of rows of a memory-mapped pool.

    ``gather`` copies what some clients have into memory, in arrays whose shapes depend on the number of clients
    alone: those of the clients with the most samples would fit. So every chunk of a run is the same program.
    """

    def __init__(self, pool: Batch, parts: Mapping[str, RowLists], transform: Callable[[Batch], Batch], trained: int):
        self.pool, self.parts, self.transform = pool, dict(parts), transform
        self.trained = trained
        leaves = jax.tree.leaves(pool)
        self.row_bytes = sum(leaf.dtype.itemsize * int(np.prod(leaf.shape[1:], dtype=np.int64)) for leaf in leaves)
        # The rows that so many clients have together at most: those with the most samples.
        self._largest_first = {part: np.cumsum(np.sort(lists.counts)[::-1]) for part, lists in parts.items()}

    def gather(self, parts: Sequence[Part], ids: np.ndarray, room: int) -> tuple[Clients, np.ndarray]:
        """Some parts of some clients' data, at most ``room`` clients', and where among them each one's lie."""
        present = np.unique(ids)
        chosen = {part: self.parts[part].chosen(present) for part in parts}
        sizes = [int(self._largest_first[part][:room][-1]) for part in parts]
        offsets = np.cumsum([0, *sizes])

        def read(leaf: np.ndarray) -> Array:
            gathered = np.zeros((offsets[-1], *leaf.shape[1:]), leaf.dtype)
            for lists, offset in zip(chosen.values(), offsets, strict=False):
                order = np.argsort(lists.rows, kind="stable")  # a disk likes to be read forwards
                gathered[offset + order] = leaf[lists.rows[order]]
            return jnp.asarray(gathered)

        def index(part: Part, offset: int, size: int) -> IndexLists:
            # Clients that never train have no say in the shapes of training.
            counts = self.parts[part].counts[: self.trained if part == "train" else None]
            starts = chosen[part].starts
            return IndexLists(
                rows=jnp.arange(offset, offset + size, dtype=jnp.int32),
                starts=jnp.asarray(np.pad(starts, (0, room + 1 - len(starts)), mode="edge").astype(np.int32)),
                longest=int(counts.max()),
                equal=bool((counts == counts[0]).all()),
            )

        lists: dict[str, IndexLists] = {
            part: index(part, *where) for part, where in zip(parts, zip(offsets, sizes, strict=False), strict=True)
        }
        return IndexedClients(jax.tree.map(read, self.pool), lists, self.transform), np.searchsorted(present, ids)

    def most_at_once(self, parts: Sequence[Part], wanted: int, most_bytes: int | None = None) -> int:
        """How many clients' data can be gathered together: ``wanted``, or fewer where they would take much memory."""
        rows = np.sum([self._largest_first[part] for part in parts], axis=0)
        fitting = int(np.searchsorted(rows, (most_bytes or GATHER_BYTES) // self.row_bytes, "right"))
        return wanted if fitting == len(rows) else max(1, min(wanted, fitting))

    def shapes(self) -> ShapedSamples:
        """What a client's samples look like, without any."""
        return shapes_of(
            lambda number: self.transform(
                jax.tree.map(lambda leaf: jnp.zeros((number, *leaf.shape[1:]), leaf.dtype), self.pool)
            )
        )

    def view(self, part: Part, client: Array) -> ClientSamples:
        """One part of one client's data."""
        clients, _ = self.gather([part], np.array([int(client)]), 1)
        return clients.view(part, jnp.zeros((), jnp.int32))
