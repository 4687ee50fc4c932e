"""Convolutions and their derivatives of every order as two bilinear operations that a CPU computes fast.

XLA's CPU compiler has a fast kernel for one convolution only: dense, channels last in image, kernel and result. Inside
a loop body every other order falls to a naive path, and the gradient by the kernel that JAX derives is one of those.
Grouped convolutions, which JAX makes of a map over clients with weights of their own, have no fast kernel at all.

So there are two operations, each of them on a batch of independent dense problems with channels last:

- `convolve`: ``(batch, n, *image, c), (batch, *kernel, c, o) -> (batch, n, *result, o)``
- `correlate`: ``(batch, n, *image, c), (batch, n, *result, o) -> (batch, *kernel, c, o)``, the gradient by the kernel

The derivative of either by either argument is one of the two again, and groups as well as mapped axes go into the
leading one. `headstart.core.convolution.forms` has the ways to compute them.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from headstart.core.convolution import forms
from headstart.core.convolution.window import Shape, Window

__all__ = ["convolve", "correlate"]

convolve_p = Primitive("headstart_convolve")
correlate_p = Primitive("headstart_correlate")


def convolve(image: Array, kernel: Array, window: Window) -> Array:
    """A batch of convolutions: ``(batch, n, *image, c), (batch, *kernel, c, o) -> (batch, n, *result, o)``."""
    return convolve_p.bind(image, kernel, window=window)


def correlate(image: Array, result: Array, window: Window, kernel_shape: Shape) -> Array:
    """The transpose of `convolve` by its kernel: ``(batch, n, *image, c), (batch, n, *result, o) -> kernels``."""
    return correlate_p.bind(image, result, window=window, kernel_shape=kernel_shape)


def _convolve_shape(image: ShapedArray, kernel: ShapedArray, *, window: Window) -> ShapedArray:
    result = window.output(image.shape[2:-1], kernel.shape[1:-2])
    return image.update(shape=(*image.shape[:2], *result, kernel.shape[-1]), weak_type=False)


def _correlate_shape(image: ShapedArray, result: ShapedArray, *, window: Window, kernel_shape: Shape) -> ShapedArray:
    del window
    shape = (image.shape[0], *kernel_shape, image.shape[-1], result.shape[-1])
    return image.update(shape=shape, weak_type=False)


def _to_image(cotangent: Array, image_shape: Shape, kernel: Array, window: Window) -> Array:
    """The transpose of `convolve` by its image."""
    spatial = range(1, kernel.ndim - 2)
    mirrored = jnp.swapaxes(jax.lax.rev(kernel, tuple(spatial)), -1, -2)
    return convolve(cotangent, mirrored, window.towards_image(image_shape, kernel.shape[1:-2]))


def _convolve_transpose_image(cotangent: Array, image: Any, kernel: Array, *, window: Window) -> Array:
    return _to_image(cotangent, image.aval.shape[2:-1], kernel, window)


def _convolve_transpose_kernel(cotangent: Array, image: Array, kernel: Any, *, window: Window) -> Array:
    return correlate(image, cotangent, window, kernel.aval.shape[1:-2])


def _correlate_transpose_image(
    cotangent: Array, image: Any, result: Array, *, window: Window, kernel_shape: Shape
) -> Array:
    del kernel_shape
    return _to_image(result, image.aval.shape[2:-1], cotangent, window)


def _correlate_transpose_result(
    cotangent: Array, image: Array, result: Any, *, window: Window, kernel_shape: Shape
) -> Array:
    del result, kernel_shape
    return convolve(image, cotangent, window)


# Where an axis that only one argument has goes: the samples' or the channels', so that it stays one problem.
N, CHANNELS = 1, -1


def _map_one(bind: Callable[..., Array], arrays: list[Array], mapped: int, source: int, target: int) -> Array:
    """Map over the leading axis of one argument by folding it into another of its axes."""
    array = arrays[mapped]
    size, source, target = array.shape[0], source % (array.ndim - 1), target % (array.ndim - 1)
    moved = jnp.moveaxis(array, 0, source)
    arrays[mapped] = moved.reshape(*moved.shape[:source], size * moved.shape[source + 1], *moved.shape[source + 2 :])
    out = bind(*arrays)
    target %= out.ndim
    split = out.reshape(*out.shape[:target], size, out.shape[target] // size, *out.shape[target + 1 :])
    return jnp.moveaxis(split, target, 0)


def _map_both(bind: Callable[..., Array], arrays: list[Array]) -> Array:
    """Map over the leading axes of both arguments: so many more independent problems."""
    size = arrays[0].shape[0]
    out = bind(*(array.reshape(-1, *array.shape[2:]) for array in arrays))
    return out.reshape(size, -1, *out.shape[1:])


def _batching(primitive: Primitive, axes: tuple[tuple[int, int], tuple[int, int]]) -> None:
    """Map a primitive; ``axes`` are, for each argument, the axis that a map goes into and the result's that has it."""

    def rule(arrays: tuple[Array, Array], dims: tuple[int | None, int | None], **params: Any) -> tuple[Array, int]:
        def bind(*operands: Array) -> Array:
            return primitive.bind(*operands, **params)

        moved = [a if d is None else jnp.moveaxis(a, d, 0) for a, d in zip(arrays, dims, strict=True)]
        if None not in dims:
            return _map_both(bind, moved), 0
        mapped = 1 if dims[0] is None else 0
        return _map_one(bind, moved, mapped, *axes[mapped]), 0

    batching.primitive_batchers[primitive] = rule


_batching(convolve_p, ((N, N), (CHANNELS, CHANNELS)))
_batching(correlate_p, ((CHANNELS, -2), (CHANNELS, CHANNELS)))
convolve_p.def_abstract_eval(_convolve_shape)
correlate_p.def_abstract_eval(_correlate_shape)
ad.defbilinear(convolve_p, _convolve_transpose_image, _convolve_transpose_kernel)
ad.defbilinear(correlate_p, _correlate_transpose_image, _correlate_transpose_result)
for _primitive, _form, _static in (
    (convolve_p, forms.convolve, ("window",)),
    (correlate_p, forms.correlate, ("window", "kernel_shape")),
):
    _primitive.def_impl(jax.jit(_form, static_argnames=_static))
    mlir.register_lowering(_primitive, mlir.lower_fun(_form, multiple_results=False))
