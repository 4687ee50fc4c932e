"""Clients' losses as functions of one flat vector, on samples that stay the same throughout a search."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree

from headstart.core import Batch, Params, Size, Weighted, client_key
from headstart.data import Clients, Part
from headstart.problems import Problem

__all__ = ["ClientLosses", "FlatLoss", "hessian", "quadratic_form", "squared_norm", "unit_vector"]

FlatLoss = Callable[[Array], Array]
"""A loss of a flat vector of parameters."""


class ClientLosses(eqx.Module):
    """The loss of any client, and of any of its samples. A client's batch depends on ``key`` and its number only."""

    problem: Problem = eqx.field(static=True)
    clients: Clients
    example: Params
    key: Array
    part: Part = eqx.field(static=True)
    size: Size = eqx.field(static=True)

    def batch(self, client: Array) -> Batch:
        """What stands for the client's distribution: all its samples, or ``size`` draws."""
        return self.clients.view(self.part, client).sample(client_key(self.key, client), self.size)

    def on(self, batch: Batch) -> FlatLoss:
        """The mean loss of a batch."""
        _, unravel = ravel_pytree(self.example)
        objective = self.problem.objective()
        return lambda w: objective(unravel(w), batch)

    def on_one(self, sample: Batch) -> FlatLoss:
        """The loss of one sample, given without the axis of samples."""
        return self.on(jax.tree.map(lambda leaf: leaf[None], sample))

    def split(self, batch: Batch) -> tuple[Batch, Array]:
        """The samples of a batch and a weight for each: 1, or 0 for what only fills the batch up."""
        if isinstance(batch, Weighted):
            return batch.samples, batch.weight
        return batch, jnp.ones(jax.tree.leaves(batch)[0].shape[0])


def hessian(loss: FlatLoss, w: Array) -> Callable[[Array], Array]:
    """``v -> H(w) v``, the gradient linearised: many products at one point share what depends on the point alone."""
    return jax.linearize(jax.grad(loss), w)[1]


def quadratic_form(loss: FlatLoss, w: Array, v: Array) -> Array:
    """``v' H(w) v``: two directional derivatives, so that its gradient in ``w`` costs one reverse pass."""

    def slope(at: Array) -> Array:
        return jax.jvp(loss, (at,), (v,))[1]

    return jax.jvp(slope, (w,), (v,))[1]


def squared_norm(v: Array) -> Array:
    """``||v||^2``, which unlike the norm has a derivative at 0."""
    return jnp.vdot(v, v)


def unit_vector(example: Params, key: Array) -> Array:
    """A random direction in the space of parameters."""
    flat, _ = ravel_pytree(example)
    v = jax.random.normal(key, flat.shape, flat.dtype)
    return v / jnp.linalg.norm(v)
