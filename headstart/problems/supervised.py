"""Classification and regression: a model, and samples with an input ``x`` and a target ``y``."""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from headstart.core import Params
from headstart.models import Model
from headstart.problems.problem import Problem

__all__ = ["Classification", "Examples", "Regression", "SupervisedTask", "problem_for"]


class Examples(NamedTuple):
    """Samples of a supervised problem."""

    x: Any
    y: Any


@dataclass(frozen=True)
class SupervisedTask:
    """What a set of examples is for: the kind of prediction, and the shapes a model needs."""

    kind: Literal["classification", "regression"]
    inputs: int | tuple[int, ...]
    outputs: int


@dataclass(frozen=True)
class Classification(Problem):
    """Cross-entropy of the model's logits with integer labels; reports accuracy too.

    ``error = "squared"`` takes half the squared distance to the one-hot label instead.
    """

    model: Model
    error: Literal["cross-entropy", "squared"] = "cross-entropy"

    def init(self, key: Array) -> Params:
        return self.model.init(key)

    def loss(self, params: Params, batch: Examples) -> Array:
        return self._error(self.model.apply(params, batch.x), batch.y)

    def metrics(self, params: Params, batch: Examples) -> dict[str, Array]:
        logits = self.model.apply(params, batch.x)
        hits = jnp.argmax(logits, axis=-1) == batch.y
        return {"loss": self._error(logits, batch.y), "accuracy": jnp.mean(hits.astype(logits.dtype))}

    def _error(self, outputs: Array, labels: Array) -> Array:
        # A one-hot product rather than a gather: its derivatives of every order are matmuls, not scatters.
        chosen = jax.nn.one_hot(labels, outputs.shape[-1], dtype=outputs.dtype)
        if self.error == "squared":
            return jnp.mean(jnp.sum((outputs - chosen) ** 2, axis=-1)) / 2
        return -jnp.mean(jnp.sum(jax.nn.log_softmax(outputs) * chosen, axis=-1))


@dataclass(frozen=True)
class Regression(Problem):
    """Mean squared error of the model's output."""

    model: Model

    def init(self, key: Array) -> Params:
        return self.model.init(key)

    def loss(self, params: Params, batch: Examples) -> Array:
        return jnp.mean((self.model.apply(params, batch.x) - batch.y) ** 2)

    def metrics(self, params: Params, batch: Examples) -> dict[str, Array]:
        return {"loss": self.loss(params, batch)}


def problem_for(task: SupervisedTask, model: Model) -> Problem:
    """The problem that a task and a model make."""
    return Classification(model) if task.kind == "classification" else Regression(model)
