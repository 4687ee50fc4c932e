"""JAX's general convolution, of any dimension order and grouping, by the two operations of `primitives`."""

from typing import Any

import jax.numpy as jnp
from jax import Array, lax

from headstart.core.convolution.primitives import convolve
from headstart.core.convolution.window import Window

__all__ = ["convolution"]

MOST_DIMENSIONS = 3


def convolution(
    image: Array,
    kernel: Array,
    *,
    window_strides: tuple[int, ...],
    padding: tuple[tuple[int, int], ...],
    lhs_dilation: tuple[int, ...],
    rhs_dilation: tuple[int, ...],
    dimension_numbers: lax.ConvDimensionNumbers,
    feature_group_count: int,
    batch_group_count: int,
    preferred_element_type: Any,
    **_: Any,
) -> Array | None:
    """`jax.lax.conv_general_dilated` of floating-point numbers in one to three dimensions; ``None`` for others."""
    dtype = jnp.dtype(preferred_element_type or image.dtype)
    if not jnp.issubdtype(dtype, jnp.floating) or not 1 <= len(window_strides) <= MOST_DIMENSIONS:
        return None
    window = Window(tuple(window_strides), tuple(padding), tuple(lhs_dilation), tuple(rhs_dilation))
    spatial = [tuple(a.shape[d] for d in spec[2:]) for a, spec in zip((image, kernel), dimension_numbers, strict=False)]
    if 0 in (image.size, kernel.size, *window.output(*spatial)):
        return None
    n, c, *space = dimension_numbers.lhs_spec
    images = jnp.transpose(image.astype(dtype), (n, *space, c))
    o, i, *space = dimension_numbers.rhs_spec
    kernels = jnp.transpose(kernel.astype(dtype), (*space, i, o))
    # Groups, of features or of samples, are independent problems.
    groups = feature_group_count * batch_group_count
    images = _leading(images, -1, feature_group_count) if batch_group_count == 1 else _leading(images, 0, groups)
    out = convolve(images, _leading(kernels, -1, groups), window)
    out = jnp.moveaxis(out, 0, -2)
    out = out.reshape(*out.shape[:-2], -1)
    n, c, *space = dimension_numbers.out_spec
    return jnp.moveaxis(out, range(out.ndim), (n, *space, c))


def _leading(array: Array, axis: int, groups: int) -> Array:
    """Split an axis into groups, and these into a leading axis."""
    axis %= array.ndim
    split = array.reshape(*array.shape[:axis], groups, -1, *array.shape[axis + 1 :])
    return jnp.moveaxis(split, axis, 0)
