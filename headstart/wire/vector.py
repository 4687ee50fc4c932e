"""An update as one vector: its norm and Gaussian noise, leaf by leaf, in single precision or better."""

from numbers import Real
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

__all__ = ["add_noise", "clipped", "is_number", "leaf_keys", "working_dtype"]


def is_number(value: Any) -> bool:
    """Whether a setting's value is known; a traced one, of a vmapped grid, is not."""
    return isinstance(value, Real)


def working_dtype(leaf: Any) -> Any:
    """The precision in which a leaf is computed on: half precision loses the norm of a large model."""
    return jnp.promote_types(jnp.result_type(leaf), jnp.float32)


def leaf_keys(key: Array, tree: Any) -> Any:
    """One key for each leaf."""
    leaves, structure = jax.tree.flatten(tree)
    return jax.tree.unflatten(structure, list(jax.random.split(key, max(1, len(leaves))))[: len(leaves)])


def clipped(up: Any, norm: Array | float) -> tuple[Any, Array]:
    """``up * min(1, norm / ||up||)`` with the L2 norm of all leaves together, and whether it was within the norm.

    An update within the norm is returned to the bit: it is multiplied by exactly 1.
    """
    squares = [jnp.vdot(x, x) for leaf in jax.tree.leaves(up) for x in [jnp.asarray(leaf, working_dtype(leaf))]]
    length = jnp.sqrt(sum(squares, jnp.zeros((), jnp.float32)))
    outside = length > norm
    # Within the norm the quotient is not used, and where both are infinite jax_debug_nans would stop at it.
    factor = jnp.where(outside, norm / jnp.where(outside, length, 1), 1)

    def shorten(leaf: Any) -> Array:
        dtype = working_dtype(leaf)
        return (jnp.asarray(leaf, dtype) * factor.astype(dtype)).astype(jnp.result_type(leaf))

    return jax.tree.map(shorten, up), jnp.logical_not(outside)


def add_noise(tree: Any, deviation: Array | float, key: Array) -> Any:
    """``tree + N(0, deviation^2)``; with deviation 0 the same to the bit."""

    def noisy(leaf: Any, key: Array) -> Array:
        dtype = working_dtype(leaf)
        draw = jax.random.normal(key, jnp.shape(leaf), dtype) * jnp.asarray(deviation, dtype)
        # A sum with zero would turn -0 into 0.
        return jnp.where(deviation == 0, leaf, (jnp.asarray(leaf, dtype) + draw).astype(jnp.result_type(leaf)))

    return jax.tree.map(noisy, tree, leaf_keys(key, tree))
