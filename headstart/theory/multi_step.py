"""The lemmas and theorems of generalized meta federated learning (Jamali, Saber and Bae), one function each.

``F_i(w) = f_i(w_nu)`` is client ``i``'s loss after ``nu`` steps ``w_l = w_(l-1) - alpha grad f_i(w_(l-1))`` from
``w_0 = w``. ``inner_lr`` is ``alpha`` and ``steps`` is ``nu``. Of the independent batches, ``inner_batch`` are the
paper's ``D_0 .. D_(nu-1)``, ``outer_batch`` is ``D_nu`` and ``curvature_batch`` are ``D'_0 .. D'_(nu-1)``; a single
number means the same size at every step. No bound here needs ``alpha <= 1/L``.

One step is Per-FedAvg, but the two papers' bounds agree there in ``L_F`` only, and only at ``alpha = 1/L``; each
function says how its bound compares.

Norms of Hessians: the proofs use ``E ||X + Y||^2 = E ||X||^2 + ||Y||^2`` and the variance of a batch mean for matrices
(Lemma 12, (107), (112)). Both hold in the Frobenius norm, not in the spectral one; so for the curvature terms read
``hessian_noise``, ``hessian_fourth_moment`` and ``hessian_lipschitz`` in the Frobenius norm.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from headstart.core.checks import any_whole, at_least, positive
from headstart.errors import UsageError
from headstart.theory import stationarity
from headstart.theory.constants import Constants
from headstart.theory.stationarity import PROVED, EstimatorError, GradientBound, Schedule

__all__ = [
    "AdaptationError",
    "CurvatureError",
    "adaptation_error",
    "average_gradient_bound",
    "curvature_error",
    "estimator_error",
    "first_order_error",
    "hessian_free_error",
    "meta_dissimilarity",
    "meta_smoothness",
    "printed_average_gradient_bound",
    "printed_meta_dissimilarity",
    "schedule_for",
]

Sizes = int | Sequence[int]


class AdaptationError(NamedTuple):
    """Bounds on moments of ``||w~_l - w_l||``, the distance of noisy from exact adaptation."""

    first: float
    """``h_l`` (20)."""
    second: float
    """``h'_l`` (21)."""
    fourth: float
    """``h''_l`` (22)."""


class CurvatureError(NamedTuple):
    """Bounds on moments of the norm of the error of ``prod_j (I - alpha hess f(w_j))``."""

    second: float
    """``d_nu`` (25)."""
    fourth: float
    """``d'_nu`` (26)."""


def _check(inner_lr: float, steps: int, least_steps: int = 1) -> None:
    at_least("inner_lr", inner_lr, 0)
    any_whole("steps", steps, least_steps)


def _sizes(name: str, sizes: Sizes, steps: int) -> Sequence[int]:
    """One size a step."""
    listed = list(sizes) if isinstance(sizes, Sequence) else [sizes] * steps
    if len(listed) != steps:
        raise UsageError(
            f"{name} has {len(listed)} sizes for {steps} inner steps.", f"Give {name} one size, or {steps} of them."
        )
    for size in listed:
        any_whole(name, size, 1)
    return listed


def _growth(constants: Constants, inner_lr: float) -> float:
    """``1 + alpha L``, by which one inner step stretches at most."""
    return 1 + inner_lr * constants.smoothness


def _batch_fourth_moment(fourth_moment: float, noise: float, size: int) -> float:
    """Lemma 12: ``(kappa + 3 (D-1) sigma^4) / D^3`` bounds the fourth moment of the mean of ``D`` samples' noise."""
    return (fourth_moment + 3 * (size - 1) * noise**4) / size**3


def meta_smoothness(constants: Constants, inner_lr: float, steps: int) -> float:
    """Lemma 4, (19): ``L_F = L (1 + alpha L)^(2 nu) + B alpha rho (1 + alpha L)^(nu-1) sum_(l<nu) (1 + alpha L)^l``.

    At ``nu = 1`` it is ``L (1 + alpha L)^2 + B alpha rho``: Per-FedAvg's ``4 L + B alpha rho`` at ``alpha = 1/L``,
    and less below.
    """
    _check(inner_lr, steps)
    growth = _growth(constants, inner_lr)
    bending = constants.gradient_bound * inner_lr * constants.hessian_lipschitz * growth ** (steps - 1)
    return constants.smoothness * growth ** (2 * steps) + bending * sum(growth**step for step in range(steps))


def adaptation_error(constants: Constants, inner_lr: float, steps: int, inner_batch: Sizes) -> AdaptationError:
    """Lemma 5, (20)-(22): ``h_l``, ``h'_l`` and ``h''_l`` for ``l = steps``, by the recursions (77), (82) and (86).

    No step, no error: ``steps`` may be 0. At ``l = 1``, ``L h_1`` is (33) and ``L^2 h'_1`` the second part of (36) of
    Per-FedAvg. Without a fourth moment in the constants ``fourth`` is infinite.
    """
    _check(inner_lr, steps, least_steps=0)
    sizes = _sizes("inner_batch", inner_batch, steps)
    noise = constants.gradient_noise
    moment = math.inf if constants.gradient_fourth_moment is None else constants.gradient_fourth_moment
    stretch = inner_lr * constants.smoothness
    first = second = fourth = 0.0
    for step, size in enumerate(sizes):
        variance = inner_lr**2 * noise**2 / size
        kurtosis = inner_lr**4 * _batch_fourth_moment(moment, noise, size) if inner_lr else 0.0
        first = (1 + stretch) * first + inner_lr * noise / math.sqrt(size)
        if step == 0:  # there is nothing to separate the noise from, hence no factors 2 and 64
            second, fourth = variance, kurtosis
        else:
            second = (2 + 2 * stretch**2) * second + 2 * variance
            fourth = (8 + 64 * stretch**4) * fourth + 64 * kurtosis
    return AdaptationError(first, second, fourth)


def curvature_error(
    constants: Constants, inner_lr: float, steps: int, inner_batch: Sizes, curvature_batch: Sizes
) -> CurvatureError:
    """The recursions (25) and (26) for ``d_nu`` and ``d'_nu``, started at ``d_1`` and ``d'_1``."""
    _check(inner_lr, steps)
    _, hessian_moment = constants.fourth_moments("The error of the curvature, (26),")
    inner = _sizes("inner_batch", inner_batch, steps)
    curvature = _sizes("curvature_batch", curvature_batch, steps)
    growth, noise, rho = _growth(constants, inner_lr), constants.hessian_noise, constants.hessian_lipschitz
    second = inner_lr**2 * noise**2 / curvature[0]
    fourth = inner_lr**4 * _batch_fourth_moment(hessian_moment, noise, curvature[0])
    for step in range(1, steps):
        size = curvature[step]
        apart = adaptation_error(constants, inner_lr, step, inner[:step])
        kurtosis = _batch_fourth_moment(hessian_moment, noise, size)
        second = 2 * second * (growth + inner_lr * noise / math.sqrt(size)) ** 2 + 2 * inner_lr**2 * growth ** (
            2 * step
        ) * (noise**2 / size + rho**2 * apart.second)
        fourth = 64 * fourth * (growth**4 + inner_lr**4 * kurtosis) + 64 * inner_lr**4 * growth ** (4 * step) * (
            rho**4 * apart.fourth + kurtosis
        )
    return CurvatureError(second, fourth)


def estimator_error(
    constants: Constants, inner_lr: float, steps: int, inner_batch: Sizes, outer_batch: int, curvature_batch: Sizes
) -> EstimatorError:
    """Lemma 6, (23)-(24): bias ``mu_F`` and mean squared error ``sigma_F^2`` of the estimate (11).

    ``mu_F = (1+aL)^nu (sigma_G/sqrt(D_nu) + L h_nu) + B a rho (1+aL)^(nu-1) sum_(1<=j<nu) h_j + sqrt(d_nu
    (sigma_G^2/D_nu + L^2 h'_nu))`` and ``sigma_F^2 = 3 (1+aL)^(2nu) (sigma_G^2/D_nu + L^2 h'_nu) + 3 B^2 d_nu + 6
    sqrt(2 d'_nu ((kappa_G + 3 (D_nu-1) sigma_G^4)/D_nu^3 + L^4 h''_nu))`` with ``a = alpha``.

    Printed for ``nu > 1``; the proof holds for ``nu = 1`` with the empty sum. There it is not Per-FedAvg's Lemma 4.3:
    ``mu_F`` counts the outer batch's noise, which is unbiased, so the bias of exact inner gradients would not vanish;
    ``sigma_F^2`` has the same first two terms at ``alpha = 1/L``, but fourth moments in place of the product of
    variances.
    """
    _check(inner_lr, steps)
    gradient_moment, _ = constants.fourth_moments("Lemma 6")
    inner = _sizes("inner_batch", inner_batch, steps)
    any_whole("outer_batch", outer_batch, 1)
    growth, noise = _growth(constants, inner_lr), constants.gradient_noise
    apart = [adaptation_error(constants, inner_lr, step, inner[:step]) for step in range(steps + 1)]
    curvature = curvature_error(constants, inner_lr, steps, inner, curvature_batch)
    gradient = _adapted_gradient_error(constants, apart[-1], outer_batch)
    fourth = _batch_fourth_moment(gradient_moment, noise, outer_batch) + constants.smoothness**4 * apart[-1].fourth
    bending = constants.gradient_bound * inner_lr * constants.hessian_lipschitz * growth ** (steps - 1)
    return EstimatorError(
        bias=growth**steps * gradient.bias
        + bending * sum(moments.first for moments in apart[:-1])
        + math.sqrt(curvature.second * gradient.mean_squared_error),
        mean_squared_error=3 * growth ** (2 * steps) * gradient.mean_squared_error
        + 3 * constants.gradient_bound**2 * curvature.second
        + 6 * math.sqrt(2 * curvature.fourth * fourth),
    )


def _adapted_gradient_error(constants: Constants, apart: AdaptationError, outer_batch: int) -> EstimatorError:
    """(95) and (96): first and second moment of ``e_2``, the error of the gradient at the adapted model."""
    noise, smoothness = constants.gradient_noise, constants.smoothness
    return EstimatorError(
        bias=noise / math.sqrt(outer_batch) + smoothness * apart.first,
        mean_squared_error=noise**2 / outer_batch + smoothness**2 * apart.second,
    )


def first_order_error(
    constants: Constants, inner_lr: float, steps: int, inner_batch: Sizes, outer_batch: int
) -> EstimatorError:
    """Lemma 10, (32)-(33), for the estimate (31) without Hessians.

    ``mu_F = sigma_G/sqrt(D_nu) + L h_nu + B c`` and ``sigma_F^2 = 2 sigma_G^2/D_nu + 2 L^2 h'_nu + 2 B^2 c^2`` with
    ``c = (1 + alpha L)^nu + 1``. At ``nu = 1`` it is above Lemma H.1 of Per-FedAvg, whose ``c`` is ``(1 + alpha L) -
    1``: (146) bounds ``||P v - v||`` by ``||P v|| + ||v||``, so this bound does not vanish for ``alpha = 0``.
    """
    _check(inner_lr, steps)
    any_whole("outer_batch", outer_batch, 1)
    apart = adaptation_error(constants, inner_lr, steps, inner_batch)
    gradient = _adapted_gradient_error(constants, apart, outer_batch)
    missing = constants.gradient_bound * (_growth(constants, inner_lr) ** steps + 1)
    return EstimatorError(gradient.bias + missing, 2 * gradient.mean_squared_error + 2 * missing**2)


def hessian_free_error(
    constants: Constants,
    inner_lr: float,
    steps: int,
    radius: float,
    inner_batch: Sizes,
    outer_batch: int,
    curvature_batch: Sizes,
) -> EstimatorError:
    """Lemma 11, (37)-(41), for the estimate (35) with gradient differences of radius ``delta``.

    ``mu_F = p_nu + q_nu`` and ``sigma_F^2 = 2 p'_nu + 2 q_nu^2``, against ``grad F_i``: (37) and (38) print ``grad
    F_i^HF``, but the proof, (150) and (161), compares with ``grad F_i``. ``D'`` in (39)-(40) are sizes. The ``p_l``
    bound ``E ||d~ - d||`` and not only ``||E[d~ - d]||``, which (164) needs. At ``nu = 1``, ``q_1 = alpha rho delta
    B^2`` is that of Lemma H.2 of Per-FedAvg; ``p_1`` is above it, as it grows with ``1/delta``.
    """
    _check(inner_lr, steps)
    positive("radius", radius)
    inner = _sizes("inner_batch", inner_batch, steps)
    curvature = _sizes("curvature_batch", curvature_batch, steps)
    any_whole("outer_batch", outer_batch, 1)
    growth, noise, smoothness = _growth(constants, inner_lr), constants.gradient_noise, constants.smoothness
    apart = [adaptation_error(constants, inner_lr, step, inner[:step]) for step in range(steps + 1)]
    first, second = _adapted_gradient_error(constants, apart[-1], outer_batch)
    for step in reversed(range(steps)):
        size = curvature[step]
        first = growth * first + inner_lr / radius * (noise / math.sqrt(size) + smoothness * apart[step].first)
        second = 3 * second * (1 + (inner_lr * smoothness) ** 2) + 3 * inner_lr**2 / (2 * radius**2) * (
            noise**2 / size + 2 * smoothness**2 * apart[step].second
        )
    difference = inner_lr * constants.hessian_lipschitz * radius * constants.gradient_bound**2
    difference *= sum(growth ** (steps + step - 1) for step in range(steps))
    return EstimatorError(first + difference, 2 * second + 2 * difference**2)


def printed_meta_dissimilarity(constants: Constants, inner_lr: float, steps: int) -> float:
    """Lemma 7 as printed, (27)-(28); right for one step only.

    ``gamma_F^2 = 15 B^2 g_nu + 6 gamma_G^2 (1 + alpha L)^(2 nu) (1 + alpha^2 L^2)`` with
    ``g_nu = alpha^2 gamma_H^2 (1 + alpha L)^(2 nu - 2) (2^(nu-1) + sum_(1<=l<nu) 2^l)``.

    The proof (128)-(141) writes ``w_l`` both for client ``i``'s own models and for one trajectory that all share.
    With the client's own, what it subtracts is no constant, and Assumption 5 does not hold across different points;
    with a shared one, the distance between the two is missing. Clients ``f_i(w) = L cos(w) + b_i w`` have equal
    Hessians, and at ``w = 0``, ``alpha = 1/L`` and small ``b_i`` the left side is ``4^(2 nu) gamma_G^2``, the right
    ``12 * 4^nu gamma_G^2``: less for ``nu >= 2``. Use ``meta_dissimilarity``. At ``nu = 1`` it differs from Lemma 4.4
    of Per-FedAvg, in both directions: 15 for 3 and at most 48 for 192.
    """
    _check(inner_lr, steps)
    growth, step = _growth(constants, inner_lr), inner_lr * constants.smoothness
    doubling = 2 ** (steps - 1) + sum(2**power for power in range(1, steps))
    hessian = (inner_lr * constants.hessian_dissimilarity * growth ** (steps - 1)) ** 2 * doubling
    gradient = constants.gradient_dissimilarity**2 * growth ** (2 * steps) * (1 + step**2)
    return math.sqrt(15 * constants.gradient_bound**2 * hessian + 6 * gradient)


def meta_dissimilarity(constants: Constants, inner_lr: float, steps: int) -> float:
    """Lemma 7 corrected: ``gamma_F`` with ``(1/N) sum_i ||grad F_i - grad F||^2 <= gamma_F^2``.

    ``gamma_F = gamma_G (1+aL)^(2nu) + B a (1+aL)^(nu-1) sum_(l<nu) (gamma_H + rho gamma_G ((1+aL)^l - 1)/L)``, ``a =
    alpha``.

    Let ``v_l`` be the models of ``l`` exact steps on ``f``, the mean of the ``f_i`` (Assumption 5 prints their sum),
    and ``s_l`` the root mean square over clients of ``||w_l^i - v_l||``. Minkowski's inequality gives ``s_(l+1) <=
    (1+aL) s_l + a gamma_G``, so ``s_l <= gamma_G ((1+aL)^l - 1)/L``. Then ``grad f_i(w_nu^i)`` is within ``L s_nu +
    gamma_G = gamma_G (1+aL)^nu`` of ``grad f(v_nu)``, and each factor of the curvature within ``a (gamma_H + rho
    s_l)`` of that on ``f``, all in root mean square. The variance over clients is at most the mean square distance
    from any one vector. The first term is attained (see ``printed_meta_dissimilarity``). At ``nu = 1`` it is below
    Lemma 4.4 of Per-FedAvg.
    """
    _check(inner_lr, steps)
    growth = _growth(constants, inner_lr)
    gamma = constants.gradient_dissimilarity
    bending = sum(
        constants.hessian_dissimilarity
        + constants.hessian_lipschitz * gamma * (growth**step - 1) / constants.smoothness
        for step in range(steps)
    )
    return gamma * growth ** (2 * steps) + constants.gradient_bound * inner_lr * growth ** (steps - 1) * bending


def average_gradient_bound(
    constants: Constants,
    inner_lr: float,
    steps: int,
    error: EstimatorError,
    schedule: Schedule,
    clients: int,
    cohort: int,
    initial_gap: float,
    constant: float = PROVED,
) -> GradientBound:
    """Theorem 8, (30), with ``gamma_F`` and the term of client sampling corrected, for ``beta <= 1/(10 tau L_F)``.

    ``error`` is ``(mu_F, sigma_F^2)`` of ``estimator_error``, ``first_order_error`` or ``hessian_free_error``. ``n``
    in (30) is ``N``, the number of clients. The proof is that of Per-FedAvg's Theorem 4.5, and so is its gap: see
    ``per_fedavg.printed_average_gradient_bound`` for the factor ``tau`` that is missing before ``(1-r)/(r(n-1))``,
    and ``printed_meta_dissimilarity`` for what is wrong with the printed ``gamma_F``. ``constant`` is the O(1): the
    default is proved in ``stationarity``; a sweep over 200 problems with known constants stays below 0.1.
    """
    return stationarity.average_gradient_bound(
        meta_smoothness(constants, inner_lr, steps),
        error,
        meta_dissimilarity(constants, inner_lr, steps),
        schedule,
        clients,
        cohort,
        initial_gap,
        constant,
        sampling_steps=schedule.local_steps,
        needed_by="Theorem 8",
    )


def printed_average_gradient_bound(
    constants: Constants,
    inner_lr: float,
    steps: int,
    error: EstimatorError,
    schedule: Schedule,
    clients: int,
    cohort: int,
    initial_gap: float,
    constant: float = 2240.0,
) -> GradientBound:
    """Theorem 8 as printed, with ``n`` read as ``N``; for comparison, as two of its terms can be too small."""
    return stationarity.average_gradient_bound(
        meta_smoothness(constants, inner_lr, steps),
        error,
        printed_meta_dissimilarity(constants, inner_lr, steps),
        schedule,
        clients,
        cohort,
        initial_gap,
        constant,
        sampling_steps=1,
        needed_by="Theorem 8",
    )


def schedule_for(
    constants: Constants,
    inner_lr: float,
    steps: int,
    accuracy: float,
    local_steps_factor: float = 1.0,
    rounds_factor: float = 1.0,
) -> Schedule:
    """Remark 9: ``beta = eps``, ``tau = O(eps^-1/2)`` and ``K = O(eps^-3/2)``.

    They find an ``O(eps + 1/D)`` stationary point. As with Corollary 4.6 of Per-FedAvg (``per_fedavg.schedule_for``),
    all clients have to take part. The ``1/D`` is ``mu_F^2`` of Lemma 6 for equal batches of ``D``.
    """
    smoothness = meta_smoothness(constants, inner_lr, steps)
    return stationarity.rates(accuracy, smoothness, local_steps_factor, rounds_factor, "Remark 9")
