"""The suite's networks as Flax NNX modules."""

from functools import partial

import jax.numpy as jnp
from flax import nnx
from jax import Array

from headstart.bench.suites._networks import EPSILON, GROUPS, WIDTHS, widths
from headstart.models import Model, NNXModel

__all__ = ["nnx_models"]


class NNXCNN(nnx.Module):
    """The FedAvg papers' CNN."""

    def __init__(self, rngs: nnx.Rngs):
        self.first = nnx.Conv(3, 32, (5, 5), rngs=rngs)
        self.second = nnx.Conv(32, 64, (5, 5), rngs=rngs)
        self.dense = nnx.Linear(4096, 256, rngs=rngs)
        self.head = nnx.Linear(256, 10, rngs=rngs)

    def __call__(self, x: Array) -> Array:
        for convolution in (self.first, self.second):
            x = nnx.max_pool(nnx.relu(convolution(x)), (2, 2), (2, 2))
        return self.head(nnx.relu(self.dense(x.reshape(x.shape[0], -1))))


class NNXBlock(nnx.Module):
    """Two convolutions and what goes past them."""

    def __init__(self, before: int, width: int, rngs: nnx.Rngs):
        stride = 1 if before == width else 2
        norm = partial(nnx.GroupNorm, width, GROUPS, epsilon=EPSILON, rngs=rngs)
        padding = ((1, 1), (1, 1))
        self.first = nnx.Conv(before, width, (3, 3), stride, padding=padding, use_bias=False, rngs=rngs)
        self.second = nnx.Conv(width, width, (3, 3), padding=padding, use_bias=False, rngs=rngs)
        self.norms = nnx.List([norm(), norm()])
        short = nnx.Conv(before, width, (1, 1), stride, padding="VALID", use_bias=False, rngs=rngs)
        self.short = short if stride > 1 else None

    def __call__(self, x: Array) -> Array:
        y = nnx.relu(self.norms[0](self.first(x)))
        return nnx.relu(self.norms[1](self.second(y)) + (x if self.short is None else self.short(x)))


class NNXResNet(nnx.Module):
    """ResNet-20 with group normalisation."""

    def __init__(self, rngs: nnx.Rngs):
        self.stem = nnx.Conv(3, WIDTHS[0], (3, 3), use_bias=False, rngs=rngs)
        self.norm = nnx.GroupNorm(WIDTHS[0], GROUPS, epsilon=EPSILON, rngs=rngs)
        self.blocks = nnx.List([NNXBlock(before, width, rngs) for before, width in widths()])
        self.head = nnx.Linear(WIDTHS[-1], 10, rngs=rngs)

    def __call__(self, x: Array) -> Array:
        x = nnx.relu(self.norm(self.stem(x)))
        for block in self.blocks:
            x = block(x)
        return self.head(jnp.mean(x, (1, 2)))


def nnx_models() -> dict[str, Model]:
    """By name."""
    return {"CNN": NNXModel(NNXCNN), "ResNet-20": NNXModel(NNXResNet)}
