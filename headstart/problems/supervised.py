"""Classification and regression: a model, and samples with an input ``x`` and a target ``y``."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from headstart.core import Batch, Params
from headstart.metrics import ACCURACY, LOSS, MAE, R2, RMSE, aligned, as_metrics, measure, per_sample
from headstart.models import Model
from headstart.problems.problem import ChosenMetrics, Problem, compared, scores_of

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
    target_mean: float = 0.0
    target_scale: float = 1.0
    """The examples of a regression have ``(target - target_mean) / target_scale`` for a target, and so has a model."""


class Supervised(Problem):
    """A model whose outputs are held against targets; the loss is the mean of the samples' errors."""

    model: Model

    @abstractmethod
    def errors(self, outputs: Array, targets: Array) -> Array:
        """What each sample costs."""

    @property
    def random(self) -> bool:  # type: ignore[override]
        """Whether the model is, as with dropout."""
        return self.model.random

    def init(self, key: Array) -> Params:
        return self.model.init(key)

    def loss(self, params: Params, batch: Examples, key: Array | None = None) -> Array:
        keys = () if key is None else (key,)
        return jnp.mean(self.errors(self.model.apply(params, batch.x, *keys), batch.y))

    def scores(self, params: Params, batch: Batch) -> dict[str, Array]:
        return scores_of(self.metrics, self.errors, *compared(self._predict, params, batch))

    def _predict(self, params: Params, batch: Examples) -> tuple[Array, Array]:
        return self.model.apply(params, batch.x), batch.y


@dataclass(frozen=True)
class Classification(Supervised):
    """Cross-entropy of the model's logits with integer labels; reports accuracy too.

    ``error = "squared"`` takes half the squared distance to the one-hot label instead. ``metrics`` are names or
    metrics of one's own.

    >>> from headstart.models import MLP
    >>> [metric.name for metric in Classification(MLP(4, 3), metrics=("accuracy", "macro-f1", "auc")).metrics]
    ['loss', 'accuracy', 'macro-f1', 'auc']
    """

    model: Model
    error: Literal["cross-entropy", "squared"] = "cross-entropy"
    metrics: ChosenMetrics = (LOSS, ACCURACY)

    def __post_init__(self) -> None:
        object.__setattr__(self, "metrics", as_metrics(self.metrics))

    def errors(self, outputs: Array, targets: Array) -> Array:
        # A one-hot product rather than a gather: its derivatives of every order are matmuls, not scatters.
        chosen = jax.nn.one_hot(targets, outputs.shape[-1], dtype=outputs.dtype)
        if self.error == "squared":
            return jnp.sum((outputs - chosen) ** 2, axis=-1) / 2
        return -jnp.sum(jax.nn.log_softmax(outputs) * chosen, axis=-1)


@dataclass(frozen=True)
class Regression(Supervised):
    """Mean squared error of the model's output; reports its root and the mean absolute error too.

    Where examples have standardised targets, ``target_mean`` and ``target_scale`` say how: all metrics but the loss are
    then of outputs and targets in the units that they were measured in.
    """

    model: Model
    metrics: ChosenMetrics = (LOSS, RMSE, MAE)
    target_mean: float = 0.0
    target_scale: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "metrics", as_metrics(self.metrics))

    def errors(self, outputs: Array, targets: Array) -> Array:
        return per_sample((outputs - aligned(outputs, targets)) ** 2)

    def scores(self, params: Params, batch: Batch) -> dict[str, Array]:
        outputs, targets, weight = compared(self._predict, params, batch)
        found = scores_of((), self.errors, outputs, targets, weight)
        for metric in self.metrics:
            # The mean cancels in differences, which single precision would round if it were added first.
            mean = 0.0 if metric in OF_DIFFERENCES else self.target_mean
            predicted, true = mean + self.target_scale * outputs, mean + self.target_scale * targets
            found |= measure((metric,), predicted, true, weight)
        return found


OF_DIFFERENCES = (RMSE, MAE, R2)
"""Metrics that stay the same when outputs and targets are shifted alike."""


def problem_for(task: SupervisedTask, model: Model, metrics: ChosenMetrics | None = None) -> Problem:
    """The problem that a task and a model make, with its usual metrics unless others are given."""
    chosen = {} if metrics is None else {"metrics": metrics}
    if task.kind == "classification":
        return Classification(model, **chosen)
    return Regression(model, target_mean=task.target_mean, target_scale=task.target_scale, **chosen)
