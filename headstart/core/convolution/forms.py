"""The ways to compute a batch of dense convolutions, and which one is chosen by shape."""

from dataclasses import replace
from functools import reduce
from itertools import product
from math import prod

import jax.numpy as jnp
from jax import Array, lax

from headstart.core.convolution.window import Shape, Window

__all__ = ["convolve", "correlate"]


FEW_CHANNELS = 4


def convolve(image: Array, kernel: Array, *, window: Window) -> Array:
    """``(batch, n, *image, c), (batch, *kernel, c, o) -> (batch, n, *result, o)`` by the form that is fastest.

    Processor time of one core in a loop, 20 images, XLA's own kernel / the same widened / product of patches:

    - 32x32, 5x5, 3 to 32 channels: 3.1 / **0.51** / 2.9 ms; 28x28, 5x5, 1 to 32: **0.18** / **0.18** / 0.53
    - 32x32, 3x3, 3 to 16: 0.78 / **0.20** / 0.78; 1 to 8: 0.60 / **0.05** / 0.57
    - 32x32, 3x3, 16 to 16: 1.1 / **0.65** / 2.8; 16 to 8: 1.0 / **0.51** / 3.0
    - 16x16, 3x3, 32 to 32: **0.45** / 0.60 / 1.1; 8x8, 3x3, 64 to 64: **0.46** / - / 0.61
    - 16x16, 5x5, 32 to 64: **2.5** / - / 6.1

    On an older processor, XLA's own / patches:

    - towards the image of a stride of two, 16x16 with 32 to 32x32 with 16: **0.48** / 8.0, for the patches are then
      taken from an image that is mostly zeros
    - 1x1, 32x32 with 16 to 16x16 with 32: 0.10 / **0.07**
    - 64 problems of one channel each, as a depthwise convolution has, 16x16, 3x3: 8.8 / **3.4**
    - 4 problems, 16x16, 5x5, 32 to 64: **9.0** / 33
    """
    batch, channels, filters = image.shape[0], *kernel.shape[-2:]
    spatial = kernel.shape[1:-2]
    depthwise = batch > 1 and max(channels, filters) <= FEW_CHANNELS and max(window.image_dilation) == 1
    if depthwise or not _has_kernel(image, spatial):
        return patches_convolve(image, kernel, window)
    # With so few channels XLA's kernel takes its time unless there are twice as many filters.
    enough = 2 * FILTERS if channels <= FEW_CHANNELS else FILTERS if channels < FILTERS else 0
    return widened_convolve(image, kernel, window, _together(image, window, spatial, filters, enough))


def correlate(image: Array, result: Array, *, window: Window, kernel_shape: Shape) -> Array:
    """``(batch, n, *image, c), (batch, n, *result, o) -> (batch, *kernel, c, o)`` by the form that is fastest.

    As above, XLA's own kernel / widened / product of patches:

    - 32x32, 5x5, 3 to 32: **0.77** / 1.2 / 3.1 ms; 32x32, 3x3, 3 to 16: 0.35 / **0.27** / 0.90
    - 32x32, 3x3, 16 to 16: 1.5 / **1.1** / 3.5; 16 to 8: 1.4 / **1.0** / -
    - 16x16, 3x3, 32 to 32: **0.81** / 0.86 / 1.6; 8x8, 3x3, 64 to 64: **0.71** / - / 0.83
    - on an older processor, 1x1, 32x32 with 16 to 16x16 with 32: 0.45 / - / **0.10**
    - 4 problems, 16x16, 5x5, 32 to 64: **10** / - / 38
    """
    if not _has_kernel(image, kernel_shape):
        return patches_correlate(image, result, window, kernel_shape)
    together = _together(image, window, kernel_shape, result.shape[-1], FILTERS)
    return widened_correlate(image, result, window, kernel_shape, together)


def _has_kernel(image: Array, kernel: Shape) -> bool:
    """Whether XLA has a fast kernel: for single precision only. A kernel of one pixel is a matrix product anyway."""
    return image.dtype == jnp.float32 and prod(kernel) > 1


def shifted(image: Array, window: Window, kernel: Shape) -> list[Array]:
    """What each position of the kernel sees: one array ``(batch, n, *result, c)`` per position, in row-major order."""
    result = window.output(image.shape[2:-1], kernel)
    padded = _padded(image, window)

    def slice_at(position: Shape) -> Array:
        start = [at * dilation for at, dilation in zip(position, window.kernel_dilation, strict=True)]
        stop = [at + (n - 1) * stride + 1 for at, n, stride in zip(start, result, window.strides, strict=True)]
        limits = (*padded.shape[:2], *stop, padded.shape[-1])
        return lax.slice(padded, (0, 0, *start, 0), limits, (1, 1, *window.strides, 1))

    return [slice_at(position) for position in product(*map(range, kernel))]


def _padded(image: Array, window: Window) -> Array:
    """The image with padding and dilation carried out."""
    return lax.pad(image, jnp.zeros((), image.dtype), ((0, 0, 0), (0, 0, 0), *window.padded, (0, 0, 0)))


def _patches(image: Array, window: Window, kernel: Shape) -> Array:
    """One row per output pixel with all that it sees: ``(batch, n * result, kernel * c)``."""
    rows = jnp.concatenate(shifted(image, window, kernel), -1)
    return rows.reshape(rows.shape[0], -1, rows.shape[-1])


def patches_convolve(image: Array, kernel: Array, window: Window) -> Array:
    """One matrix product per problem, of the patches and the kernel."""
    spatial = kernel.shape[1:-2]
    out = _patches(image, window, spatial) @ kernel.reshape(kernel.shape[0], -1, kernel.shape[-1])
    return out.reshape(*image.shape[:2], *window.output(image.shape[2:-1], spatial), kernel.shape[-1])


def patches_correlate(image: Array, result: Array, window: Window, kernel_shape: Shape) -> Array:
    """One matrix product per problem, of the transposed patches and the result."""
    patches = _patches(image, window, kernel_shape)
    rows = result.reshape(result.shape[0], -1, result.shape[-1])
    out = jnp.swapaxes(patches, 1, 2) @ rows
    return out.reshape(out.shape[0], *kernel_shape, image.shape[-1], result.shape[-1])


SPATIAL = "DHW"


def _dense(image: Array, kernel: Array, window: Window) -> Array:
    """XLA's own convolution of one problem, channels last."""
    if any(min(pads) < 0 for pads in window.padding):
        # The fast kernel knows no negative padding.
        image = _padded(image[None], window)[0]
        unit = (1,) * len(window.strides)
        window = Window(window.strides, ((0, 0),) * len(unit), unit, window.kernel_dilation)
    dims = SPATIAL[-len(window.strides) :]
    return lax.conv_general_dilated(
        image,
        kernel,
        window.strides,
        window.padding,
        window.image_dilation,
        window.kernel_dilation,
        (f"N{dims}C", f"{dims}IO", f"N{dims}C"),
    )


def native_convolve(image: Array, kernel: Array, window: Window) -> Array:
    """XLA's own convolution, problem by problem."""
    if image.shape[0] == 1:
        return _dense(image[0], kernel[0], window)[None]
    return lax.map(lambda pair: _dense(pair[0], pair[1], window), (image, kernel))


def native_correlate(image: Array, result: Array, window: Window, kernel_shape: Shape) -> Array:
    """XLA's own convolution, with channels in place of samples and the result in place of a kernel."""
    batch, samples, channels = *image.shape[:2], image.shape[-1]
    window = window.towards_kernel(image.shape[2:-1], kernel_shape)
    parts = _parts(samples)

    def split(array: Array) -> Array:
        return jnp.moveaxis(array.reshape(batch, parts, samples // parts, *array.shape[2:]), 1, 0)

    def add(total: Array, part: tuple[Array, Array]) -> tuple[Array, None]:
        image, result = part
        return total + native_convolve(jnp.swapaxes(image, 1, -1), jnp.moveaxis(result, 1, -2), window), None

    total = jnp.zeros((batch, channels, *kernel_shape, result.shape[-1]), image.dtype)
    total, _ = lax.scan(add, total, (split(image), split(result)))
    return jnp.moveaxis(total, 1, -2)


FILTERS = 32
"""With fewer of them, XLA has no fast kernel, unless there are as many channels."""
MOST_TOGETHER = 4


def _together(image: Array, window: Window, kernel: Shape, filters: int, enough: int) -> int:
    """How many neighbouring pixels of a result to compute as one, so that there are ``enough`` filters.

    Along the last axis, in two dimensions, and where it does not jump: a widened kernel would be mostly zeros. Nor
    where it would be as large as the image: XLA swaps the two then, into an order that is slow.
    """
    if len(kernel) != 2 or (window.strides[-1], window.image_dilation[-1], window.kernel_dilation[-1]) != (1, 1, 1):
        return 1
    width, pixels = window.output(image.shape[2:-1], kernel)[-1], 1

    def fits(pixels: int) -> bool:
        return width % pixels == 0 and width // pixels >= kernel[-1]

    while pixels < MOST_TOGETHER and pixels * filters < enough and fits(2 * pixels):
        pixels *= 2
    return pixels


def _wide(window: Window, pixels: int) -> Window:
    return replace(window, strides=(*window.strides[:-1], pixels))


def widened_convolve(image: Array, kernel: Array, window: Window, pixels: int) -> Array:
    """Neighbouring pixels of the result as so many times the filters: each sees its part of a wider kernel."""
    if pixels == 1:
        return native_convolve(image, kernel, window)
    unpadded = [(0, 0)] * (kernel.ndim - 3)
    shifted = [jnp.pad(kernel, (*unpadded, (at, pixels - 1 - at), (0, 0), (0, 0))) for at in range(pixels)]
    out = native_convolve(image, jnp.concatenate(shifted, -1), _wide(window, pixels))
    return out.reshape(*out.shape[:-2], -1, kernel.shape[-1])


def widened_correlate(image: Array, result: Array, window: Window, kernel_shape: Shape, pixels: int) -> Array:
    """The same for the transpose by the kernel, whose parts in the wider one are added up."""
    if pixels == 1:
        return native_correlate(image, result, window, kernel_shape)
    *rest, width = kernel_shape
    merged = result.reshape(*result.shape[:-2], -1, pixels * result.shape[-1])
    wide = native_correlate(image, merged, _wide(window, pixels), (*rest, width + pixels - 1))
    parts = [lax.slice_in_dim(part, at, at + width, axis=-3) for at, part in enumerate(jnp.split(wide, pixels, -1))]
    return reduce(jnp.add, parts)


FEWEST_SAMPLES = 8


def _parts(samples: int) -> int:
    """Into how many parts the samples go whose kernel gradients are added up.

    Not one: the activations would be computed once more, from what they were computed from and in the order of the
    transposed array, which is slow. XLA merges a transpose with all that is before it, but not across a loop. A
    gradient of a ResNet-20 takes 0.88 to 0.93 of the processor time with two parts of 10 samples, and 1.00 to 1.07 with
    four parts of 5.
    """
    divisors = (n for n in range(2, samples // FEWEST_SAMPLES + 1) if samples % n == 0)
    return next(divisors, 1)
