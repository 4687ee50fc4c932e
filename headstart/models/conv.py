"""The convolutional network of the few-shot papers."""

from dataclasses import dataclass
from math import prod, sqrt
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from headstart.core import checks
from headstart.errors import UsageError, did_you_mean
from headstart.models.mlp import Dense
from headstart.models.model import Model

__all__ = ["NORMALISATIONS", "Conv", "ConvBlock", "ConvNet", "native_convolution", "patch_convolution"]

Normalisation = Literal["batch", "none"]

NORMALISATIONS: tuple[Normalisation, ...] = ("batch", "none")
"""What may stand between a convolution and its activation."""

KERNEL, POOL = 3, 2
EPSILON = 1e-3  # added to variances, as in MAML's code; it also bounds the derivatives where a feature is constant


def native_convolution(x: Array, weight: Array) -> Array:
    """3x3 convolution with zero padding, as XLA has it: what accelerators have kernels for."""
    return jax.lax.conv_general_dilated(x, weight, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def patch_convolution(x: Array, weight: Array) -> Array:
    """The same as one matrix product of every pixel's 3x3 patch.

    Its derivatives of every order are matrix products too, also when clients with weights of their own are computed
    together. XLA's convolution is then a grouped one, for which a CPU has no fast kernel.
    """
    height, width = x.shape[1:3]
    padded = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    shifted = [padded[:, i : i + height, j : j + width] for i in range(KERNEL) for j in range(KERNEL)]
    return jnp.concatenate(shifted, axis=-1) @ weight.reshape(-1, weight.shape[-1])


def convolve(x: Array, weight: Array) -> Array:
    """Patches on a CPU, XLA's own convolution elsewhere."""
    return (patch_convolution if jax.default_backend() == "cpu" else native_convolution)(x, weight)


def pool(x: Array) -> Array:
    """The largest of every 2x2 pixels; an odd last row or column is left out."""
    n, height, width, filters = x.shape
    height, width = height // POOL, width // POOL
    pixels = x[:, : height * POOL, : width * POOL].reshape(n, height, POOL, width, POOL, filters)
    rows = _larger(pixels[:, :, 0], pixels[:, :, 1])
    return _larger(rows[:, :, :, 0], rows[:, :, :, 1])


def _larger(a: Array, b: Array) -> Array:
    # Not jnp.max: its derivative looks for the entry that equals the maximum and divides by how many do. A compiler
    # that computes an entry twice, rounded differently, finds none, and the result is not a number.
    return jnp.where(a >= b, a, b)


class ConvBlock(eqx.Module):
    """3x3 convolution, batch normalisation if there is a scale, ReLU, 2x2 max pooling."""

    weight: Array
    """Of shape (3, 3, channels, filters)."""
    scale: Array | None
    shift: Array

    def __init__(self, channels: int, filters: int, normalised: bool, key: Array):
        weight_key, shift_key = jax.random.split(key)
        bound = 1 / sqrt(KERNEL * KERNEL * channels)
        shape = (KERNEL, KERNEL, channels, filters)
        self.weight = jax.random.uniform(weight_key, shape, minval=-bound, maxval=bound)
        self.scale = jnp.ones(filters) if normalised else None
        # The normalisation takes every constant away, so beside its shift a bias would be without effect.
        bias = jax.random.uniform(shift_key, (filters,), minval=-bound, maxval=bound)
        self.shift = jnp.zeros(filters) if normalised else bias

    def __call__(self, x: Array) -> Array:
        x = convolve(x, self.weight)
        if self.scale is not None:
            x = x - jnp.mean(x, axis=(0, 1, 2))
            x = x * (self.scale * jax.lax.rsqrt(jnp.mean(x * x, axis=(0, 1, 2)) + EPSILON))
        # ReLU after pooling is the same as before it, on a quarter of the pixels.
        return jax.nn.relu(pool(x + self.shift))


class ConvNet(eqx.Module):
    """Convolutional blocks and a dense layer; it is its own pytree of parameters."""

    blocks: tuple[ConvBlock, ...]
    head: Dense

    def __call__(self, x: Array) -> Array:
        for block in self.blocks:
            x = block(x)
        return self.head(x.reshape(x.shape[0], -1))


@dataclass(frozen=True)
class Conv(Model):
    """Conv-4, on images (height, width) or (height, width, channels): blocks of convolution, norm, ReLU and pooling.

    Each block is a 3x3 convolution, batch normalisation with learned scale and shift, ReLU and 2x2 max pooling; a
    dense layer follows. Weights are uniform in ``+- 1/sqrt(fan-in)`` as in `MLP`, where MAML's code has truncated
    normal ones.

    ``normalisation="batch"`` is MAML's: by mean and variance of the batch at hand over samples and pixels, also when
    the model is judged. There are no running statistics, so predictions of a batch depend on each other. Batches
    should therefore all have one size, as those of episodes do. A full batch of clients with unequally many samples
    is `Weighted` and scored sample by sample, so there each image is normalised by its own pixels alone; use
    ``"none"`` or a number of samples in place of ``"full"``.

    >>> import jax
    >>> conv = Conv(inputs=(28, 28), outputs=5)
    >>> conv.apply(conv.init(jax.random.key(0)), jax.numpy.zeros((10, 28, 28))).shape
    (10, 5)
    """

    inputs: tuple[int, ...]
    outputs: int
    filters: int = 64
    blocks: int = 4
    normalisation: Normalisation = "batch"

    def __post_init__(self) -> None:
        if not isinstance(self.inputs, tuple) or len(self.inputs) not in (2, 3):
            raise UsageError(
                f"inputs = {self.inputs!r} are not images, and a convolutional network takes nothing else.",
                "Give (height, width) or (height, width, channels), or use another model, such as mlp.",
            )
        for size in self.inputs:
            checks.whole("inputs", size, 1)
        for name in ("outputs", "filters", "blocks"):
            checks.whole(name, getattr(self, name), 1)
        if self.normalisation not in NORMALISATIONS:
            raise UsageError(
                f"There is no normalisation {self.normalisation!r}.",
                did_you_mean(str(self.normalisation), NORMALISATIONS),
            )
        if min(self._features[:2]) < 1:
            raise UsageError(
                f"Images of {self.inputs[0]}x{self.inputs[1]} are too small to be halved by {self.blocks} blocks.",
                f"Set blocks to {min(self.inputs[:2]).bit_length() - 1} or less.",
            )

    @property
    def _features(self) -> tuple[int, int, int]:
        """Height, width and number of the features that the dense layer sees."""
        height, width = (size // POOL**self.blocks for size in self.inputs[:2])
        return height, width, self.filters

    @property
    def _image(self) -> tuple[int, ...]:
        return self.inputs if len(self.inputs) == 3 else (*self.inputs, 1)

    def init(self, key: Array) -> ConvNet:
        *block_keys, head_key = jax.random.split(key, self.blocks + 1)
        channels = (self._image[2], *[self.filters] * (self.blocks - 1))
        blocks = tuple(
            ConvBlock(c, self.filters, self.normalisation == "batch", k)
            for c, k in zip(channels, block_keys, strict=True)
        )
        return ConvNet(blocks, Dense(prod(self._features), self.outputs, head_key))

    def apply(self, params: ConvNet, x: Array) -> Array:
        return params(x.reshape(x.shape[0], *self._image).astype(params.head.weight.dtype))
