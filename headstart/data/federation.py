"""A federation: who the clients are, which of them train, and whether their data can be used."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from headstart.core import Batch, Purpose, checks, run_key
from headstart.data.clients import Clients, GeneratedClients, GroupedClients, IndexedClients, IndexLists, OnlineClients
from headstart.data.episodes import EpisodeClients, Episodes
from headstart.data.mapped import MappedClients
from headstart.data.rows import RowLists
from headstart.data.samples import Samples
from headstart.errors import UsageError
from headstart.problems import Examples, SupervisedTask

if TYPE_CHECKING:
    from headstart.data.partitions.partition import Partition

__all__ = ["ENDLESS", "Federation"]

ENDLESS = 2**30
"""The number of training clients of a federation whose tasks are drawn from a distribution."""


@dataclass(frozen=True, eq=False)
class Federation:
    """The clients of a run. The first ``trained`` of them train; the rest are held out and never do.

    The first ``validation`` of those held out are for choosing settings and rounds; those after them are new, and are
    what is reported.
    """

    clients: Clients | MappedClients
    names: Sequence[str] | None
    total: int
    trained: int
    counts: dict[str, np.ndarray] | None
    """Samples a client and part, or ``None`` where clients generate them."""
    task: SupervisedTask | None = None
    """What the samples are for, where they are supervised examples."""
    tasks: "Federation | None" = None
    """Where clients have several tasks: the federation of single tasks, which evaluation looks at."""
    partition: "Partition | None" = None
    """How the clients came by their samples, where they were dealt out."""
    validation: int = 0
    """How many of the clients held out are for choosing."""

    def __post_init__(self) -> None:
        checks.whole("validation", self.validation, 0)
        if self.validation > self.total - self.trained:
            raise UsageError(
                f"validation = {self.validation}, but {self.total - self.trained} clients are held out.",
                "Hold out more clients, or take fewer of them for validation.",
            )

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

        A pool of memory-mapped arrays stays on disk; what a cohort needs of it is read when it takes part.
        ``support`` is what a client adapts on when it is evaluated, its training rows unless given. The last
        ``held_out`` clients never train.
        """
        parts = {"train": RowLists.from_lists(train), "query": RowLists.from_lists(query)}
        parts["support"] = parts["train"] if support is None else RowLists.from_lists(support)
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
        clients: Clients | MappedClients
        if any(isinstance(leaf, np.memmap) for leaf in jax.tree.leaves(pool)):
            clients = MappedClients(pool, parts, transform, total - held_out)
        else:
            # Clients that never train have no say in the shapes of training.
            index = {part: IndexLists.of(rows, total - held_out if part == "train" else None)
                     for part, rows in parts.items()}  # fmt: skip
            clients = IndexedClients(jax.tree.map(jnp.asarray, pool), index, transform)
        federation = cls(
            clients=clients,
            names=names,
            total=total,
            trained=total - held_out,
            counts={part: lists.counts for part, lists in parts.items()},
            task=task,
        )
        federation._check_lists(parts, length)
        if isinstance(clients, IndexedClients):  # what is larger than memory is not read through beforehand
            _check_finite(pool, parts, federation.name)
        return federation

    @classmethod
    def from_samples(
        cls,
        samples: Samples,
        train: Sequence[np.ndarray],
        query: Sequence[np.ndarray],
        support: Sequence[np.ndarray] | None = None,
        *,
        held_out: int = 0,
        names: Sequence[str] | None = None,
    ) -> "Federation":
        """Clients as row lists into some samples, as a partition deals them."""
        return cls.from_arrays(
            Examples(samples.x, samples.y),
            train,
            query,
            support,
            held_out=held_out,
            names=names,
            transform=samples.to_examples,
            task=samples.task,
        )

    @classmethod
    def from_episodes(
        cls,
        samples: Samples,
        rows: Sequence[np.ndarray],
        episodes: Episodes,
        *,
        held_out: int = 0,
        names: Sequence[str] | None = None,
        seed: int = 0,
    ) -> "Federation":
        """Clients from whose classes few-shot tasks are drawn; the last ``held_out`` are a task each, to be judged by.

        The seed fixes the tasks that clients are evaluated on.
        """
        lists = RowLists.from_lists(rows)
        total = len(lists)
        if names is not None:
            _check_names(names, total)
        task = replace(samples.task, outputs=episodes.ways)
        key = run_key(seed, Purpose.DATA)

        def name(client: int) -> str:
            return str(client) if names is None else str(names[client])

        clients = EpisodeClients.of(samples.x, samples.y, lists, episodes, samples.to_examples, key, name)
        counts = {
            "train": lists.counts,
            "support": np.full(total, episodes.ways * episodes.shots),
            "query": np.full(total, episodes.ways * episodes.queries),
        }
        return cls(clients, names, total, total - held_out, counts, task)

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

    @classmethod
    def from_distribution(
        cls,
        draw_task: Callable[[Array], Any],
        draw: Callable[[Any, Array, int], Batch],
        *,
        query_size: int,
        support_size: int = 10,
        held_out: int = 0,
        seed: int = 0,
        task: SupervisedTask | None = None,
    ) -> "Federation":
        """Endlessly many clients: a new task for every member of every cohort (wang Table 2).

        Only methods that keep no memory of clients can train on it, and evaluation looks at the ``held_out``
        clients alone.
        """
        checks.whole("support_size", support_size, 1)
        checks.whole("query_size", query_size, 1)
        checks.whole("held_out", held_out, 0)
        clients = OnlineClients(run_key(seed, Purpose.DATA), draw_task, draw, support_size, query_size)
        return cls(clients, None, ENDLESS + held_out, ENDLESS, counts=None, task=task)

    def grouped(self, groups: Sequence[Sequence[int]], names: Sequence[str] | None = None) -> "Federation":
        """The same tasks on fewer clients: each group of training clients becomes the tasks of one client.

        Evaluation still looks at every single task, held-out ones among them.
        """
        checks.whole("the number of groups", len(groups), 1)
        if isinstance(self.clients, MappedClients):
            raise UsageError(
                "Tasks cannot be grouped while their samples are on disk.", "Load the arrays into memory first."
            )
        flat = [task for group in groups for task in group]
        if not all(len(group) for group in groups):
            raise UsageError("A group is empty.", "Give every client one task or more.")
        if len(set(flat)) != len(flat) or not all(0 <= task < self.trained for task in flat):
            raise UsageError(
                "A task is in two groups, or is not a training task.",
                f"Give each of the tasks 0 to {self.trained - 1} to at most one client.",
            )
        if names is not None:
            _check_names(names, len(groups))
        sizes = [len(group) for group in groups]
        members = np.array([[*group, *[group[0]] * (max(sizes) - len(group))] for group in groups])
        counts = self.counts
        if counts is not None:
            # A batch is of one task, so that the smallest task of a client is what a batch must fit in.
            counts = {part: np.array([values[list(g)].min() for g in groups]) for part, values in counts.items()}
        return Federation(
            clients=GroupedClients(self.clients, jnp.asarray(members, jnp.int32), jnp.asarray(sizes, jnp.int32)),
            names=names,
            total=len(groups),
            trained=len(groups),
            counts=counts,
            task=self.task,
            tasks=self,
        )

    @property
    def endless(self) -> bool:
        """Whether every cohort meets new tasks."""
        return self.trained == ENDLESS

    @property
    def tasks_per_client(self) -> tuple[int, int]:
        """The fewest and the most tasks that a client has."""
        if isinstance(self.clients, GroupedClients):
            return int(self.clients.sizes.min()), int(self.clients.sizes.max())
        return 1, 1

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

    def _check_lists(self, parts: dict[str, RowLists], length: int) -> None:
        assert self.counts is not None
        for part, lists in parts.items():
            if part == "support" and lists is parts["train"]:
                continue
            used = self.counts[part][: self.trained] if part == "train" else self.counts[part]
            empty = np.flatnonzero(used == 0)
            if empty.size:
                raise UsageError(
                    f"Client {self.name(empty[0])} has no {part} samples"
                    + (f" (nor have {empty.size - 1} others)." if empty.size > 1 else "."),
                    "Give it some, or leave it out of the federation.",
                )
            flat = lists.rows
            if flat.size and (flat.min() < 0 or flat.max() >= length):
                raise UsageError(
                    f"The {part} rows reach from {flat.min()} to {flat.max()}, but the pool has {length} rows.",
                    f"Row numbers go from 0 to {length - 1}.",
                )


def _check_names(names: Sequence[str], total: int) -> None:
    if len(names) != total:
        raise UsageError(f"{len(names)} names for {total} clients.", "Give one name a client.")
    if len(set(names)) != total:
        twice = next(name for name, count in Counter(names).items() if count > 1)
        raise UsageError(f"Two clients are called {twice!r}.", "Give every client a name of its own.")


def _check_pool(pool: Batch) -> int:
    lengths = {leaf.shape[0] for leaf in jax.tree.leaves(pool)}
    if len(lengths) != 1:
        raise UsageError(
            f"The pool's arrays have different lengths: {sorted(lengths)}.", "Give every array one row a sample."
        )
    return int(lengths.pop())


def _check_finite(pool: Batch, parts: dict[str, RowLists], name: Callable[[int], str]) -> None:
    for path, leaf in jax.tree_util.tree_leaves_with_path(pool):
        values = np.asarray(leaf)
        if not np.issubdtype(values.dtype, np.floating):
            continue
        # A sum is not finite where a value is not, and needs no array of its size; it may also overflow.
        if np.isfinite(values.sum()):
            continue
        bad = np.flatnonzero(~np.isfinite(values.reshape(len(values), -1)).all(axis=1))
        if not bad.size:
            continue
        places = [(lists, np.flatnonzero(np.isin(lists.rows, bad))) for lists in parts.values()]
        owners = [name(int(np.searchsorted(lists.starts, hit[0], "right")) - 1) for lists, hit in places if hit.size]
        where = f" (client {owners[0]})" if owners else ""
        raise UsageError(
            f"Row {bad[0]} of the data{jax.tree_util.keystr(path)} holds a NaN or an infinity{where}; "
            f"{bad.size} rows do.",
            "Drop those rows or fill the values in.",
        )
