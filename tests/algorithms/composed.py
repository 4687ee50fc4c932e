"""The compositional problem of the reference as headstart is given it, with a g that is not a plain vector."""

import jax
import jax.numpy as jnp
import numpy as np

import headstart as hs
from headstart.core import client_key, draw_tasks, round_key
from tests import toy


def inner(params, batch):
    s = batch.x @ params["weight"] + params["bias"]
    return {"tilted": jnp.mean(jnp.exp(-batch.y * s / 2)), "moments": (jnp.mean(jnp.tanh(s)), jnp.mean(s**2) / 2)}


def outer(value, batch):
    first, second = value["moments"]
    return jnp.log(value["tilted"]) + jnp.mean(jax.nn.softplus(-batch.y * first)) + second**2 / 5


CURVED = hs.CompositionalProblem(toy.start, inner, outer)


def flat(value):
    """Values of g, or models, as the reference has them: vectors along the last axis."""
    if "tilted" in value:
        return np.stack([np.asarray(part) for part in (value["tilted"], *value["moments"])], axis=-1)
    return np.concatenate([np.asarray(value["weight"]), np.asarray(value["bias"])[..., None]], axis=-1)


def drawn_tasks(sim, groups):
    """Which tasks each local step draws: ``(round, client, step)`` to task numbers."""

    def drawn(k, client, step):
        key = client_key(round_key(sim.keys.client, k), client)
        key, _ = jax.random.split(jax.random.fold_in(key, step))
        view = sim.federation.clients.view("train", jnp.asarray(client))
        method = sim.algorithm
        numbers = draw_tasks(view, key, method.tasks_per_client, method.tasks_per_step)
        return [groups[client][int(n)] for n in numbers]

    return drawn
