"""Several tasks on one client, and which of them a local step looks at."""

from typing import Protocol

import jax
import jax.numpy as jnp
from jax import Array

from headstart.core.batch import ClientSamples

__all__ = ["ClientTasks", "draw_tasks"]


class ClientTasks(ClientSamples, Protocol):
    """A client's data, split by task."""

    @property
    def task_count(self) -> Array | int:
        """How many tasks the client has."""
        ...

    def task(self, number: Array | int) -> ClientSamples:
        """The samples of one task."""
        ...


def draw_tasks(client: ClientTasks, key: Array, slots: int, count: int) -> Array:
    """``count`` of the client's tasks uniformly without replacement; ``slots`` is the most tasks a client has."""
    scores = jnp.where(jnp.arange(slots) < client.task_count, jax.random.uniform(key, (slots,)), -1.0)
    return jax.lax.top_k(scores, count)[1]
