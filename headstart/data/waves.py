"""Clients whose losses, meta-gradients and constants are known exactly: what the theorems speak of can be looked at."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from headstart.core import checks
from headstart.data.federation import Federation
from headstart.problems.waves import Waves, WaveSamples

__all__ = ["WaveTasks", "waves"]


@dataclass(frozen=True, eq=False)
class WaveTasks:
    """Tasks of the problem ``Waves``: client ``i`` has ``L_i(w) = sum_j h(w_j - c_ij)``, of which samples see

    ``L_i(w) + <x, w>`` with ``x`` normal, of mean zero and ``E ||x||^2 = noise^2``.

    So ``sigma_G`` is ``noise`` at every model, and an adapted model from ``K`` samples is the exact one plus normal
    noise. Whatever is linear in waves of it has a closed mean: ``E sin(a + b z) = exp(-b^2/2) sin a``.
    """

    centres: np.ndarray
    """``c``: a row a client."""
    noise: float

    @classmethod
    def spread_out(
        cls, clients: int = 10, dimension: int = 10, spread: float = 0.3, noise: float = 4.0, seed: int = 0
    ) -> "WaveTasks":
        """Tasks whose centres scatter about 0 with standard deviation ``spread``; 0 makes all clients equal."""
        checks.whole("clients", clients, 1)
        checks.whole("dimension", dimension, 1)
        checks.at_least("spread", spread, 0)
        checks.at_least("noise", noise, 0)
        return cls(spread * np.random.default_rng(seed).normal(size=(clients, dimension)), noise)

    @property
    def problem(self) -> Waves:
        """What the tasks are tasks of."""
        return Waves(self.centres.shape[1])

    def federation(self) -> Federation:
        """The clients, which draw samples without end."""
        deviation = np.full(len(self.centres), self.noise / math.sqrt(self.centres.shape[1]))
        return Federation.from_tasks((np.float32(self.centres), np.float32(deviation)), _draw, query_size=10)

    def constants(self) -> dict[str, float]:
        """The fields of ``headstart.theory.Constants``, for all models.

        All are attained but the dissimilarities, which are upper bounds: over clients, the standard deviation of
        ``cos(m (w - c_i))`` is at most the root of the larger eigenvalue of the covariance of ``(cos m c_i, sin m
        c_i)``, and that of the two waves in ``h'`` and ``h''`` at most the sum of both.
        """
        dimension = self.centres.shape[1]
        steepest = (math.sqrt(33) - 1) / 8  # the sine at which h'' = cos t + sin 2t is largest
        first, second = (_largest_deviations(m * self.centres) for m in (1, 2))
        return {
            "smoothness": math.sqrt(1 - steepest**2) * (1 + 2 * steepest),
            "hessian_lipschitz": 3.0,
            "gradient_bound": 1.5 * math.sqrt(dimension),
            "gradient_noise": self.noise,
            "hessian_noise": 0.0,
            "gradient_dissimilarity": float(np.linalg.norm(first + second / 2)),
            "hessian_dissimilarity": float(np.linalg.norm(first + second)),
            "gradient_fourth_moment": self.noise**4 * (1 + 2 / dimension),
            "hessian_fourth_moment": 0.0,
        }

    def meta_gradient(self, params: Array, inner_lr: float, batch_size: float = math.inf) -> Array:
        """``grad F(w)``, or with a ``batch_size`` of K the mean of what MAML takes for it: the two differ.

        A memory that averages with weight b, of a model that stands still, is an adapted model from
        ``K (2 - b) / b`` samples; that need not be a whole number.
        """
        # The variance of a coordinate of the adapted model.
        variance = (inner_lr * self.noise) ** 2 / (self.centres.shape[1] * batch_size)
        away = params - jnp.asarray(self.centres, params.dtype)
        adapted = away - inner_lr * (jnp.sin(away) - jnp.cos(2 * away) / 2)
        mean = math.exp(-variance / 2) * jnp.sin(adapted) - math.exp(-2 * variance) * jnp.cos(2 * adapted) / 2
        return jnp.mean((1 - inner_lr * (jnp.cos(away) + jnp.sin(2 * away))) * mean, axis=0)

    def gradient_norm(self, inner_lr: float) -> Callable[[Array], dict[str, Array]]:
        """What a sweep can measure: ``params -> {"gradient_norm": ||grad F||}``, without sampling."""
        return lambda params: {"gradient_norm": jnp.linalg.norm(self.meta_gradient(params, inner_lr))}

    def floor(self, inner_lr: float, batch_size: float) -> float:
        """``||grad F||`` where MAML with K samples comes to rest: where the mean of its steps is zero.

        At most ``(1 + alpha L) (rho/2) alpha^2 sigma_G^2 / K``, since the mean of a gradient at a model with noise of
        mean zero is off by at most ``rho/2`` times the noise's variance.
        """
        checks.positive("inner_lr", inner_lr)
        checks.positive("batch_size", batch_size)

        def descend(_: int, params: Array) -> Array:
            return params - 0.25 * self.meta_gradient(params, inner_lr, batch_size)

        rest = jax.lax.fori_loop(0, 2000, descend, self.problem.init(jax.random.key(0)))
        return float(self.gradient_norm(inner_lr)(rest)["gradient_norm"])


def waves(
    *, clients: int = 10, dimension: int = 10, spread: float = 0.3, noise: float = 4.0, seed: int = 0
) -> Federation:
    """Clients with skewed waves for losses, of which everything is known: ``WaveTasks.spread_out``.

    >>> waves(clients=4).total
    4
    """
    return WaveTasks.spread_out(clients, dimension, spread, noise, seed).federation()


def _draw(task: tuple[Array, Array], key: Array, size: int) -> WaveSamples:
    centre, deviation = task
    shape = (size, *centre.shape)
    return WaveSamples(jnp.broadcast_to(centre, shape), deviation * jax.random.normal(key, shape))


def _largest_deviations(phases: np.ndarray) -> np.ndarray:
    """For each column, the largest standard deviation over rows of ``cos(t - phase)``, whatever ``t``."""
    points = np.stack([np.cos(phases), np.sin(phases)]) - np.stack([np.cos(phases), np.sin(phases)]).mean(1)[:, None]
    covariances = np.einsum("aij,bij->jab", points, points) / len(phases)
    return np.sqrt(np.maximum(np.linalg.eigvalsh(covariances)[:, -1], 0))
