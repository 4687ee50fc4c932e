"""Local steps: what every client does between receiving a model and sending one back."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from headstart.core import tree
from headstart.core.batch import Params

__all__ = ["LocalSteps", "descend", "step_keys"]

Direction = Callable[[Params, Array], tuple[Array, Params]]
"""``(w, key) -> (loss, direction)`` of one local step."""


class LocalSteps(NamedTuple):
    """The end of a client's local steps."""

    params: Params
    loss: Array
    """Mean over the steps of the loss each step reported."""
    iterate: Params | None
    """The iterate ``w_t`` for the ``t`` that was asked for, before its step was taken."""


def step_keys(key: Array, steps: int, reuse: bool = False) -> Array:
    """A key for every local step of a round; ``reuse`` gives all of them the first one's, and so its samples."""
    # All keys at once: in the loop over the steps each would be a loop of its own.
    return jax.vmap(lambda t: jax.random.fold_in(key, t))(jnp.zeros(steps, int) if reuse else jnp.arange(steps))


def descend(
    direction: Direction,
    w: Params,
    steps: int,
    lr: Array | float,
    key: Array,
    keep: Array | None = None,
    reuse: bool = False,
) -> LocalSteps:
    """``w_t = w_(t-1) - lr * direction(w_(t-1))`` for ``t = 1 .. steps``, keeping ``w_keep`` on the way.

    With ``reuse`` every step is given the same key.
    """

    def step(
        carry: tuple[Params, Params | None], at: tuple[Array, Array]
    ) -> tuple[tuple[Params, Params | None], Array]:
        (w, kept), (t, key) = carry, at
        if keep is not None:
            kept = jax.tree.map(lambda new, old: jnp.where(t == keep, new, old), w, kept)
        loss, d = direction(w, key)
        return (tree.add_scaled(w, -lr, d), kept), loss

    start = (w, None if keep is None else w)
    (w, kept), losses = jax.lax.scan(step, start, (jnp.arange(steps), step_keys(key, steps, reuse)))
    return LocalSteps(w, jnp.mean(losses), kept)
