"""The data of a chunk's cohorts; where they lie on disk, read while the chunk before is computed."""

from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from headstart.data import Clients, MappedClients
from headstart.simulate.rounds import CLIENT_AXIS, Cohorts, Keys, RoundPlan, draw_cohorts

__all__ = ["Feed", "spread"]

T = TypeVar("T")


class _Expected(NamedTuple):
    """The chunk that is being read ahead."""

    first: int
    rounds: int
    capacity: int
    chunk: Future[tuple[Clients, Cohorts]]


class Feed:
    """Draws the cohorts of chunks of rounds, and brings their data."""

    def __init__(self, clients: Clients | MappedClients, plan: RoundPlan, keys: Keys):
        self._plan, self._keys = plan, keys
        self._mapped = clients if isinstance(clients, MappedClients) else None
        # Placed once: left to each chunk, every one of them would copy all data to every device again.
        self._resident = None if isinstance(clients, MappedClients) else spread(clients, plan.devices)
        self._reader = ThreadPoolExecutor(1, "headstart-feed") if self._mapped else None
        self._expected: _Expected | None = None

    def chunk(self, first: int, rounds: int, capacity: int) -> tuple[Clients, Cohorts]:
        """The clients and cohorts of ``rounds`` rounds; the cohorts have ``capacity`` rows in any case."""
        expected, self._expected = self._expected, None
        if expected is not None and (first, capacity) == (expected.first, expected.capacity):
            clients, cohorts = expected.chunk.result()
            if rounds <= expected.rounds:
                return clients, cohorts
        return self._read(self._draw(first, capacity), rounds)

    def expect(self, first: int, rounds: int, capacity: int) -> None:
        """Begin to read what the chunk that begins with round ``first`` will need: twice the rounds of the last."""
        if self._reader is not None:
            rounds = min(2 * rounds, capacity)
            # Drawn here, before the chunk at hand is computed: a reader that asked the device would wait for that.
            reading = self._reader.submit(self._read, jax.device_get(self._draw(first, capacity)), rounds)
            self._expected = _Expected(first, rounds, capacity, reading)

    def _draw(self, first: int, capacity: int) -> Cohorts:
        return draw_cohorts(self._plan, self._keys, jnp.asarray(first, jnp.int32), capacity)

    def _read(self, cohorts: Cohorts, rounds: int) -> tuple[Clients, Cohorts]:
        if self._mapped is None:
            assert self._resident is not None
            return self._resident, cohorts
        drawn = [c for c in (cohorts, cohorts.refresh) if c is not None]
        members = [np.array(c.places) for c in drawn]
        for each in members:
            each[rounds:] = each[0, 0]  # rounds that are not computed need no data
        room = min(len(members[0]) * self._plan.members, self._plan.clients)
        clients, places = self._mapped.gather(["train"], np.stack(members), room)
        placed = [c._replace(places=jnp.asarray(p, jnp.int32)) for c, p in zip(drawn, places, strict=True)]
        return spread(clients, self._plan.devices), placed[0]._replace(refresh=placed[1] if placed[1:] else None)


def spread(tree: T, devices: int) -> T:
    """As a sharded chunk returns its state: a whole copy on every device.

    A state placed otherwise would have the chunk traced and compiled a second time.
    """
    if devices == 1:
        return tree
    mesh = jax.make_mesh((devices,), (CLIENT_AXIS,), axis_types=(AxisType.Auto,), devices=jax.devices()[:devices])
    return jax.device_put(tree, NamedSharding(mesh, PartitionSpec()))
