"""Pooling as maxima and sums of shifted slices, whose derivatives of every order are slices and paddings."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import Array, lax

__all__ = ["max_pool", "sum_pool"]


def max_pool(x: Array, **params: Any) -> Array | None:
    """`reduce_window_max`; of equal entries the first one gets the derivative, as in XLA's."""
    return _pool(x, _first_largest, -jnp.inf, **params)


def sum_pool(x: Array, **params: Any) -> Array | None:
    """`reduce_window_sum`."""
    return _pool(x, lax.add, 0, **params)


def _first_largest(a: Array, b: Array) -> Array:
    # Not lax.max: its derivative halves that of equal entries, where pooling gives all of it to the first. The second
    # comparison lets a NaN through.
    return jnp.where((a >= b) | (a != a), a, b)


def _pool(
    x: Array,
    combine: Callable[[Array, Array], Array],
    neutral: float,
    *,
    window_dimensions: tuple[int, ...],
    window_strides: tuple[int, ...],
    padding: tuple[tuple[int, int], ...],
    base_dilation: tuple[int, ...],
    window_dilation: tuple[int, ...],
) -> Array | None:
    """One axis after the other, the last first: that keeps the first of equal entries in row-major order."""
    if any(step != 1 for step in base_dilation) or not jnp.issubdtype(x.dtype, jnp.floating):
        return None
    x = lax.pad(x, jnp.asarray(neutral, x.dtype), tuple((low, high, 0) for low, high in padding))
    for axis in reversed(range(x.ndim)):
        size, stride, dilation = window_dimensions[axis], window_strides[axis], window_dilation[axis]
        reach = (size - 1) * dilation
        count = max(0, (x.shape[axis] - reach - 1) // stride + 1)
        if size == 1 and stride == 1:
            continue
        last = (count - 1) * stride + 1
        parts = [lax.slice_in_dim(x, at * dilation, at * dilation + last, stride, axis) for at in range(size)]
        x = parts[0]
        for part in parts[1:]:
            x = combine(x, part)
    return x
