"""Algebra on pytrees: the papers' vectors, whatever shape the model gives them."""

import math
import operator
from functools import reduce
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import Array

__all__ = [
    "add",
    "add_scaled",
    "mean",
    "mix",
    "nbytes",
    "norm",
    "scale",
    "sub",
    "vdot",
    "weighted_mean",
    "weighted_sum",
    "where",
    "zeros_like",
]

T = TypeVar("T")


def add(x: T, y: T) -> T:
    """``x + y``."""
    return jax.tree.map(jnp.add, x, y)


def sub(x: T, y: T) -> T:
    """``x - y``."""
    return jax.tree.map(jnp.subtract, x, y)


def scale(a: Array | float, x: T) -> T:
    """``a x``, of the type of ``x`` whatever that of ``a``."""
    return jax.tree.map(lambda leaf: _as(leaf, a * leaf), x)


def add_scaled(x: T, a: Array | float, y: T) -> T:
    """``x + a y``: every plain descent step in the package is ``add_scaled(w, -lr, direction)``.

    The sum keeps the type of ``x``, so that a step size of higher precision does not change a model's.
    """
    return jax.tree.map(lambda p, q: _as(p, p + a * q), x, y)


def mix(x: T, y: T, share: Array | float) -> T:
    """``(1 - share) x + share y``, of the type of ``x``."""
    return jax.tree.map(lambda p, q: _as(p, (1 - share) * p + share * q), x, y)


def _as(like: Array, value: Array) -> Array:
    return value.astype(jnp.result_type(like))


def zeros_like(x: T) -> T:
    """``0`` of the same structure."""
    return jax.tree.map(jnp.zeros_like, x)


def where(mask: Array, x: T, y: T | float) -> T:
    """``x`` where the mask (one value per row) is true, ``y`` elsewhere."""

    def choose(leaf: Array, other: Array | float) -> Array:
        return jnp.where(mask.reshape(mask.shape + (1,) * (leaf.ndim - mask.ndim)), leaf, other)

    if isinstance(y, (int, float)):
        return jax.tree.map(lambda leaf: choose(leaf, y), x)
    return jax.tree.map(choose, x, y)


def vdot(x: T, y: T) -> Array:
    """``<x, y>``."""
    return reduce(operator.add, jax.tree.leaves(jax.tree.map(jnp.vdot, x, y)), jnp.zeros(()))


def norm(x: T) -> Array:
    """Euclidean norm of all leaves together."""
    return jnp.sqrt(vdot(x, x))


def mean(stacked: T) -> T:
    """The mean over the leading axis."""
    return jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), stacked)


def weighted_sum(weights: Array, stacked: T) -> T:
    """``sum_i weights[i] stacked[i]`` over the leading axis.

    A matrix-vector product: on a CPU a reduction over the leading axis of the same array is several times slower.
    Whole numbers and truth values are summed as floating-point ones.
    """

    def total(leaf: Array) -> Array:
        leaf = leaf if jnp.issubdtype(leaf.dtype, jnp.inexact) else leaf.astype(weights.dtype)
        return jnp.tensordot(weights.astype(leaf.dtype), leaf, 1)

    return jax.tree.map(total, stacked)


def weighted_mean(weights: Array, stacked: T) -> T:
    """``weighted_sum`` with the weights normalised to one."""
    return weighted_sum(weights / jnp.sum(weights), stacked)


def nbytes(x: object) -> int:
    """Bytes of all leaves: arrays, tracers, shape structs, and numbers as the arrays they become when traced."""
    return sum(math.prod(jnp.shape(leaf)) * jnp.result_type(leaf).itemsize for leaf in jax.tree.leaves(x))
