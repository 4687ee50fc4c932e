"""Recurrent networks: of a text's next character, say."""

from dataclasses import dataclass
from math import sqrt
from typing import Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from headstart.core import checks
from headstart.errors import UsageError, did_you_mean
from headstart.models.mlp import Dense
from headstart.models.model import Model

__all__ = ["Recurrent", "RecurrentLayer", "RecurrentNet"]

Cell = Literal["gru", "lstm"]

GATES: dict[Cell, int] = {"gru": 3, "lstm": 4}


class RecurrentLayer(eqx.Module):
    """A GRU or an LSTM over a sequence, with weights and biases for what comes in and for its own state.

    The gates are in PyTorch's order: reset, update and new of a GRU; input, forget, cell and output of an LSTM.
    """

    weight: Array
    """Of shape (gates, inputs), the gates of all units."""
    recurrent: Array
    """Of shape (gates, units)."""
    bias: Array
    recurrent_bias: Array
    cell: Cell = eqx.field(static=True)

    def __init__(self, inputs: int, units: int, cell: Cell, key: Array):
        rows, bound = GATES[cell] * units, 1 / sqrt(units)
        shapes = ((rows, inputs), (rows, units), (rows,), (rows,))
        drawn = [
            jax.random.uniform(k, shape, minval=-bound, maxval=bound)
            for shape, k in zip(shapes, jax.random.split(key, len(shapes)), strict=True)
        ]
        self.weight, self.recurrent, self.bias, self.recurrent_bias = drawn
        self.cell = cell

    def __call__(self, x: Array) -> tuple[Array, Array]:
        """The state after every step, of (steps, samples, inputs), and the last one."""
        # What does not depend on the state is one product for all steps.
        driven = x @ self.weight.T + self.bias
        start = jnp.zeros((x.shape[1], self.recurrent.shape[1]), driven.dtype)

        def gru(h: Array, drive: Array) -> tuple[Array, Array]:
            own = h @ self.recurrent.T + self.recurrent_bias
            (r, z, n), (own_r, own_z, own_n) = jnp.split(drive, 3, axis=-1), jnp.split(own, 3, axis=-1)
            z = jax.nn.sigmoid(z + own_z)
            h = (1 - z) * jnp.tanh(n + jax.nn.sigmoid(r + own_r) * own_n) + z * h
            return h, h

        def lstm(state: tuple[Array, Array], drive: Array) -> tuple[tuple[Array, Array], Array]:
            h, c = state
            i, f, g, o = jnp.split(drive + h @ self.recurrent.T + self.recurrent_bias, 4, axis=-1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        if self.cell == "gru":
            last, every = jax.lax.scan(gru, start, driven)
            return every, last
        (last, _), every = jax.lax.scan(lstm, (start, start), driven)
        return every, last


class RecurrentNet(eqx.Module):
    """An embedding, recurrent layers and a dense layer; it is its own pytree of parameters."""

    embedding: Array
    """Of shape (vocabulary, dimension)."""
    layers: tuple[RecurrentLayer, ...]
    head: Dense

    def __call__(self, x: Array) -> Array:
        every = jnp.swapaxes(x @ self.embedding, 0, 1)
        for layer in self.layers:
            every, last = layer(every)
        return self.head(last)


@dataclass(frozen=True)
class Recurrent(Model):
    """An embedding, layers of LSTM or GRU, and a dense layer on the last state: a text's next character, say.

    ``inputs`` are (steps, vocabulary) for one-hot codes or any other numbers of each step, which are embedded
    linearly, or (steps,) for codes, of which ``vocabulary`` says how many there are. McMahan et al. 2017 have
    ``embedding=8, hidden=(256, 256)`` for Shakespeare. Weights begin as PyTorch's do.

    >>> import jax
    >>> model = Recurrent(inputs=(10, 80), outputs=80, hidden=(16,))
    >>> model.apply(model.init(jax.random.key(0)), jax.numpy.zeros((5, 10, 80))).shape
    (5, 80)
    """

    inputs: tuple[int, ...]
    outputs: int
    vocabulary: int | None = None
    embedding: int = 8
    hidden: tuple[int, ...] = (128,)
    cell: Cell = "lstm"

    def __post_init__(self) -> None:
        if not isinstance(self.inputs, tuple) or len(self.inputs) not in (1, 2):
            raise UsageError(
                f"inputs = {self.inputs!r} are not sequences, and a recurrent network takes nothing else.",
                "Give (steps, vocabulary), or (steps,) and the vocabulary, or use another model, such as mlp.",
            )
        if len(self.inputs) == 1 and self.vocabulary is None:
            raise UsageError(
                f"inputs = {self.inputs!r} are codes, but not how many there are.", "Set vocabulary to their number."
            )
        if len(self.inputs) == 2 and self.vocabulary not in (None, self.inputs[1]):
            raise UsageError(
                f"vocabulary = {self.vocabulary}, but every step has {self.inputs[1]} numbers.", "Leave vocabulary out."
            )
        if not self.hidden:
            raise UsageError("hidden is empty.", "Give the units of each layer, such as [128].")
        for size in (*self.inputs, *self.hidden, self._vocabulary, self.embedding, self.outputs):
            checks.whole("a size of a recurrent network", size, 1)
        if self.cell not in get_args(Cell):
            raise UsageError(f"There is no cell {self.cell!r}.", did_you_mean(str(self.cell), get_args(Cell)))

    @property
    def _vocabulary(self) -> int:
        return self.inputs[1] if len(self.inputs) == 2 else self.vocabulary or 0

    def init(self, key: Array) -> RecurrentNet:
        embedding_key, head_key, *layer_keys = jax.random.split(key, 2 + len(self.hidden))
        widths = (self.embedding, *self.hidden)
        layers = tuple(
            RecurrentLayer(m, n, self.cell, k) for m, n, k in zip(widths[:-1], widths[1:], layer_keys, strict=True)
        )
        embedding = jax.random.normal(embedding_key, (self._vocabulary, self.embedding))
        return RecurrentNet(embedding, layers, Dense(widths[-1], self.outputs, head_key))

    def apply(self, params: RecurrentNet, x: Array, key: Array | None = None) -> Array:
        kind = params.embedding.dtype
        if len(self.inputs) == 1:
            # A one-hot product rather than a gather: its derivatives of every order are matmuls, not scatters.
            return params(jax.nn.one_hot(x.astype(jnp.int32), self._vocabulary, dtype=kind))
        return params(x.astype(kind))
