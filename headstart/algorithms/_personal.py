"""Fine-tuning on a client's support data, shared by every method whose personal model is a few SGD steps away."""

import jax
import jax.numpy as jnp
from jax import Array

from headstart.core import FULL, Adaptation, ClientSamples, Loss, Params, Size, tree

__all__ = ["fine_tune"]


def fine_tune(
    loss: Loss, w: Params, support: ClientSamples, key: Array, steps: int | Array, lr: Array | float, size: Size
) -> Params:
    """``steps`` steps of size ``lr`` from ``w``, each on a fresh batch of ``size`` support samples.

    Step t draws with the key of t alone, so more steps continue fewer. A number of steps that is traced makes one
    program of all numbers, of steps that are a little slower.
    """
    if not isinstance(steps, int):
        whole = support.sample(key, FULL) if size == FULL else None

        def step(t: Array, w: Params) -> Params:
            batch = support.sample(jax.random.fold_in(key, t), size) if whole is None else whole
            return tree.add_scaled(w, -lr, jax.grad(loss)(w, batch))

        moved: Params = jax.lax.fori_loop(0, steps, step, w)
        return moved
    if steps == 0:
        return w
    keys = jax.vmap(lambda t: jax.random.fold_in(key, t))(jnp.arange(steps))
    return Adaptation(steps, lr).run(loss, w, jax.vmap(lambda k: support.sample(k, size))(keys)).params
