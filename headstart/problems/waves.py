"""A loss on all of space that is smooth, bounded below and known in closed form: skewed waves with noisy slopes."""

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from headstart.core import checks
from headstart.problems.problem import Problem

__all__ = ["WaveSamples", "Waves"]


class WaveSamples(NamedTuple):
    """Samples of a client: where its wave is, the same in all of them, and each one's own slope."""

    centre: Array
    slope: Array


@dataclass(frozen=True)
class Waves(Problem):
    """``L(w; (c, x)) = sum_j h(w_j - c_j) + x_j w_j`` with ``h(t) = -cos t - (1/4) sin 2t``.

    A slope x of mean zero is noise of the gradient that is the same at every model, and the Hessian has none. The wave
    is skewed: ``h`` is steeper on one side of its minimum, so a gradient at a noisy model is wrong in the mean, and not
    only scattered. Training starts at ``start`` in every coordinate.

    >>> problem = Waves(dimension=2)
    >>> float(problem.loss(jnp.zeros(2), WaveSamples(jnp.zeros((1, 2)), jnp.ones((1, 2)))))
    -2.0
    """

    dimension: int = 10
    start: float = 1.5

    def __post_init__(self) -> None:
        checks.whole("dimension", self.dimension, 1)

    def init(self, key: Array) -> Array:
        return jnp.full(self.dimension, self.start)

    def loss(self, params: Array, batch: WaveSamples, key: Array | None = None) -> Array:
        away = params - batch.centre
        waves = -jnp.cos(away) - jnp.sin(2 * away) / 4
        return jnp.mean(jnp.sum(waves + batch.slope * params, axis=-1))
