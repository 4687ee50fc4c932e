"""Multilayer perceptrons."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod, sqrt
from typing import Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from headstart.core import checks
from headstart.errors import UsageError, did_you_mean
from headstart.models.model import Model

__all__ = ["ACTIVATIONS", "MLP", "Dense", "Linear", "Perceptron"]

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "elu": jax.nn.elu,
    "elu-0.2": partial(jax.nn.elu, alpha=0.2),
    "gelu": jax.nn.gelu,
    "relu": jax.nn.relu,
    "sigmoid": jax.nn.sigmoid,
    "silu": jax.nn.silu,
    "softplus": jax.nn.softplus,
    "tanh": jax.nn.tanh,
}
"""Activation functions by name."""


Initial = Literal["uniform", "he", "he-normal-bias"]
"""All uniform in ``+- 1/sqrt(fan-in)``; weights normal of variance 2/fan-in, with zero or standard normal biases."""


def check_dropout(rate: float) -> None:
    """Reject what is not the probability of leaving a unit out."""
    checks.at_least("dropout", rate, 0)
    if rate >= 1:
        raise UsageError(f"dropout = {rate} leaves nothing over.", "Give dropout a share below 1.")


class Dense(eqx.Module):
    """``x W' + b`` with ``W`` of shape (outputs, inputs): a CPU has its gradient faster that way if it is wide."""

    weight: Array
    bias: Array

    def __init__(self, inputs: int, outputs: int, key: Array, initial: Initial = "uniform"):
        weight_key, bias_key = jax.random.split(key)
        if initial == "uniform":
            bound = 1 / sqrt(inputs)
            self.weight = jax.random.uniform(weight_key, (inputs, outputs), minval=-bound, maxval=bound).T
            self.bias = jax.random.uniform(bias_key, (outputs,), minval=-bound, maxval=bound)
            return
        self.weight = jax.random.normal(weight_key, (inputs, outputs)).T * sqrt(2 / inputs)
        self.bias = jax.random.normal(bias_key, (outputs,)) if initial == "he-normal-bias" else jnp.zeros(outputs)

    def __call__(self, x: Array) -> Array:
        return x @ self.weight.T + self.bias


class Perceptron(eqx.Module):
    """Dense layers with an activation between them; it is its own pytree of parameters."""

    layers: tuple[Dense, ...]
    activation: str = eqx.field(static=True)
    output_activation: str | None = eqx.field(static=True, default=None)

    def __call__(self, x: Array, dropout: float = 0.0, key: Array | None = None) -> Array:
        for number, layer in enumerate(self.layers[:-1]):
            x = ACTIVATIONS[self.activation](layer(x))
            if dropout and key is not None:
                x = dropped(x, dropout, jax.random.fold_in(key, number))
        x = self.layers[-1](x)
        return x if self.output_activation is None else ACTIVATIONS[self.output_activation](x)


def dropped(x: Array, rate: float, key: Array) -> Array:
    """Every entry zero with the probability ``rate``, and larger otherwise, so that its mean stays as it is."""
    return jnp.where(jax.random.bernoulli(key, 1 - rate, x.shape), x / (1 - rate), 0)


@dataclass(frozen=True)
class MLP(Model):
    """A perceptron on flattened inputs; ``dropout`` leaves hidden units out in training.

    Weights and biases begin uniform in ``+- 1/sqrt(fan-in)``, unless ``initial`` says otherwise.
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
    output_activation: str | None = None
    initial: Initial = "uniform"
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_dropout(self.dropout)
        for name, value in (("inputs", self._features), ("outputs", self.outputs)):
            checks.whole(name, value, 1)
        for width in self.hidden:
            checks.whole("hidden", width, 1)
        for chosen in (self.activation, self.output_activation):
            if chosen is not None and chosen not in ACTIVATIONS:
                raise UsageError(f"There is no activation {chosen!r}.", did_you_mean(chosen, ACTIVATIONS))
        if self.initial not in get_args(Initial):
            raise UsageError(f"There is no initial {self.initial!r}.", did_you_mean(self.initial, get_args(Initial)))

    @property
    def _features(self) -> int:
        return self.inputs if isinstance(self.inputs, int) else prod(self.inputs)

    def init(self, key: Array) -> Perceptron:
        widths = (self._features, *self.hidden, self.outputs)
        keys = jax.random.split(key, len(widths) - 1)
        layers = tuple(Dense(m, n, k, self.initial) for m, n, k in zip(widths[:-1], widths[1:], keys, strict=True))
        return Perceptron(layers, self.activation, self.output_activation)

    @property
    def random(self) -> bool:  # type: ignore[override]
        """Whether there is dropout."""
        return self.dropout > 0

    def apply(self, params: Perceptron, x: Array, key: Array | None = None) -> Array:
        return params(x.reshape(x.shape[0], self._features), self.dropout, key)


@dataclass(frozen=True)
class Linear(Model):
    """``x W' + b`` of flattened inputs: linear regression, or with one output per class a logistic one.

    >>> import jax
    >>> linear = Linear(inputs=4, outputs=3)
    >>> linear.apply(linear.init(jax.random.key(0)), jax.numpy.zeros((5, 4))).shape
    (5, 3)
    """

    inputs: int | tuple[int, ...]
    outputs: int
    initial: Initial = "uniform"

    def __post_init__(self) -> None:
        _ = self._layer

    @property
    def _layer(self) -> MLP:
        return MLP(self.inputs, self.outputs, hidden=(), initial=self.initial)

    def init(self, key: Array) -> Perceptron:
        return self._layer.init(key)

    def apply(self, params: Perceptron, x: Array, key: Array | None = None) -> Array:
        return self._layer.apply(params, x)
