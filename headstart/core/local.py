"""Local steps: what every client does between receiving a model and sending one back."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from headstart.core.batch import Params
from headstart.core.optimizer import ClientOptimizer

__all__ = ["PLAIN", "LocalSteps", "descend", "step_keys"]

Direction = Callable[[Params, Array], tuple[Array, Params]]
"""``(w, key) -> (loss, direction)`` of one local step."""

PLAIN = ClientOptimizer(None, keep=False)
"""The papers' plain step."""


class LocalSteps(NamedTuple):
    """The end of a client's local steps."""

    params: Params
    loss: Array
    """Mean over the steps of the loss each step reported."""
    iterate: Params | None
    """The iterate ``w_t`` for the ``t`` that was asked for, before its step was taken."""
    optimizer: Any
    """The state of the client's optimiser."""


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
    optimizer: ClientOptimizer = PLAIN,
    state: Any = (),
) -> LocalSteps:
    """``w_t = w_(t-1) - lr * direction(w_(t-1))`` for ``t = 1 .. steps``, keeping ``w_keep`` on the way.

    With ``reuse`` every step is given the same key. An ``optimizer``, begun at ``state``, takes the steps in its own
    way.
    """

    def step(carry: tuple[Params, Any, Params | None], at: tuple[Array, Array]) -> tuple[Any, Array]:
        (w, state, kept), (t, key) = carry, at
        if keep is not None:
            kept = jax.tree.map(lambda new, old: jnp.where(t == keep, new, old), w, kept)
        loss, d = direction(w, key)
        w, state = optimizer.step(w, d, lr, state)
        return (w, state, kept), loss

    start = (w, state, None if keep is None else w)
    (w, state, kept), losses = jax.lax.scan(step, start, (jnp.arange(steps), step_keys(key, steps, reuse)))
    return LocalSteps(w, jnp.mean(losses), kept, state)
