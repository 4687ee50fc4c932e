"""The suite's networks as Equinox modules, and the same as losses in PyTorch."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from headstart.models import EquinoxModel, Model

__all__ = ["BLOCKS", "EPSILON", "GROUPS", "WIDTHS", "equinox_models", "torch_losses", "torch_weights", "widths"]

BLOCKS, WIDTHS, GROUPS = 3, (16, 32, 64), 4
EPSILON = 1e-5


def widths() -> list[tuple[int, int]]:
    """Channels before and after each block of the ResNet."""
    after = [width for width in WIDTHS for _ in range(BLOCKS)]
    return list(zip([WIDTHS[0], *after], after, strict=False))


class EquinoxCNN(eqx.Module):
    """The FedAvg papers' CNN."""

    first: eqx.nn.Conv2d
    second: eqx.nn.Conv2d
    dense: eqx.nn.Linear
    head: eqx.nn.Linear

    def __init__(self, key: Array):
        keys = jax.random.split(key, 4)
        self.first = eqx.nn.Conv2d(3, 32, 5, padding=2, key=keys[0])
        self.second = eqx.nn.Conv2d(32, 64, 5, padding=2, key=keys[1])
        self.dense = eqx.nn.Linear(4096, 256, key=keys[2])
        self.head = eqx.nn.Linear(256, 10, key=keys[3])

    def __call__(self, x: Array) -> Array:
        x, pool = jnp.transpose(x, (2, 0, 1)), eqx.nn.MaxPool2d(2, 2)
        for convolution in (self.first, self.second):
            x = pool(jax.nn.relu(convolution(x)))
        return self.head(jax.nn.relu(self.dense(x.reshape(-1))))


class EquinoxBlock(eqx.Module):
    """Two convolutions and what goes past them."""

    first: eqx.nn.Conv2d
    second: eqx.nn.Conv2d
    norms: list[eqx.nn.GroupNorm]
    short: eqx.nn.Conv2d | None

    def __init__(self, before: int, width: int, key: Array):
        stride, keys = 1 if before == width else 2, jax.random.split(key, 3)
        self.first = eqx.nn.Conv2d(before, width, 3, stride, 1, use_bias=False, key=keys[0])
        self.second = eqx.nn.Conv2d(width, width, 3, 1, 1, use_bias=False, key=keys[1])
        self.norms = [eqx.nn.GroupNorm(GROUPS, width, eps=EPSILON) for _ in range(2)]
        self.short = eqx.nn.Conv2d(before, width, 1, stride, use_bias=False, key=keys[2]) if stride > 1 else None

    def __call__(self, x: Array) -> Array:
        y = jax.nn.relu(self.norms[0](self.first(x)))
        return jax.nn.relu(self.norms[1](self.second(y)) + (x if self.short is None else self.short(x)))


class EquinoxResNet(eqx.Module):
    """ResNet-20 with group normalisation."""

    stem: eqx.nn.Conv2d
    norm: eqx.nn.GroupNorm
    blocks: list[EquinoxBlock]
    head: eqx.nn.Linear

    def __init__(self, key: Array):
        stem, head, *keys = jax.random.split(key, 2 + BLOCKS * len(WIDTHS))
        self.stem = eqx.nn.Conv2d(3, WIDTHS[0], 3, padding=1, use_bias=False, key=stem)
        self.norm = eqx.nn.GroupNorm(GROUPS, WIDTHS[0], eps=EPSILON)
        self.blocks = [EquinoxBlock(*pair, k) for pair, k in zip(widths(), keys, strict=True)]
        self.head = eqx.nn.Linear(WIDTHS[-1], 10, key=head)

    def __call__(self, x: Array) -> Array:
        x = jax.nn.relu(self.norm(self.stem(jnp.transpose(x, (2, 0, 1)))))
        for block in self.blocks:
            x = block(x)
        return self.head(jnp.mean(x, (1, 2)))


def equinox_models() -> dict[str, Model]:
    """By name."""
    return {"CNN": EquinoxModel(EquinoxCNN), "ResNet-20": EquinoxModel(EquinoxResNet)}


def torch_losses() -> dict[str, Any]:
    """By name, as functions of parameters and a batch."""
    return {"CNN": torch_cnn, "ResNet-20": torch_resnet}


def torch_cnn(weights: Any, batch: Any) -> Any:
    """The loss of the FedAvg papers' CNN in PyTorch."""
    from torch.nn import functional as F

    x, (w1, b1, w2, b2, w3, b3, w4, b4) = batch[0], weights
    x = F.max_pool2d(F.relu(F.conv2d(x, w1, b1, padding=2)), 2)
    x = F.max_pool2d(F.relu(F.conv2d(x, w2, b2, padding=2)), 2)
    return F.cross_entropy(F.linear(F.relu(F.linear(x.flatten(1), w3, b3)), w4, b4), batch[1])


def torch_resnet(weights: Any, batch: Any) -> Any:
    """The loss of the ResNet in PyTorch."""
    from torch.nn import functional as F

    given = iter(weights)

    def convolved(x: Any, stride: int = 1, padding: int = 1) -> Any:
        return F.conv2d(x, next(given), stride=stride, padding=padding)

    def normalised(x: Any) -> Any:
        return F.group_norm(x, GROUPS, next(given), next(given), EPSILON)

    x = F.relu(normalised(convolved(batch[0])))
    for before, after in widths():
        stride = 1 if before == after else 2
        y = F.relu(normalised(convolved(x, stride)))
        y = normalised(convolved(y))
        x = F.relu(y + (x if stride == 1 else convolved(x, stride, 0)))
    return F.cross_entropy(F.linear(x.mean((2, 3)), next(given), next(given)), batch[1])


def torch_weights(model: str, tree: Any) -> list[Any]:
    """An Equinox network's parameters (or gradient), in the order in which PyTorch's loss takes them."""
    import torch

    def of(layer: Any) -> list[Any]:
        return [a for a in (layer.weight, layer.bias) if a is not None]

    if model == "CNN":
        arrays = [a for layer in (tree.first, tree.second, tree.dense, tree.head) for a in of(layer)]
    else:
        arrays = [*of(tree.stem), *of(tree.norm)]
        for block in tree.blocks:
            arrays += [*of(block.first), *of(block.norms[0]), *of(block.second), *of(block.norms[1])]
            arrays += [] if block.short is None else of(block.short)
        arrays += of(tree.head)
    # Equinox keeps a convolution's bias as (channels, 1, 1).
    return [torch.from_numpy(np.array(a if a.ndim != 3 else a[:, 0, 0], order="C")) for a in arrays]
