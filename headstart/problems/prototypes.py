"""Classification by the nearest class mean in an embedding that is learned."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from headstart.core import Batch, Params, UserComposition, checks
from headstart.metrics import ACCURACY, LOSS, as_metrics
from headstart.models import Model
from headstart.problems.problem import ChosenMetrics, Problem, compared, for_algorithms, scores_of
from headstart.problems.supervised import Examples

__all__ = ["Prototyped", "Prototypes"]

ABSENT = -1e30
"""The logit of a class that has no prototype: finite, so that zero times it is zero."""


class Prototyped(NamedTuple):
    """A client's own classifier: the embedding's parameters, and what the prototypes are made of."""

    params: Params
    sums: Array
    """For each class the mean over samples of the embedding, zero for samples of other classes."""
    shares: Array
    """The share of each class among the samples; a prototype is sum over share."""


@dataclass(frozen=True)
class Prototypes(Problem):
    """Cross-entropy of a softmax over negative squared distances to the classes' prototypes, and its accuracy.

    ``model`` embeds; labels are 0 to ``ways`` - 1. As a composition, g is the parameters together with the classes'
    sums and shares, which are means over the support samples, and f the cross-entropy of query samples. What a client
    takes away is g of its support data, and that is what the metrics score. A class without a support sample cannot be
    predicted; its query samples add nothing to the loss, and count as errors.
    """

    model: Model
    ways: int
    metrics: ChosenMetrics = (LOSS, ACCURACY)

    def __post_init__(self) -> None:
        checks.whole("ways", self.ways, 2)
        object.__setattr__(self, "metrics", as_metrics(self.metrics))

    @property
    def random(self) -> bool:  # type: ignore[override]
        """Whether the embedding is, as with dropout."""
        return self.model.random

    def init(self, key: Array) -> Params:
        return self.model.init(key)

    def loss(self, params: Params, batch: Examples, key: Array | None = None) -> Array:
        return self._outer(self._prototyped(params, batch, key), batch, key)

    def objective(self) -> UserComposition:
        return UserComposition(for_algorithms(self._prototyped), for_algorithms(self._outer), personal=True)

    def scores(self, params: Prototyped, batch: Batch) -> dict[str, Array]:
        return scores_of(self.metrics, self._errors, *compared(self._predict, params, batch))

    def _outer(self, own: Prototyped, batch: Examples, key: Array | None = None) -> Array:
        return jnp.mean(self._errors(self.logits(own, batch.x, key), batch.y))

    def _predict(self, own: Prototyped, batch: Examples) -> tuple[Array, Array]:
        return self.logits(own, batch.x), batch.y

    def logits(self, own: Prototyped, x: Array, key: Array | None = None) -> Array:
        """Minus the squared distances to the prototypes."""
        present = own.shares > 0
        prototypes = own.sums / jnp.where(present, own.shares, 1)[:, None]
        embedded = self._embed(own.params, x, key)
        squared = jnp.sum(embedded**2, -1)[:, None] - 2 * embedded @ prototypes.T + jnp.sum(prototypes**2, -1)
        return jnp.where(present, -squared, ABSENT)

    def _errors(self, logits: Array, labels: Array) -> Array:
        # A class that is absent has no row of ones.
        chosen = jax.nn.one_hot(labels, self.ways, dtype=logits.dtype) * (logits > ABSENT)
        return -jnp.sum(jax.nn.log_softmax(logits) * chosen, axis=-1)

    def _prototyped(self, params: Params, batch: Examples, key: Array | None = None) -> Prototyped:
        embedded = self._embed(params, batch.x, key)
        labels = jax.nn.one_hot(batch.y, self.ways, dtype=embedded.dtype)
        return Prototyped(params, labels.T @ embedded / len(labels), jnp.mean(labels, axis=0))

    def _embed(self, params: Params, x: Array, key: Array | None = None) -> Array:
        embedded = self.model.apply(params, x, *(() if key is None else (key,)))
        return embedded.reshape(embedded.shape[0], -1)
