"""Multilayer perceptrons."""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod, sqrt

import equinox as eqx
import jax
from jax import Array

from headstart.core import checks
from headstart.errors import UsageError, did_you_mean
from headstart.models.model import Model

__all__ = ["ACTIVATIONS", "MLP", "Dense", "Perceptron"]

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "elu": jax.nn.elu,
    "gelu": jax.nn.gelu,
    "relu": jax.nn.relu,
    "sigmoid": jax.nn.sigmoid,
    "silu": jax.nn.silu,
    "softplus": jax.nn.softplus,
    "tanh": jax.nn.tanh,
}
"""Activation functions by name."""


class Dense(eqx.Module):
    """``x W + b`` with ``W`` of shape (inputs, outputs): on a CPU the faster way round for small batches."""

    weight: Array
    bias: Array

    def __init__(self, inputs: int, outputs: int, key: Array):
        weight_key, bias_key = jax.random.split(key)
        bound = 1 / sqrt(inputs)
        self.weight = jax.random.uniform(weight_key, (inputs, outputs), minval=-bound, maxval=bound)
        self.bias = jax.random.uniform(bias_key, (outputs,), minval=-bound, maxval=bound)

    def __call__(self, x: Array) -> Array:
        return x @ self.weight + self.bias


class Perceptron(eqx.Module):
    """Dense layers with an activation between them; it is its own pytree of parameters."""

    layers: tuple[Dense, ...]
    activation: str = eqx.field(static=True)

    def __call__(self, x: Array) -> Array:
        for layer in self.layers[:-1]:
            x = ACTIVATIONS[self.activation](layer(x))
        return self.layers[-1](x)


@dataclass(frozen=True)
class MLP(Model):
    """A perceptron on flattened inputs, weights and biases uniform in ``+- 1/sqrt(fan-in)``.

    ``hidden=(80, 60), activation="elu"`` is fallah's and jamali's network, ``(40, 40), "relu"`` wang's.

    >>> import jax
    >>> mlp = MLP(inputs=(28, 28), outputs=10)
    >>> mlp.apply(mlp.init(jax.random.key(0)), jax.numpy.zeros((5, 28, 28))).shape
    (5, 10)
    """

    inputs: int | tuple[int, ...]
    outputs: int
    hidden: tuple[int, ...] = (80, 60)
    activation: str = "elu"

    def __post_init__(self) -> None:
        for name, value in (("inputs", self._features), ("outputs", self.outputs)):
            checks.whole(name, value, 1)
        for width in self.hidden:
            checks.whole("hidden", width, 1)
        if self.activation not in ACTIVATIONS:
            raise UsageError(f"There is no activation {self.activation!r}.", did_you_mean(self.activation, ACTIVATIONS))

    @property
    def _features(self) -> int:
        return self.inputs if isinstance(self.inputs, int) else prod(self.inputs)

    def init(self, key: Array) -> Perceptron:
        widths = (self._features, *self.hidden, self.outputs)
        keys = jax.random.split(key, len(widths) - 1)
        layers = tuple(Dense(m, n, k) for m, n, k in zip(widths[:-1], widths[1:], keys, strict=True))
        return Perceptron(layers, self.activation)

    def apply(self, params: Perceptron, x: Array) -> Array:
        return params(x.reshape(x.shape[0], self._features))
