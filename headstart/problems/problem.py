"""What is minimised: how parameters start, what a batch costs, and what is measured."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax import Array

from headstart.core import (
    Batch,
    ClientSamples,
    KeyedSamples,
    Objective,
    Params,
    Weighted,
    takes,
    weighing,
    with_canonical_convolutions,
)
from headstart.errors import UsageError, did_you_mean
from headstart.metrics import LOSS, Metric, as_metrics, average, measure

__all__ = ["ChosenMetrics", "CustomProblem", "Problem"]

ChosenMetrics: TypeAlias = Any
"""Metrics or their names, as a problem is given them; it holds a tuple of `Metric`."""


def for_algorithms(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of a batch that takes `Weighted` and `Keyed` ones too, and whose convolutions are fast in loops."""
    return with_canonical_convolutions(weighing(function))


class Problem(ABC):
    """A learning problem. Subclasses are frozen dataclasses: equal problems share compiled programs."""

    metrics: tuple[Metric, ...] = (LOSS,)
    """What evaluation reports, in this order; the loss is among them."""
    random: bool = False
    """Whether the loss of a batch depends on a key, as it does with dropout and augmentation."""

    @abstractmethod
    def init(self, key: Array) -> Params:
        """Fresh parameters."""

    @abstractmethod
    def loss(self, params: Params, batch: Batch, key: Array | None = None) -> Array:
        """Mean loss of a batch; without a key there is nothing random in it."""

    def objective(self) -> Objective:
        """What algorithms are given to work on: the loss, taking `Weighted` and `Keyed` batches too."""
        return for_algorithms(self.loss)

    def view(self, samples: ClientSamples) -> ClientSamples:
        """A client's data as algorithms see it: as it is, unless its batches have to bring a key for the loss."""
        return KeyedSamples(samples) if self.random and not isinstance(samples, KeyedSamples) else samples

    def scores(self, params: Params, batch: Batch) -> dict[str, Array]:
        """Every metric of a batch, plain or `Weighted`; nothing in it is random."""
        if not isinstance(batch, Weighted):
            return {LOSS.name: self.loss(params, batch)}
        return {LOSS.name: average(each_alone(self.loss, params, batch.samples), batch.weight)}

    def metric(self, name: str) -> Metric:
        """One of the metrics."""
        found = {metric.name: metric for metric in self.metrics}
        if name not in found:
            raise UsageError(f"The problem has no metric {name!r}.", did_you_mean(name, found))
        return found[name]


Compared = tuple[Any, Any]
"""Outputs and targets, each with one row per sample."""


def compared(predict: Callable[[Params, Batch], Compared], params: Params, batch: Batch) -> tuple[Any, Any, Any]:
    """Outputs, targets and weight of a batch; samples with weights are predicted each alone, as `weighing` has it."""
    if not isinstance(batch, Weighted):
        return *predict(params, batch), None
    outputs, targets = jax.tree.map(lambda a: a[:, 0], each_alone(predict, params, batch.samples))
    return outputs, targets, batch.weight


def each_alone(function: Callable[[Params, Batch], Any], params: Params, samples: Batch) -> Any:
    """What a function makes of every sample as a batch of its own."""
    return jax.vmap(lambda sample: function(params, jax.tree.map(lambda a: a[None], sample)))(samples)


def scores_of(
    metrics: tuple[Metric, ...],
    errors: Callable[[Any, Any], Array],
    outputs: Any,
    targets: Any,
    weight: Array | None,
) -> dict[str, Array]:
    """The mean of the samples' errors as the loss, and every other metric of the same outputs."""
    each = errors(outputs, targets)
    loss = jnp.mean(each) if weight is None else average(each, weight.astype(each.dtype))
    return {LOSS.name: loss, **measure(metrics, outputs, targets, weight)}


@dataclass(frozen=True)
class CustomProblem(Problem):
    """Any ``loss(params, batch)`` on any pytree of parameters, or ``loss(params, batch, key)`` for a random one.

    A loss that takes a key is given one in training, the same whenever it is asked about the same batch, and
    ``None`` in evaluation. ``predict_fn(params, batch)`` returns outputs and targets, one row per sample, for metrics
    to compare.

    >>> import jax.numpy as jnp
    >>> mean_squared = lambda params, batch: jnp.mean((batch["y"] - params["slope"] * batch["x"]) ** 2)
    >>> problem = CustomProblem(init_fn=lambda key: {"slope": jnp.zeros(())}, loss_fn=mean_squared)
    >>> float(problem.loss({"slope": 2.0}, {"x": jnp.ones(3), "y": jnp.ones(3)}))
    1.0
    """

    init_fn: Callable[[Array], Params]
    loss_fn: Callable[..., Array]
    predict_fn: Callable[[Params, Batch], Compared] | None = None
    metrics: ChosenMetrics = (LOSS,)
    random: Any = None
    """Whether the loss takes a key; found from its arguments, unless given."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "metrics", as_metrics(self.metrics))
        if self.random is None:
            object.__setattr__(self, "random", takes(self.loss_fn, "key"))
        check_predicts(self.predict_fn, self.metrics)

    def init(self, key: Array) -> Params:
        return self.init_fn(key)

    def loss(self, params: Params, batch: Batch, key: Array | None = None) -> Array:
        if not self.random:
            return self.loss_fn(params, batch)
        by_name = "key" in signature(self.loss_fn).parameters
        return self.loss_fn(params, batch, key=key) if by_name else self.loss_fn(params, batch, key)

    def scores(self, params: Params, batch: Batch) -> dict[str, Array]:
        return {**super().scores(params, batch), **custom_scores(self.predict_fn, self.metrics, params, batch)}


def check_predicts(predict_fn: Callable[[Params, Batch], Compared] | None, metrics: tuple[Metric, ...]) -> None:
    """Refuse metrics where there is nothing to compare."""
    if predict_fn is None and len(metrics) > 1:
        raise UsageError(
            f"The metric {metrics[1].name!r} compares outputs with targets, and the problem names none.",
            "Give predict_fn(params, batch) that returns both.",
        )


def custom_scores(
    predict_fn: Callable[[Params, Batch], Compared] | None, metrics: tuple[Metric, ...], params: Params, batch: Batch
) -> dict[str, Array]:
    """All metrics but the loss."""
    if predict_fn is None:
        return {}

    def predict(params: Params, batch: Batch) -> Compared:
        pair = predict_fn(params, batch)
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise UsageError(f"predict_fn returns a {type(pair).__name__}.", "Return two things: outputs and targets.")
        return pair

    return measure(metrics, *compared(predict, params, batch))
