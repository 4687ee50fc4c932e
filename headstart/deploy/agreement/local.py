"""A site's clients: their rows split as the simulator would split them, and encoded as all sites have agreed."""

from collections.abc import Sequence
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa

from headstart.core import ClientSamples
from headstart.data import IndexedClients, Part, RowLists
from headstart.data.clients import PARTS, IndexLists
from headstart.data.partitions import Natural, Partition
from headstart.data.partitions.dealing import factorized
from headstart.data.samples import Samples, TargetScale
from headstart.data.tables import Encoding
from headstart.data.tables.fitting import standardize_by_client
from headstart.deploy.agreement.layout import Layout
from headstart.errors import UsageError
from headstart.problems import Examples

__all__ = ["LocalClients", "LocalRows", "split_rows"]


class LocalRows:
    """The rows of a site's clients, dealt out to their parts; clients are in the order of their numbers."""

    def __init__(self, numbers: Sequence[int], partition: Partition):
        self.numbers, self.partition = list(numbers), partition

    @property
    def parts(self) -> dict[Part, RowLists]:
        """Every client's rows for each purpose."""
        partition = self.partition
        support = partition.train if partition.support is None else partition.support
        return {"train": partition.train, "support": support, "query": partition.query}


def split_rows(samples: Samples, natural: Natural, seed: int, layout: Layout) -> LocalRows | None:
    """Deal a site's rows out, without those of clients that no run has; ``None`` where nobody is left.

    A client's split depends on the seed and on its own rows alone, so that it is the one of all sites' rows together.
    """
    number = {name: i for i, name in enumerate(layout.names)}
    values, owner = factorized(samples.column(natural.column), f"{samples.name}: column {natural.column}")
    names = values.cast(pa.string()).to_pylist()
    known = np.array([name in number for name in names], bool)
    rows = np.flatnonzero(known[owner]) if len(names) else np.zeros(0, np.int64)
    if not rows.size:
        return None
    if rows.size < len(samples):
        samples = _some(samples, rows)
    partition = replace(natural, small="refuse", min_samples=2)(samples, seed)
    assert partition.names is not None
    numbers = np.array([number[name] for name in partition.names])
    order = np.argsort(numbers)
    arranged = replace(
        partition,
        train=partition.train.chosen(order),
        query=partition.query.chosen(order),
        support=None if partition.support is None else partition.support.chosen(order),
        names=[partition.names[i] for i in order],
        held_out=int((numbers >= layout.trained).sum()),
    )
    return LocalRows(numbers[order].tolist(), arranged)


def _some(samples: Samples, rows: np.ndarray) -> Samples:
    columns = {
        name: values[rows] if isinstance(values, np.ndarray) else values.take(pa.array(rows))
        for name, values in samples.columns.items()
    }
    test = None if samples.test is None else samples.test[rows]
    return replace(samples, x=samples.x[rows], y=samples.y[rows], columns=columns, test=test)


class LocalClients:
    """The clients that a site has data of, by their numbers in the whole federation."""

    def __init__(self, local: LocalRows | None, samples: Samples | None):
        self.numbers = [] if local is None else local.numbers
        self._places = {number: place for place, number in enumerate(self.numbers)}
        self._lists = {} if local is None else local.parts
        self._samples = samples
        self._clients: IndexedClients | None = None
        if local is not None and samples is not None:
            pool = jax.tree.map(jnp.asarray, Examples(samples.x, samples.y))
            trained = len(self.numbers) - local.partition.held_out
            index: dict[str, IndexLists] = {
                part: IndexLists.of(self._lists[part], trained if part == "train" else None) for part in PARTS
            }
            self._clients = IndexedClients(pool, index, samples.to_examples)

    @classmethod
    def encoded(cls, local: LocalRows | None, encoding: Encoding | None, target: TargetScale) -> "LocalClients":
        """The clients with the agreed encoding and scale of targets."""
        if local is None:
            return cls(None, None)
        samples = local.partition.samples
        if encoding is not None:
            # Hashed before anything is rewritten: a row's fingerprint is that of what was read.
            samples = replace(samples, known_fingerprints=samples.fingerprints)
            if encoding.per_client:
                standardize_by_client(encoding, local.partition)
            samples = replace(samples, transform=encoding, features=encoding.features)
        return cls(local, replace(samples, target=target))

    def count(self, part: Part, client: int) -> int:
        """How many samples of a part a client has."""
        return int(self._lists[part].counts[self._place(client)])

    def rows(self, part: Part, client: int) -> np.ndarray:
        """Which rows of the site's samples a part of a client is."""
        return self._lists[part][self._place(client)]

    @property
    def pool(self) -> Examples:
        """The site's samples as they are stored, which `rows` counts."""
        assert self._samples is not None
        return Examples(self._samples.x, self._samples.y)

    def view(self, part: Part, client: int) -> ClientSamples:
        """One part of a client's samples, as an algorithm wants it."""
        place = self._place(client)
        assert self._clients is not None
        return self._clients.view(part, jnp.asarray(place, jnp.int32))

    def _place(self, client: int) -> int:
        if client not in self._places:
            raise UsageError(f"This site has no data of client {client}.", "Ask the site that has.")
        return self._places[client]
