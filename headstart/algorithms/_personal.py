"""Fine-tuning on a client's support data, shared by every method whose personal model is a few SGD steps away."""

import jax
import jax.numpy as jnp
from jax import Array

from headstart.core import Adaptation, ClientSamples, Loss, Params, Size

__all__ = ["fine_tune"]


def fine_tune(loss: Loss, w: Params, support: ClientSamples, key: Array, adaptation: Adaptation, size: Size) -> Params:
    """``adaptation.steps`` steps from ``w``, each on a fresh batch of ``size`` support samples.

    Step t draws with the key of t alone, so more steps continue fewer.
    """
    if adaptation.steps == 0:
        return w
    keys = jax.vmap(lambda t: jax.random.fold_in(key, t))(jnp.arange(adaptation.steps))
    return adaptation.run(loss, w, jax.vmap(lambda k: support.sample(k, size))(keys)).params
