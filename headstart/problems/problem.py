"""What is minimised: how parameters start, what a batch costs, and what is measured."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from jax import Array

from headstart.core import Batch, Loss, Objective, Params, weighing

__all__ = ["CustomProblem", "Problem"]


class Problem(ABC):
    """A learning problem. Subclasses are frozen dataclasses: equal problems share compiled programs."""

    higher_is_better: ClassVar[frozenset[str]] = frozenset({"accuracy"})
    """Metrics of which more is better; of all others less is."""

    @abstractmethod
    def init(self, key: Array) -> Params:
        """Fresh parameters."""

    @abstractmethod
    def loss(self, params: Params, batch: Batch) -> Array:
        """Mean loss of a batch."""

    def objective(self) -> Objective:
        """What algorithms are given to work on: the loss, taking `Weighted` batches too."""
        return weighing(self.loss)

    @abstractmethod
    def metrics(self, params: Params, batch: Batch) -> dict[str, Array]:
        """Means over a batch of what evaluation reports; ``loss`` among them."""

    def scores(self) -> Callable[[Params, Batch], dict[str, Array]]:
        """What evaluation calls: the metrics, taking `Weighted` batches too."""
        return weighing(self.metrics)


@dataclass(frozen=True)
class CustomProblem(Problem):
    """Any ``loss(params, batch)`` on any pytree of parameters.

    >>> import jax.numpy as jnp
    >>> mean_squared = lambda params, batch: jnp.mean((batch["y"] - params["slope"] * batch["x"]) ** 2)
    >>> problem = CustomProblem(init_fn=lambda key: {"slope": jnp.zeros(())}, loss_fn=mean_squared)
    >>> float(problem.loss({"slope": 2.0}, {"x": jnp.ones(3), "y": jnp.ones(3)}))
    1.0
    """

    init_fn: Callable[[Array], Params]
    loss_fn: Loss
    metrics_fn: Callable[[Params, Batch], dict[str, Array]] | None = None

    def init(self, key: Array) -> Params:
        return self.init_fn(key)

    def loss(self, params: Params, batch: Batch) -> Array:
        return self.loss_fn(params, batch)

    def metrics(self, params: Params, batch: Batch) -> dict[str, Array]:
        extra = self.metrics_fn(params, batch) if self.metrics_fn else {}
        return {"loss": self.loss_fn(params, batch), **extra}
