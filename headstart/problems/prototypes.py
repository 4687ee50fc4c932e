"""Classification by the nearest class mean in an embedding that is learned."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from headstart.core import Params, UserComposition, checks, weighing
from headstart.models import Model
from headstart.problems.problem import Problem
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

    def __post_init__(self) -> None:
        checks.whole("ways", self.ways, 2)

    def init(self, key: Array) -> Params:
        return self.model.init(key)

    def loss(self, params: Params, batch: Examples) -> Array:
        return self.metrics(self._prototyped(params, batch), batch)["loss"]

    def objective(self) -> UserComposition:
        def outer(own: Prototyped, batch: Examples) -> Array:
            return self.metrics(own, batch)["loss"]

        return UserComposition(weighing(self._prototyped), weighing(outer), personal=True)

    def metrics(self, params: Prototyped, batch: Examples) -> dict[str, Array]:
        present = params.shares > 0
        prototypes = params.sums / jnp.where(present, params.shares, 1)[:, None]
        embedded = self._embed(params.params, batch.x)
        squared = jnp.sum(embedded**2, -1)[:, None] - 2 * embedded @ prototypes.T + jnp.sum(prototypes**2, -1)
        logits = jnp.where(present, -squared, ABSENT)
        # A class that is absent has no row of ones.
        chosen = jax.nn.one_hot(batch.y, self.ways, dtype=logits.dtype) * present
        hits = jnp.sum(chosen * (jnp.arange(self.ways) == jnp.argmax(logits, -1)[:, None]), -1)
        return {
            "loss": -jnp.mean(jnp.sum(jax.nn.log_softmax(logits) * chosen, axis=-1)),
            "accuracy": jnp.mean(hits),
        }

    def _prototyped(self, params: Params, batch: Examples) -> Prototyped:
        embedded = self._embed(params, batch.x)
        labels = jax.nn.one_hot(batch.y, self.ways, dtype=embedded.dtype)
        return Prototyped(params, labels.T @ embedded / len(labels), jnp.mean(labels, axis=0))

    def _embed(self, params: Params, x: Array) -> Array:
        embedded = self.model.apply(params, x)
        return embedded.reshape(embedded.shape[0], -1)
