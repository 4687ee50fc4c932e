"""A small residual network that normalises every sample by itself."""

from dataclasses import dataclass
from math import sqrt

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from headstart.core import checks
from headstart.errors import UsageError
from headstart.models.conv import convolve, image_shape
from headstart.models.mlp import Dense
from headstart.models.model import Model

__all__ = ["ResNet", "ResidualBlock", "ResidualNet"]

STAGES = 3
EPSILON = 1e-5


class NormalisedConvolution(eqx.Module):
    """3x3 convolution and group normalisation with learned scale and shift."""

    weight: Array
    """Of shape (3, 3, channels, filters)."""
    scale: Array
    shift: Array
    stride: int = eqx.field(static=True)
    groups: int = eqx.field(static=True)

    def __init__(self, channels: int, filters: int, stride: int, groups: int, key: Array):
        self.weight = jax.random.normal(key, (3, 3, channels, filters)) * sqrt(2 / (9 * channels))
        self.scale, self.shift = jnp.ones(filters), jnp.zeros(filters)
        self.stride, self.groups = stride, groups

    def __call__(self, x: Array) -> Array:
        x = convolve(x, self.weight, self.stride)
        # Mean and variance over the pixels and channels of a group, of one image alone.
        grouped = x.reshape(*x.shape[:3], self.groups, -1)
        grouped = grouped - jnp.mean(grouped, axis=(1, 2, 4), keepdims=True)
        variance = jnp.mean(grouped * grouped, axis=(1, 2, 4), keepdims=True)
        return (grouped * jax.lax.rsqrt(variance + EPSILON)).reshape(x.shape) * self.scale + self.shift


class ResidualBlock(eqx.Module):
    """``relu(x + c2(relu(c1(x))))``; where the image is halved, x is every other pixel with zeros as new channels."""

    first: NormalisedConvolution
    second: NormalisedConvolution

    def __call__(self, x: Array) -> Array:
        stride, more = self.first.stride, self.first.weight.shape[-1] - x.shape[-1]
        skipped = jnp.pad(x[:, ::stride, ::stride], ((0, 0), (0, 0), (0, 0), (0, more))) if stride > 1 else x
        return jax.nn.relu(skipped + self.second(jax.nn.relu(self.first(x))))


class ResidualNet(eqx.Module):
    """A convolution, residual blocks, the mean over pixels and a dense layer; it is its own pytree of parameters."""

    stem: NormalisedConvolution
    blocks: tuple[ResidualBlock, ...]
    head: Dense

    def __call__(self, x: Array) -> Array:
        x = jax.nn.relu(self.stem(x))
        for block in self.blocks:
            x = block(x)
        return self.head(jnp.mean(x, axis=(1, 2)))


@dataclass(frozen=True)
class ResNet(Model):
    """He et al.'s residual network for small images, with group in place of batch normalisation.

    ``depth`` is ``6 n + 2`` (8, 14, 20, ...): three stages of n blocks, with ``width``, twice and four times as many
    filters, and shortcuts without parameters (option A). Group normalisation (Wu and He 2018) keeps no statistics and
    looks at one image at a time, so it suits clients that differ. Weights are normal of variance 2/fan-in.

    >>> import jax
    >>> resnet = ResNet(inputs=(32, 32, 3), outputs=10, depth=20)
    >>> sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(resnet.init, jax.random.key(0))))
    269722
    """

    inputs: tuple[int, ...]
    outputs: int
    depth: int = 8
    width: int = 16
    groups: int = 8

    def __post_init__(self) -> None:
        image_shape(self.inputs)
        for name in ("outputs", "width", "groups"):
            checks.whole(name, getattr(self, name), 1)
        checks.whole("depth", self.depth, 8)
        if self.depth % 6 != 2:
            raise UsageError(f"depth = {self.depth} is not 6 n + 2.", "Choose 8, 14, 20, 26, 32, ...")
        if self.width % self.groups:
            raise UsageError(
                f"width = {self.width} filters do not fall into groups = {self.groups} equal groups.",
                "Set groups to a divisor of width.",
            )

    def init(self, key: Array) -> ResidualNet:
        each = (self.depth - 2) // (2 * STAGES)
        stem_key, head_key, *block_keys = jax.random.split(key, 2 + STAGES * each)
        blocks, channels = [], self.width
        for number, block_key in enumerate(block_keys):
            stage, place = divmod(number, each)
            filters, stride = self.width * 2**stage, 2 if stage and not place else 1
            first, second = jax.random.split(block_key)
            blocks.append(
                ResidualBlock(
                    NormalisedConvolution(channels, filters, stride, self.groups, first),
                    NormalisedConvolution(filters, filters, 1, self.groups, second),
                )
            )
            channels = filters
        stem = NormalisedConvolution(image_shape(self.inputs)[2], self.width, 1, self.groups, stem_key)
        return ResidualNet(stem, tuple(blocks), Dense(channels, self.outputs, head_key))

    def apply(self, params: ResidualNet, x: Array, key: Array | None = None) -> Array:
        return params(x.reshape(x.shape[0], *image_shape(self.inputs)).astype(params.head.weight.dtype))
