"""Convolutional networks of the papers: the few-shot ones' conv-4, and the two-layer one of federated averaging."""

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

__all__ = ["CNN", "NORMALISATIONS", "Conv", "ConvBlock", "ConvNet", "convolve"]

Normalisation = Literal["batch", "none"]

NORMALISATIONS: tuple[Normalisation, ...] = ("batch", "none")
"""What may stand between a convolution and its activation."""

KERNEL, POOL = 3, 2
EPSILON = 1e-3  # added to variances, as in MAML's code; it also bounds the derivatives where a feature is constant


def convolve(x: Array, weight: Array, stride: int = 1) -> Array:
    """Convolution of an odd width with zero padding, as XLA has it.

    What accelerators have kernels for; on a CPU a problem's loss gives it the form that is fast in compiled loops.
    """
    around = [(weight.shape[0] // 2, weight.shape[0] // 2)] * 2
    return jax.lax.conv_general_dilated(x, weight, (stride, stride), around, dimension_numbers=("NHWC", "HWIO", "NHWC"))


def image_shape(inputs: tuple[int, ...]) -> tuple[int, int, int]:
    """Height, width and channels of images; one channel where none are given."""
    if not isinstance(inputs, tuple) or len(inputs) not in (2, 3):
        raise UsageError(
            f"inputs = {inputs!r} are not images, and a convolutional network takes nothing else.",
            "Give (height, width) or (height, width, channels), or use another model, such as mlp.",
        )
    for size in inputs:
        checks.whole("inputs", size, 1)
    height, width, channels = inputs if len(inputs) == 3 else (*inputs, 1)
    return height, width, channels


def halved(inputs: tuple[int, ...], times: int) -> tuple[int, int]:
    """Height and width after so many poolings."""
    height, width = (size // POOL**times for size in inputs[:2])
    if min(height, width) < 1:
        raise UsageError(
            f"Images of {inputs[0]}x{inputs[1]} are too small to be halved by {times} blocks.",
            f"Set blocks to {min(inputs[:2]).bit_length() - 1} or less.",
        )
    return height, width


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
    """Convolution, batch normalisation if there is a scale, ReLU, 2x2 max pooling."""

    weight: Array
    """Of shape (kernel, kernel, channels, filters)."""
    scale: Array | None
    shift: Array

    def __init__(self, channels: int, filters: int, normalised: bool, key: Array, kernel: int = KERNEL):
        weight_key, shift_key = jax.random.split(key)
        bound = 1 / sqrt(kernel * kernel * channels)
        shape = (kernel, kernel, channels, filters)
        self.weight = jax.random.uniform(weight_key, shape, minval=-bound, maxval=bound)
        self.scale = jnp.ones(filters) if normalised else None
        # The normalisation takes every constant away, so beside its shift a bias would be without effect.
        bias = jax.random.uniform(shift_key, (filters,), minval=-bound, maxval=bound)
        self.shift = jnp.zeros(filters) if normalised else bias

    def __call__(self, x: Array) -> Array:
        # Pooled first, what is as good after pooling: the ReLU, the shift, and the normalisation, whose sign goes into
        # the weights because pooling takes the largest. They are on a quarter of the pixels then, and what is not
        # pooled is written once and read for its moments alone. That is most of the memory traffic of a small network.
        if self.scale is None:
            return jax.nn.relu(pool(convolve(x, self.weight)) + self.shift)
        sign = jnp.where(self.scale < 0, -1, 1)
        x = convolve(x, self.weight * sign)
        mean = jnp.mean(x, axis=(0, 1, 2))
        variance = jnp.mean(jnp.square(x - mean), axis=(0, 1, 2))
        scale = self.scale * sign * jax.lax.rsqrt(variance + EPSILON)
        return jax.nn.relu((pool(x) - mean) * scale + self.shift)


class ConvNet(eqx.Module):
    """Convolutional blocks and a dense layer, perhaps a hidden one between; it is its own pytree of parameters."""

    blocks: tuple[ConvBlock, ...]
    head: Dense
    hidden: Dense | None = None

    def __call__(self, x: Array) -> Array:
        for block in self.blocks:
            x = block(x)
        x = x.reshape(x.shape[0], -1)
        return self.head(x if self.hidden is None else jax.nn.relu(self.hidden(x)))


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
        image_shape(self.inputs)
        for name in ("outputs", "filters", "blocks"):
            checks.whole(name, getattr(self, name), 1)
        if self.normalisation not in NORMALISATIONS:
            raise UsageError(
                f"There is no normalisation {self.normalisation!r}.",
                did_you_mean(str(self.normalisation), NORMALISATIONS),
            )
        halved(self.inputs, self.blocks)

    @property
    def _features(self) -> tuple[int, int, int]:
        """Height, width and number of the features that the dense layer sees."""
        return *halved(self.inputs, self.blocks), self.filters

    @property
    def mixes_rows(self) -> bool:
        return self.normalisation == "batch"

    def init(self, key: Array) -> ConvNet:
        *block_keys, head_key = jax.random.split(key, self.blocks + 1)
        channels = (image_shape(self.inputs)[2], *[self.filters] * (self.blocks - 1))
        blocks = tuple(
            ConvBlock(c, self.filters, self.normalisation == "batch", k)
            for c, k in zip(channels, block_keys, strict=True)
        )
        return ConvNet(blocks, Dense(prod(self._features), self.outputs, head_key))

    def apply(self, params: ConvNet, x: Array, key: Array | None = None) -> Array:
        return params(x.reshape(x.shape[0], *image_shape(self.inputs)).astype(params.head.weight.dtype))


@dataclass(frozen=True)
class CNN(Model):
    """The two-layer network of federated averaging: 5x5 convolutions with ReLU and 2x2 max pooling, a dense layer.

    McMahan et al. 2017, section 3: ``filters=(32, 64)`` and ``hidden=512`` have 1,663,370 parameters for MNIST.
    Without normalisation, so that samples do not see each other. Weights are uniform in ``+- 1/sqrt(fan-in)``.

    >>> import jax
    >>> cnn = CNN(inputs=(28, 28), outputs=10)
    >>> sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(cnn.init, jax.random.key(0))))
    1663370
    """

    inputs: tuple[int, ...]
    outputs: int
    filters: tuple[int, ...] = (32, 64)
    hidden: int = 512
    kernel: int = 5

    def __post_init__(self) -> None:
        image_shape(self.inputs)
        for filters in self.filters:
            checks.whole("filters", filters, 1)
        for name in ("outputs", "hidden", "kernel"):
            checks.whole(name, getattr(self, name), 1)
        if self.kernel % 2 == 0:
            raise UsageError(f"kernel = {self.kernel} has no pixel in its middle.", "Give an odd number.")
        halved(self.inputs, len(self.filters))

    def init(self, key: Array) -> ConvNet:
        *block_keys, hidden_key, head_key = jax.random.split(key, len(self.filters) + 2)
        channels = (image_shape(self.inputs)[2], *self.filters)
        blocks = tuple(
            ConvBlock(c, f, normalised=False, key=k, kernel=self.kernel)
            for c, f, k in zip(channels[:-1], channels[1:], block_keys, strict=True)
        )
        features = prod(halved(self.inputs, len(self.filters))) * channels[-1]
        return ConvNet(blocks, Dense(self.hidden, self.outputs, head_key), Dense(features, self.hidden, hidden_key))

    def apply(self, params: ConvNet, x: Array, key: Array | None = None) -> Array:
        return params(x.reshape(x.shape[0], *image_shape(self.inputs)).astype(params.head.weight.dtype))
