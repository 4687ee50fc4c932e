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
    "nbytes",
    "norm",
    "scale",
    "sub",
    "vdot",
    "weighted_mean",
    "weighted_sum",
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
    """``a x``."""
    return jax.tree.map(lambda leaf: a * leaf, x)


def add_scaled(x: T, a: Array | float, y: T) -> T:
    """``x + a y``: every descent step in the package is ``add_scaled(w, -lr, direction)``."""
    return jax.tree.map(lambda p, q: p + a * q, x, y)


def zeros_like(x: T) -> T:
    """``0`` of the same structure."""
    return jax.tree.map(jnp.zeros_like, x)


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
    """
    return jax.tree.map(lambda leaf: jnp.tensordot(weights.astype(leaf.dtype), leaf, 1), stacked)


def weighted_mean(weights: Array, stacked: T) -> T:
    """``weighted_sum`` with the weights normalised to one."""
    return weighted_sum(weights / jnp.sum(weights), stacked)


def nbytes(x: object) -> int:
    """Bytes of all leaves: arrays, tracers, shape structs, and numbers as the arrays they become when traced."""
    return sum(math.prod(jnp.shape(leaf)) * jnp.result_type(leaf).itemsize for leaf in jax.tree.leaves(x))
