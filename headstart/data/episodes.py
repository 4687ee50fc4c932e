"""Few-shot episodes: tasks of a few classes, with a few samples of each to adapt on and others to be judged by."""

from collections.abc import Callable
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from headstart.core import FULL, Batch, Sides, Size, checks, episode_key
from headstart.data.clients import Clients, IndexLists, Part
from headstart.data.rows import RowLists, starts_of
from headstart.errors import UsageError
from headstart.problems import Examples

__all__ = ["EpisodeClients", "EpisodeView", "Episodes"]

TURNS = 4


@dataclass(frozen=True)
class Episodes:
    """N-way K-shot: how an episode is drawn from a client's samples."""

    ways: int
    """N: classes in a task; a task's labels are 0 to N-1."""
    shots: int
    """K: samples of each class to adapt on."""
    queries: int = 15
    """Samples of each class that judge the adapted model; never among the shots."""
    rotations: bool = False
    """Whether a class turned by 90, 180 or 270 degrees is a class of its own."""

    def __post_init__(self) -> None:
        checks.whole("ways", self.ways, 2)
        checks.whole("shots", self.shots, 1)
        checks.whole("queries", self.queries, 1)

    @property
    def images(self) -> int:
        """Samples of a class in an episode."""
        return self.shots + self.queries


class EpisodeClients(Clients):
    """Clients with classes of their own, from which tasks are drawn.

    In training every local step meets a new task: ``ways`` of the client's classes in random order, ``shots``
    samples of each to adapt on and ``queries`` others that judge. What a client is evaluated on is one such task,
    always the same. A client that has exactly ``ways`` classes is a single task, its labels in a fixed order.
    """

    x: Array
    classes: IndexLists
    """Which of all (client, class) pairs are a client's."""
    samples: IndexLists
    """Which rows of ``x`` are of such a pair."""
    key: Array
    """From which the tasks of evaluation come."""
    episodes: Episodes = eqx.field(static=True)
    transform: Callable[[Batch], Batch] = eqx.field(static=True)

    @classmethod
    def of(
        cls,
        x: np.ndarray,
        y: np.ndarray,
        rows: RowLists,
        episodes: Episodes,
        transform: Callable[[Batch], Batch],
        key: Array,
        name: Callable[[int], str],
    ) -> "EpisodeClients":
        """From each client's rows and the classes of all rows."""
        client = np.repeat(np.arange(len(rows)), rows.counts)
        order = np.lexsort((y[rows.rows], client))
        pairs, starts, counts = np.unique(
            np.stack([client[order], y[rows.rows][order]]), axis=1, return_index=True, return_counts=True
        )
        small = np.flatnonzero(counts < episodes.images)
        if small.size:
            raise UsageError(
                f"Client {name(pairs[0, small[0]])} has {counts[small[0]]} samples of class {pairs[1, small[0]]}, "
                f"fewer than {episodes.shots} shots and {episodes.queries} queries.",
                "Take fewer shots or queries, or leave the class out.",
            )
        classes = np.bincount(pairs[0], minlength=len(rows))
        turns = TURNS if episodes.rotations else 1
        few = np.flatnonzero(classes * turns < episodes.ways)
        if few.size:
            raise UsageError(
                f"Client {name(few[0])} has {classes[few[0]]} classes, too few for {episodes.ways} ways.",
                "Lower ways, or leave the client out.",
            )
        return cls(
            x=jnp.asarray(x),
            classes=IndexLists.of(RowLists(np.arange(pairs.shape[1]), starts_of(classes))),
            samples=IndexLists.of(RowLists(rows.rows[order], np.append(starts, len(order)))),
            key=key,
            episodes=episodes,
            transform=transform,
        )

    def view(self, part: Part, client: Array) -> "EpisodeView":
        """One part of one client's data: in training all of it, otherwise a side of the client's task."""
        task = None if part == "train" else jax.random.fold_in(self.key, client)
        return EpisodeView(self, client, task, part)

    def sample(self, part: Part, client: Array, key: Array, size: Size) -> Batch:
        return self.view(part, client).sample(key, size)

    def rows(self, number: int) -> Batch:
        none = jnp.zeros(number, jnp.int32)
        return self.examples(none, none, none)

    def train_count(self, client: Array) -> Array:
        first, last = self.classes.starts[client], self.classes.starts[client + 1]
        return self.samples.starts[last] - self.samples.starts[first]

    def task(self, client: Array, key: Array) -> tuple[Array, Array]:
        """The rows of a task, by class and sample, and by how many quarters each class is turned."""
        pairs_key, rows_key = jax.random.split(key)
        pairs, turns = self._pairs(client, pairs_key)
        rows_keys = jax.random.split(rows_key, self.episodes.ways)

        def draw(pair: Array, key: Array) -> Array:
            some = _choose(key, self.samples.longest, self.samples.count(pair), self.episodes.images)
            return self.samples.rows[self.samples.starts[pair] + some]

        return jax.vmap(draw)(pairs, rows_keys), turns

    def examples(self, rows: Array, labels: Array, turns: Array) -> Batch:
        """Drawn rows as the loss takes them."""
        x = self.x[rows]
        if self.episodes.rotations:
            x = jax.vmap(lambda image, turn: jax.lax.switch(turn, _ROTATE, image))(x, turns)
        return self.transform(Examples(x, labels))

    def _pairs(self, client: Array, key: Array) -> tuple[Array, Array]:
        ways, start = self.episodes.ways, self.classes.starts[client]
        if not self.episodes.rotations:
            if self.classes.equal and self.classes.longest == ways:
                return start + jnp.arange(ways), jnp.zeros(ways, jnp.int32)
            return start + _choose(key, self.classes.longest, self.classes.count(client), ways), jnp.zeros(ways, int)
        chosen = _choose(key, TURNS * self.classes.longest, TURNS * self.classes.count(client), ways)
        return start + chosen // TURNS, chosen % TURNS


class EpisodeView(eqx.Module):
    """One side of one task, or for training all tasks of a client; keeps core's ``ClientSamples`` contract."""

    clients: EpisodeClients
    client: Array
    chosen: Array | None
    """The key that chooses the task; in training every draw is of a task of its own."""
    part: Part = eqx.field(static=True)

    def sample(self, key: Array, size: Size) -> Batch:
        """``size`` samples, equally many of each class and none twice; all of the side for ``"full"``."""
        episodes = self.clients.episodes
        task_key, draw_key = jax.random.split(key)
        rows, turns = self.clients.task(self.client, task_key if self.chosen is None else self.chosen)
        if self.part != "train":
            rows = rows[:, : episodes.shots] if self.part == "support" else rows[:, episodes.shots :]
        each = self._each(rows.shape[1], size)
        if each < rows.shape[1]:
            keys = jax.random.split(draw_key, episodes.ways)
            rows = jax.vmap(lambda own, key: jax.random.permutation(key, own)[:each])(rows, keys)
        labels = jnp.repeat(jnp.arange(episodes.ways), each)
        return self.clients.examples(rows.reshape(-1), labels, jnp.repeat(turns, each))

    def episode(self, key: Array) -> Sides:
        """The two sides of a task: the one at hand, or in training a new one."""
        chosen = episode_key(key) if self.chosen is None else self.chosen
        return Sides(*(EpisodeView(self.clients, self.client, chosen, part) for part in ("support", "query")))

    @property
    def task_count(self) -> int:
        """As many as a method without memories of tasks has to know of."""
        return 1

    def _each(self, available: int, size: Size) -> int:
        ways = self.clients.episodes.ways
        if size == FULL:
            return available
        if size % ways or size // ways > available:
            raise UsageError(
                f"A batch of {size} cannot hold equally many of {ways} classes with {available} samples each.",
                f"Give a multiple of {ways} up to {ways * available}, or 'full'.",
            )
        return size // ways


_ROTATE = tuple((lambda image, k=k: jnp.rot90(image, k)) for k in range(TURNS))


def _choose(key: Array, room: int, count: Array, number: int) -> Array:
    """``number`` of ``count`` numbers without replacement, in random order."""
    scores = jnp.where(jnp.arange(room) < count, jax.random.uniform(key, (room,)), -1.0)
    return jax.lax.top_k(scores, number)[1]
