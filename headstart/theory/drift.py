"""How far clients' models drift apart within a round of Per-FedAvg: fallah Proposition F.1 and Corollary F.2.

All clients start from the same model and take steps ``w_i <- w_i - beta (grad F_i(w_i) + noise)``. The bounds are of
``E (1/n) sum_i ||w_i,t - w_t||`` and of its square, where ``w_t`` is the mean of the clients' models after ``t`` steps.

>>> drift = client_drift(smoothness=2.0, noise=1.0, dissimilarity=0.5, outer_lr=0.01, steps=5)
>>> f"{drift.distance:.4f} {drift.squared:.4f}"
'0.1755 0.0604'
"""

import math
from typing import NamedTuple

from scipy.optimize import minimize_scalar

from headstart.core.checks import any_whole, at_least, positive
from headstart.theory.conditions import at_most

__all__ = ["Drift", "client_drift", "short_round_drift"]


class Drift(NamedTuple):
    """Bounds on the mean distance of clients' models from their mean, and on its mean square."""

    distance: float
    squared: float


def client_drift(
    smoothness: float,
    noise: float,
    dissimilarity: float,
    outer_lr: float,
    steps: int,
    split: float | None = None,
) -> Drift:
    """Proposition F.1, (57a) and (57b), after ``t = steps`` local steps.

    ``smoothness`` is ``L_F`` (Lemma 4.2), ``noise`` is ``sigma_F`` (the root of Lemma 4.3's mean squared error) and
    ``dissimilarity`` is ``gamma_F`` (Lemma 4.4). ``split`` is the proof's ``phi > 0``; left out, the best one.
    """
    _check(smoothness, noise, dissimilarity, outer_lr, steps)
    if steps == 0:
        return Drift(0.0, 0.0)
    first = 2 * outer_lr * steps * (1 + 2 * outer_lr * smoothness) ** (steps - 1) * (noise + dissimilarity)
    scale = 4 * outer_lr**2 * steps * (2 * noise**2 + dissimilarity**2)

    def growth(phi: float) -> float:
        weight = 1 + 1 / phi
        return weight * (1 + phi + 16 * weight * (outer_lr * smoothness) ** 2) ** (steps - 1)

    if split is None:
        split = math.exp(minimize_scalar(lambda log: math.log(growth(math.exp(log))), bounds=(-12, 12)).x)
    positive("split", split)
    return Drift(first, scale * growth(split))


def short_round_drift(
    smoothness: float, noise: float, dissimilarity: float, outer_lr: float, steps: int, local_steps: int
) -> Drift:
    """Corollary F.2, (58a) and (58b), for ``beta <= 1/(10 tau L_F)`` and ``steps <= tau = local_steps``."""
    _check(smoothness, noise, dissimilarity, outer_lr, steps)
    any_whole("local_steps", local_steps, 1)
    at_most("steps", steps, local_steps, "tau", "Corollary F.2")
    at_most("outer_lr", outer_lr, 1 / (10 * local_steps * smoothness), "1/(10 tau L_F)", "Corollary F.2")
    return Drift(
        4 * outer_lr * steps * (noise + dissimilarity),
        35 * outer_lr**2 * steps * local_steps * (2 * noise**2 + dissimilarity**2),
    )


def _check(smoothness: float, noise: float, dissimilarity: float, outer_lr: float, steps: int) -> None:
    positive("smoothness", smoothness)
    at_least("noise", noise, 0)
    at_least("dissimilarity", dissimilarity, 0)
    positive("outer_lr", outer_lr)
    any_whole("steps", steps, 0)
