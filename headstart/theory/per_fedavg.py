"""The lemmas and theorems of Per-FedAvg (Fallah, Mokhtari and Ozdaglar, 2020), one function each.

``F_i(w) = f_i(w - alpha grad f_i(w))`` is client ``i``'s meta loss and ``F`` the mean over clients. ``inner_lr`` is
``alpha``. Of the three independent batches, ``inner_batch`` is the paper's ``D`` (the adaptation), ``outer_batch`` is
``D'`` (the gradient after it) and ``curvature_batch`` is ``D''`` (the Hessian). Every bound needs ``alpha <= 1/L``.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from headstart.core.checks import any_whole, at_least, positive
from headstart.errors import UsageError
from headstart.theory import stationarity
from headstart.theory.conditions import at_most, check_inner_lr
from headstart.theory.constants import Constants
from headstart.theory.stationarity import PROVED, EstimatorError, GradientBound, Schedule

__all__ = [
    "Dissimilarity",
    "automatic_error",
    "average_gradient_bound",
    "dissimilarity_from_total_variation",
    "dissimilarity_from_wasserstein",
    "estimator_error",
    "first_order_error",
    "first_version_average_gradient_bound",
    "hessian_free_error",
    "meta_dissimilarity",
    "meta_smoothness",
    "printed_average_gradient_bound",
    "sampled_wasserstein",
    "schedule_for",
]


class Dissimilarity(NamedTuple):
    """Bounds on how unlike the clients are, as in ``Constants``."""

    gradient: float
    """``gamma_G``."""
    hessian: float
    """``gamma_H``."""


def _second_moment(distances: Sequence[float]) -> float:
    if not len(distances):
        raise UsageError("There are no distances.", "Give one distance a client.")
    for distance in distances:
        at_least("distance", distance, 0)
    return sum(distance**2 for distance in distances) / len(distances)


def dissimilarity_from_total_variation(
    gradient_bound: float, smoothness: float, distances: Sequence[float]
) -> Dissimilarity:
    """(14a): ``gamma_G = 2 B s`` and ``gamma_H = 2 L s`` with ``s^2 = (1/n) sum_i ||p_i - p||_TV^2``.

    ``p`` is the mean of the clients' distributions ``p_i`` and ``||p - q||_TV = 1/2 sum_z |p(z) - q(z)|``. All
    clients have the same loss ``l(w; z)``, and ``B`` and ``L`` bound ``||grad l||`` and ``||hess l||`` of *every
    sample*, which is more than ``Constants.gradient_bound`` and ``Constants.smoothness`` say.
    """
    at_least("gradient_bound", gradient_bound, 0)
    at_least("smoothness", smoothness, 0)
    spread = math.sqrt(_second_moment(distances))
    return Dissimilarity(2 * gradient_bound * spread, 2 * smoothness * spread)


def dissimilarity_from_wasserstein(
    gradient_lipschitz: float, hessian_lipschitz: float, distances: Sequence[float]
) -> Dissimilarity:
    """(16): ``gamma_G = L_Z s`` and ``gamma_H = rho_Z s`` with ``s^2 = (1/n) sum_i W_1(p_i, p)^2``.

    ``L_Z`` and ``rho_Z`` are Lipschitz constants of ``grad_w l(w; z)`` and ``hess_w l(w; z)`` in the *sample* ``z``
    (15), in the metric that ``W_1`` is taken with. ``rho_Z`` is not ``Constants.hessian_lipschitz``.
    """
    at_least("gradient_lipschitz", gradient_lipschitz, 0)
    at_least("hessian_lipschitz", hessian_lipschitz, 0)
    spread = math.sqrt(_second_moment(distances))
    return Dissimilarity(gradient_lipschitz * spread, hessian_lipschitz * spread)


def sampled_wasserstein(diameter: float, dimension: int, samples: int) -> float:
    """A bound on ``sqrt(E W_1(p_i, p)^2)`` of ``samples`` independent draws ``p_i`` from any ``p`` in a cube.

    ``diameter`` is that of the cube. With ``m`` draws the mean of ``W_1`` is at most ``diameter/(2 sqrt(m))`` in one
    dimension, ``int sqrt(P(1-P)/m)`` over distribution functions ``P``, and in ``d`` dimensions the least over ``l`` of
    ``diameter (2^-l + sum_(j<=l) 2^(1-j) sqrt(2^(dj)/m))``, halving the cube ``l`` times. Its variance is at most
    ``diameter^2/(4m)``, as one draw moves it by ``diameter/m``.

    Section 4.1 of fallah says that equal clients with ``m`` samples have ``W_1 = O(1/sqrt(m))``, and so ``gamma_G`` and
    ``gamma_H`` by (16). That is so for ``d = 1`` (with a logarithm for ``d = 2``); from ``d = 3`` on it is
    ``O(m^(-1/d))`` and no less: ``m`` points leave half of a cube's volume farther than ``(2 m V_d)^(-1/d)`` away.

    >>> sampled_wasserstein(1.0, dimension=1, samples=200)
    0.05
    """
    at_least("diameter", diameter, 0)
    any_whole("dimension", dimension, 1)
    any_whole("samples", samples, 1)
    if dimension == 1:
        mean = 0.5 / math.sqrt(samples)
    else:
        mean, moved = 1.0, 0.0
        for level in range(1, 64):
            moved += 2.0 ** (1 - level + dimension * level / 2) / math.sqrt(samples)
            mean = min(mean, 2.0**-level + moved)
            if moved > mean:  # halving further only moves more
                break
    return diameter * math.sqrt(mean**2 + 0.25 / samples)


def meta_smoothness(constants: Constants, inner_lr: float) -> float:
    """Lemma 4.2: ``L_F = 4 L + alpha rho B``, a Lipschitz constant of every ``grad F_i`` and of ``grad F``."""
    check_inner_lr(constants, inner_lr, "Lemma 4.2")
    return 4 * constants.smoothness + inner_lr * constants.hessian_lipschitz * constants.gradient_bound


def _adapted_gradient_variance(constants: Constants, inner_lr: float, inner_batch: int, outer_batch: int) -> float:
    """(36): ``E ||e_2||^2 <= sigma_G^2 (1/D' + (alpha L)^2 / D)``."""
    any_whole("inner_batch", inner_batch, 1)
    any_whole("outer_batch", outer_batch, 1)
    shift = (inner_lr * constants.smoothness) ** 2
    return constants.gradient_noise**2 * (1 / outer_batch + shift / inner_batch)


def estimator_error(
    constants: Constants, inner_lr: float, inner_batch: int, outer_batch: int, curvature_batch: int
) -> EstimatorError:
    """Lemma 4.3: bias at most ``2 alpha L sigma_G / sqrt(D)`` and mean squared error at most ``sigma_F^2``.

    ``sigma_F^2 = 12 [B^2 + sigma_G^2 (1/D' + (alpha L)^2/D)] [1 + sigma_H^2 alpha^2 / (4 D'')] - 12 B^2``,

    evaluated in the expanded form that ends its proof, which does not subtract large numbers. Which batch has which
    prime is lost in places; (28) fixes it: ``D`` adapts, ``D'`` is the outer batch, ``D''`` that of the Hessian.

    On the proof: (30b), ``E ||e_1||^2 <= alpha^2 sigma_H^2 / D''``, is wrong in the spectral norm, in which variances
    of independent matrices do not add up. The lemma stands, because ``e_1`` occurs only times vectors independent of
    it, and ``E ||e_1 v||^2 <= alpha^2 sigma_H^2 / D'' ||v||^2`` is right.
    """
    check_inner_lr(constants, inner_lr, "Lemma 4.3")
    gradient = _adapted_gradient_variance(constants, inner_lr, inner_batch, outer_batch)
    any_whole("curvature_batch", curvature_batch, 1)
    hessian = inner_lr**2 * constants.hessian_noise**2 / curvature_batch
    return EstimatorError(
        bias=2 * inner_lr * constants.smoothness * constants.gradient_noise / math.sqrt(inner_batch),
        mean_squared_error=3 * constants.gradient_bound**2 * hessian + 12 * gradient + 3 * hessian * gradient,
    )


def first_order_error(constants: Constants, inner_lr: float, inner_batch: int, outer_batch: int) -> EstimatorError:
    """Lemma H.1, for the estimate (112) without the Hessian.

    Bias ``m_F = alpha L (sigma_G / sqrt(D) + B)``, mean squared error
    ``2 sigma_G^2 (1/D' + (alpha L)^2/D) + 2 (alpha L B)^2``. Neither vanishes with growing batches.
    """
    check_inner_lr(constants, inner_lr, "Lemma H.1")
    gradient = _adapted_gradient_variance(constants, inner_lr, inner_batch, outer_batch)
    step = inner_lr * constants.smoothness
    return EstimatorError(
        bias=step * (constants.gradient_noise / math.sqrt(inner_batch) + constants.gradient_bound),
        mean_squared_error=2 * gradient + 2 * (step * constants.gradient_bound) ** 2,
    )


def hessian_free_error(
    constants: Constants, inner_lr: float, radius: float, inner_batch: int, outer_batch: int, curvature_batch: int
) -> EstimatorError:
    """Lemma H.2, for the estimate (120) with gradient differences of radius ``delta``.

    Bias ``m_F = alpha (2 L sigma_G / sqrt(D) + L sigma_G / sqrt(D') + rho delta B^2)``, mean squared error
    ``6 sigma_G^2 (2 (alpha L)^2/D + 2/D' + alpha^2/(2 delta^2 D'')) + 2 (alpha rho delta)^2 B^4``.

    The difference is that of (119)-(121), divided by ``2 delta``; section 5 of the paper prints it without the 2.
    """
    check_inner_lr(constants, inner_lr, "Lemma H.2")
    positive("radius", radius)
    any_whole("inner_batch", inner_batch, 1)
    any_whole("outer_batch", outer_batch, 1)
    any_whole("curvature_batch", curvature_batch, 1)
    step, noise = inner_lr * constants.smoothness, constants.gradient_noise
    difference = inner_lr * constants.hessian_lipschitz * radius * constants.gradient_bound**2
    spread = 2 * step**2 / inner_batch + 2 / outer_batch + inner_lr**2 / (2 * radius**2 * curvature_batch)
    return EstimatorError(
        bias=step * noise * (2 / math.sqrt(inner_batch) + 1 / math.sqrt(outer_batch)) + difference,
        mean_squared_error=6 * noise**2 * spread + 2 * difference**2,
    )


def meta_dissimilarity(constants: Constants, inner_lr: float) -> float:
    """Lemma 4.4: ``gamma_F`` with ``(1/n) sum_i ||grad F_i - grad F||^2 <= gamma_F^2``.

    ``gamma_F^2 = 3 B^2 alpha^2 gamma_H^2 + 192 gamma_G^2``. ``f`` in Assumption 5 is read as the mean of the ``f_i``
    (see ``Constants``). The 192 is loose: (48) counts ``gamma_G^2`` twice, and 96 would do.
    """
    check_inner_lr(constants, inner_lr, "Lemma 4.4")
    hessian = constants.gradient_bound * inner_lr * constants.hessian_dissimilarity
    return math.sqrt(3 * hessian**2 + 192 * constants.gradient_dissimilarity**2)


def _bound(
    constants: Constants,
    inner_lr: float,
    error: EstimatorError,
    schedule: Schedule,
    clients: int,
    cohort: int,
    initial_gap: float,
    constant: float,
    sampling_steps: int,
) -> GradientBound:
    return stationarity.average_gradient_bound(
        meta_smoothness(constants, inner_lr),
        error,
        meta_dissimilarity(constants, inner_lr),
        schedule,
        clients,
        cohort,
        initial_gap,
        constant,
        sampling_steps,
        needed_by="Theorem 4.5",
    )


def average_gradient_bound(
    constants: Constants,
    inner_lr: float,
    error: EstimatorError,
    schedule: Schedule,
    clients: int,
    cohort: int,
    initial_gap: float,
    constant: float = PROVED,
) -> GradientBound:
    """Theorem 4.5 with its term of client sampling corrected.

    Bounds ``1/(tau K) sum_k sum_t E ||grad F(w_k,t)||^2`` by

    ``4 (F(w_0) - F*) / (beta tau K) + O(1) [ beta L_F (1 + beta L_F tau (tau-1)) sigma_F^2
    + beta L_F gamma_F^2 (tau (1-r)/(r(n-1)) + beta L_F tau (tau-1)) + m_F^2 ]`` for ``beta <= 1/(10 tau L_F)``,

    where ``w_k,t`` is the mean of the cohort's models, ``r n = cohort`` and ``n = clients``. ``error`` is ``(m_F,
    sigma_F^2)`` of ``estimator_error``, ``first_order_error`` or ``hessian_free_error`` (appendix H: the theorem
    holds with any of them); with the first, ``m_F^2 = 4 alpha^2 L^2 sigma_G^2 / D``, which prints as ``O(1) alpha^2
    L^2 sigma_G^2 / D``.

    The paper has no ``tau`` before ``(1-r)/(r(n-1))``, and without it the statement is false (see
    ``printed_average_gradient_bound``); Theorem 7 of the paper on MOML has it too, as ``H``. ``constant`` is the
    O(1). The default is proved in ``stationarity``; a sweep over 200 problems with known constants stays below 0.1.
    """
    return _bound(
        constants,
        inner_lr,
        error,
        schedule,
        clients,
        cohort,
        initial_gap,
        constant,
        sampling_steps=schedule.local_steps,
    )


def printed_average_gradient_bound(
    constants: Constants,
    inner_lr: float,
    error: EstimatorError,
    schedule: Schedule,
    clients: int,
    cohort: int,
    initial_gap: float,
    constant: float = 2240.0,
) -> GradientBound:
    """Theorem 4.5 as printed, without the ``tau``; false where clients sit out and take several local steps.

    (99) takes the mean of the cohort's models to be independent of the cohort, but a cohort moves together for all
    its ``tau`` steps. With one of two unlike clients a round, ``||grad F||^2`` settles near ``beta tau L gamma_G^2 /
    2``, while for many small local steps all printed terms fall faster than ``beta tau``; so no ``constant`` makes it
    true. It is right for ``cohort == clients`` and for one local step. The default is the largest number of its
    proof, (108) and (111). (The first version of the paper has ``60 (sigma_F^2 + gamma_F^2)`` for all but the start.)
    """
    return _bound(constants, inner_lr, error, schedule, clients, cohort, initial_gap, constant, sampling_steps=1)


def first_version_average_gradient_bound(
    constants: Constants, inner_lr: float, error: EstimatorError, schedule: Schedule, initial_gap: float
) -> float:
    """Theorem 4.5 of the paper's first version: ``4 (F(w_0) - F*) / (beta tau K) + 60 (sigma_F^2 + gamma_F^2)``.

    For any cohort, with ``beta <= 1/(10 tau L_F)``. Its floor does not fall with ``beta``. That much is right: with
    such a ``beta`` the proved terms of ``average_gradient_bound`` are below ``60 (sigma_F^2 + gamma_F^2)``.
    """
    at_least("initial_gap", initial_gap, 0)
    largest = 1 / (10 * schedule.local_steps * meta_smoothness(constants, inner_lr))
    at_most("outer_lr", schedule.outer_lr, largest, "1/(10 tau L_F)", "Theorem 4.5 of the first version")
    start = 4 * initial_gap / (schedule.outer_lr * schedule.local_steps * schedule.rounds)
    return start + 60 * (error.mean_squared_error + meta_dissimilarity(constants, inner_lr) ** 2)


def automatic_error(constants: Constants, inner_lr: float, inner_batch: int, outer_batch: int) -> EstimatorError:
    """How wrong the meta-gradient is whose Hessian is of the inner step's batch (``curvature="automatic"``).

    ``(I - alpha H(w, D)) grad f(w - alpha grad f(w, D), D')``. Its bias is that of independent batches and a
    covariance, ``||E[(I - alpha H)(grad f(u_D) - grad f(u))] - alpha E[(H_D - H)(grad f(u_D) - grad f(u))]||``, at most
    ``(1 + alpha L) alpha L sigma_G / sqrt(D) + alpha^2 L sigma_G sigma_H / D``. Its mean squared error is at most
    ``2 (1 + alpha L)^2 (alpha^2 L^2 sigma_G^2 / D + sigma_G^2 / D') + 2 alpha^2 sigma_H^2 (B^2 + sigma_G^2 / D') / D``.
    No paper has this estimator.
    """
    check_inner_lr(constants, inner_lr, "The error of automatic curvature")
    any_whole("inner_batch", inner_batch, 1)
    any_whole("outer_batch", outer_batch, 1)
    step = inner_lr * constants.smoothness
    noise, hessian = constants.gradient_noise, constants.hessian_noise
    off = step * noise / math.sqrt(inner_batch)
    bias = (1 + step) * off + inner_lr * hessian / math.sqrt(inner_batch) * off
    # estimate - grad F = (I - alpha H)(v - grad f(u)) - alpha (H_D - H) v with v the outer gradient, E ||v||^2 bounded.
    outer = noise**2 / outer_batch
    gradient = (1 + step) ** 2 * (off**2 + outer)
    squared_gradient = constants.gradient_bound**2 + outer
    curved = inner_lr**2 * hessian**2 / inner_batch * squared_gradient
    return EstimatorError(bias=bias, mean_squared_error=2 * gradient + 2 * curved)


def schedule_for(
    constants: Constants,
    inner_lr: float,
    accuracy: float,
    local_steps_factor: float = 1.0,
    rounds_factor: float = 1.0,
) -> Schedule:
    """Corollary 4.6: ``beta = eps``, ``tau = O(eps^-1/2)`` and ``K = O(eps^-3/2)``.

    They find an ``O(eps + alpha^2 sigma_G^2/D)`` stationary point. The factors are the O(1) of ``tau`` and ``K``. The
    paper drops ``L^2`` from the floor ``alpha^2 L^2 sigma_G^2 / D``. The corollary needs all clients to take part:
    otherwise the term of sampling, corrected, is ``beta tau = O(eps^1/2)``, and ``beta = O(eps^3/2)`` with ``K =
    O(eps^-2)`` is what gives ``O(eps)``.
    """
    smoothness = meta_smoothness(constants, inner_lr)
    return stationarity.rates(accuracy, smoothness, local_steps_factor, rounds_factor, "Corollary 4.6")
