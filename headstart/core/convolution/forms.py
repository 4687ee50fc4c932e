"""The ways to compute a batch of dense convolutions, and which one is chosen by shape."""

from itertools import product
from math import prod

import jax.numpy as jnp
from jax import Array, lax

from headstart.core.convolution.window import Shape, Window

__all__ = ["convolve", "correlate"]


FEW_CHANNELS = 4


def convolve(image: Array, kernel: Array, *, window: Window) -> Array:
    """``(batch, n, *image, c), (batch, *kernel, c, o) -> (batch, n, *result, o)`` by the form that is fastest.

    Processor time of one core in a loop, 20 images, XLA's own kernel / product of patches, oneDNN's where known:

    - 32x32, 5x5, 3 to 32 channels: 2.8 / **1.8** ms (0.6); 28x28, 5x5, 1 to 32: **0.21** / 0.47 (0.18)
    - 32x32, 3x3, 16 to 16: **0.88** / 2.1 (0.64); 8x8, 3x3, 64 to 64: **0.42** / 0.61 (0.38)
    - 16x16, 5x5, 32 to 64: **2.1** / 4.4 (1.9), and towards the image **2.2** / 11 (1.9)
    - towards the image of a stride of two, 16x16 with 32 to 32x32 with 16: **0.48** / 8.0 (0.54), for the patches are
      then taken from an image that is mostly zeros
    - 1x1, 32x32 with 16 to 16x16 with 32: 0.10 / **0.07** (0.11)
    - 64 problems of one channel each, as a depthwise convolution has, 16x16, 3x3: 8.8 / **3.4**
    - 4 problems, 16x16, 5x5, 32 to 64: **9.0** / 33
    """
    batch, channels = image.shape[0], image.shape[-1]
    alone = batch == channels == 1
    few = channels <= FEW_CHANNELS and not alone and max(window.image_dilation) == 1
    form = patches_convolve if few or not _has_kernel(image, kernel.shape[1:-2]) else native_convolve
    return form(image, kernel, window)


def correlate(image: Array, result: Array, *, window: Window, kernel_shape: Shape) -> Array:
    """``(batch, n, *image, c), (batch, n, *result, o) -> (batch, *kernel, c, o)`` by the form that is fastest.

    As above, XLA's own kernel / product of patches, oneDNN's; the first three lines before samples went in parts:

    - 32x32, 5x5, 3 to 32: **0.62** / 2.3 ms (0.47); 32x32, 3x3, 16 to 16: **0.97** / 2.5 (0.47)
    - 16x16, 5x5, 32 to 64: **2.3** / 5.7 (2.0); 8x8, 3x3, 64 to 64: **0.58** / 0.67 (0.43)
    - 1x1, 32x32 with 16 to 16x16 with 32: 0.45 / **0.10** (0.11)
    - 4 problems, 16x16, 5x5, 32 to 64: **10** / 38
    """
    form = native_correlate if _has_kernel(image, kernel_shape) else patches_correlate
    return form(image, result, window, kernel_shape)


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
