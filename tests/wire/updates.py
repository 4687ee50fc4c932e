"""Updates that every part is tried on."""

import jax
import jax.numpy as jnp
import numpy as np


def update(seed=0, dtype=jnp.float32):
    """Nested, with a scalar, a leaf that is not there and one that is empty."""
    draw = np.random.default_rng(seed)
    return {
        "layers": [{"w": jnp.asarray(draw.normal(size=(7, 5)), dtype), "b": None}, jnp.asarray(draw.normal(), dtype)],
        "memory": (jnp.asarray(draw.normal(size=40) * 10, dtype), jnp.zeros((0,), dtype)),
    }


def flat(tree):
    """All numbers of an update as one vector of doubles."""
    return np.concatenate([np.asarray(leaf, np.float64).ravel() for leaf in jax.tree.leaves(tree)])


def stacked(trees):
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def same_bits(one, other):
    """Equal in structure, type and every bit, so that -0 is not 0 and NaN is NaN."""
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert jnp.asarray(x).dtype == jnp.asarray(y).dtype
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes()
