"""Problems that are a function of an expectation, of which a loss is the special case."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from headstart.core import Batch, Params, UserComposition, Weighted
from headstart.errors import UsageError
from headstart.metrics import LOSS, as_metrics, without_filling
from headstart.problems.problem import ChosenMetrics, Compared, Problem, check_predicts, custom_scores, for_algorithms

__all__ = ["CompositionalProblem"]


@dataclass(frozen=True)
class CompositionalProblem(Problem):
    """Any ``min_x 1/K sum_k f_k(E g_k(x; xi); zeta)``: gao (1).

    ``inner_fn(params, batch)`` is g, the mean over a batch of any pytree; ``outer_fn(value, batch)`` is f, the mean
    over another batch of a number that may depend on the samples or not. Variance, a log of an expectation and a ratio
    of expectations are such problems: their gradients on a batch are biased, however the batch is drawn.
    A client's own model is the shared one. ``predict_fn(params, batch)`` returns outputs and targets, one row per
    sample, for metrics to compare.

    The variance of the samples around a line through 0, with g the first two moments of what is left:

    >>> def moments(slope, batch):
    ...     rest = batch["y"] - slope * batch["x"]
    ...     return {"first": jnp.mean(rest), "second": jnp.mean(rest**2)}
    >>> def variance(moments, batch):
    ...     return moments["second"] - moments["first"] ** 2
    >>> problem = CompositionalProblem(lambda key: jnp.zeros(()), moments, variance)
    >>> float(problem.loss(1.0, {"x": jnp.array([1.0, 2.0]), "y": jnp.array([1.0, 4.0])}))
    1.0
    """

    init_fn: Callable[[Array], Params]
    inner_fn: Callable[[Params, Batch], Any]
    outer_fn: Callable[[Any, Batch], Array]
    predict_fn: Callable[[Params, Batch], Compared] | None = None
    metrics: ChosenMetrics = (LOSS,)

    def __post_init__(self) -> None:
        object.__setattr__(self, "metrics", as_metrics(self.metrics))
        check_predicts(self.predict_fn, self.metrics)

    def init(self, key: Array) -> Params:
        return self.init_fn(key)

    def loss(self, params: Params, batch: Batch, key: Array | None = None) -> Array:
        composition = self.objective()
        return composition.outer(composition.inner(params, batch), batch)

    def objective(self) -> UserComposition:
        return UserComposition(for_algorithms(self._inner), for_algorithms(self._outer))

    def scores(self, params: Params, batch: Batch) -> dict[str, Array]:
        # Not the mean of the samples' losses: each level is averaged on its own, so that is how weights enter too.
        if isinstance(batch, Weighted):
            batch = Weighted(without_filling(batch.samples, batch.weight), batch.weight)
        loss = self.loss(params, batch)
        return {LOSS.name: loss, **custom_scores(self.predict_fn, self.metrics, params, batch)}

    def _inner(self, params: Params, batch: Batch) -> Any:
        value = _call(self.inner_fn, params, batch, f"inner_fn failed on parameters {_shapes(params)}")
        for path, leaf in jax.tree_util.tree_leaves_with_path(value):
            if not jnp.issubdtype(jnp.result_type(leaf), jnp.floating):
                raise UsageError(
                    f"inner_fn returns {_shapes(value)}, whose leaf {jax.tree_util.keystr(path) or 'itself'} "
                    "is not of floating point.",
                    "Return numbers that can be averaged and differentiated.",
                )
        return value

    def _outer(self, value: Any, batch: Batch) -> Array:
        got = f"outer_fn failed on what inner_fn returns, {_shapes(value)}"
        cost = _call(self.outer_fn, value, batch, got)
        if not isinstance(cost, (Array, float)) or jnp.shape(cost) != ():
            raise UsageError(
                f"outer_fn makes {_shapes(cost)} of what inner_fn returns, {_shapes(value)}.",
                "Return one number: the mean over the batch.",
            )
        return jnp.asarray(cost)


def _call(function: Callable[[Any, Batch], Any], argument: Any, batch: Batch, what: str) -> Any:
    try:
        return function(argument, batch)
    except (TypeError, ValueError, LookupError, AttributeError) as error:
        raise UsageError(
            f"{what} and a batch {_shapes(batch)}: {type(error).__name__}: {error}",
            "Mend the function, or the one it takes its argument from.",
        ) from error


def _shapes(value: Any) -> str:
    """The structure of a value with shapes in place of numbers: ``{'a': float32[3]}``."""
    described = jax.tree.map(lambda a: _Shape(f"{jnp.result_type(a).name}{list(jnp.shape(a))}"), value)
    return str(described)


class _Shape(str):
    """A string that prints without quotes."""

    __repr__ = str.__str__
