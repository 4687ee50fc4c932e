"""The lemmas and Theorem 3 of MOML v1 (Wang, Yuan, Ying and Yang, 2023), one function each.

``F_i(w) = L_i(v_i(w))`` with ``v_i(w) = w - alpha grad L_i(w)`` is task ``i``'s meta loss and ``F`` the mean over the
``n`` tasks. An iteration draws ``B`` tasks without replacement and, for each, three independent batches of ``K``
samples. ``u^i`` is task ``i``'s memory, which begins with the adapted model of the task's first visit. A client is a
task.

``initial_gap`` is ``F(w_0) - inf F``. The paper prints ``F(w_0)`` for it, which is the same where ``inf F = 0``.
LocalMOML is in ``local_memory``, MOML v2 in ``unbounded_memory``.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from headstart.algorithms.moml_v2 import gradient_lipschitz
from headstart.core.checks import any_whole, at_least, in_unit_interval, positive
from headstart.errors import UsageError
from headstart.theory import per_fedavg
from headstart.theory.conditions import check_cohort, check_inner_lr
from headstart.theory.constants import Constants
from headstart.theory.search import fewest

__all__ = [
    "Descent",
    "MemoryBound",
    "Plan",
    "Run",
    "TrackingError",
    "average_gradient_bound",
    "descent",
    "gradient_second_moment",
    "lipschitz_at",
    "maml_floor",
    "meta_dissimilarity",
    "meta_smoothness",
    "plan",
    "printed_tracking_error",
    "steps_for",
    "tracking_error",
]


class Run(NamedTuple):
    """What a run of MOML v1 is set to."""

    outer_lr: float
    """``eta``."""
    averaging: float
    """``beta``; 1 is MAML."""
    iterations: int
    """``T``."""
    clients: int
    """``n``, the tasks."""
    cohort: int
    """``B``."""
    batch: int
    """``K``, the samples of each of S_1, S_2 and S_3."""


class TrackingError(NamedTuple):
    """A bound on how far memories are from the adapted models; ``total`` is the bound."""

    start: float
    """Of the memories' first values: falls with the length of the run."""
    lag: float
    """Of a model that moves while its memory stands still."""
    noise: float
    """Of the batches' noise that averaging leaves over: falls with ``averaging``."""

    @property
    def total(self) -> float:
        return sum(self)


class Descent(NamedTuple):
    """The right side of Lemma 1; ``total`` is the bound."""

    start: float
    noise: float
    tracking: float

    @property
    def total(self) -> float:
        return sum(self)


class MemoryBound(NamedTuple):
    """A bound on the average of ``E ||grad F||^2`` in its separate terms; ``total`` is the bound."""

    start: float
    """What is left of the distance to the best value: falls with iterations."""
    noise: float
    """Of the batches' noise: falls with the outer step size."""
    sampling: float
    """Of unlike clients that sit out: falls with the outer step size, zero when all take part."""
    drift: float
    """Of several local steps: zero for one."""
    memory_start: float
    """Of the memories' first values: falls with iterations, or with the samples that restart a memory."""
    memory_lag: float
    """Of a model that moves away from its memories: falls with ``outer_lr / averaging``."""
    memory_noise: float
    """Of the noise in the memories: falls with ``averaging``. With ``averaging = 1`` it is the floor of MAML."""

    @property
    def total(self) -> float:
        return sum(self)

    @property
    def dominant(self) -> str:
        """The name of the largest term."""
        return max(zip(self, self._fields, strict=True))[1]


class Plan(NamedTuple):
    """A run that a theorem lets reach the accuracy, what it draws, and the bound it has."""

    run: Run
    samples: int
    """The samples of all iterations together."""
    bound: MemoryBound


def lipschitz_at(constants: Constants, inner_lr: float, gradient_norms: Sequence[float]) -> float:
    """Lemma 10: ``L(w) = 4 L + (2 rho alpha / n) sum_i ||grad L_i(w)||``, with which ``F`` is smooth around ``w``.

    ``F(w') <= F(w) + <grad F(w), w' - w> + L(w)/2 ||w' - w||^2`` for all ``w'``, and ``grad F`` changes by at most
    ``L(w) ||w' - w||``. With norms of *stochastic* gradients of some tasks it is section 3.3's estimate ``L-hat(w)``,
    which sets the steps of MOML v2.
    """
    check_inner_lr(constants, inner_lr, "Lemma 10")
    if not len(gradient_norms):
        raise UsageError("There are no gradient norms.", "Give the norm of one gradient a task.")
    mean_norm = sum(float(norm) for norm in gradient_norms) / len(gradient_norms)
    return float(gradient_lipschitz(constants.smoothness, constants.hessian_lipschitz, inner_lr, mean_norm))


def meta_smoothness(constants: Constants, inner_lr: float) -> float:
    """Lemma 10: ``L_F = 4 L + 2 rho alpha G``, a Lipschitz constant of every ``grad F_i`` and of ``grad F``.

    Per-FedAvg's Lemma 4.2 has ``4 L + rho alpha B`` with the same ``B = G`` and is sharper.
    """
    return lipschitz_at(constants, inner_lr, [constants.gradient_bound])


def meta_dissimilarity(constants: Constants, inner_lr: float) -> float:
    """Lemma 11: ``gamma_F`` with ``gamma_F^2 = 3 G^2 alpha^2 gamma_H^2 + 192 gamma_G^2``: Per-FedAvg's Lemma 4.4."""
    return per_fedavg.meta_dissimilarity(constants, inner_lr)


def gradient_second_moment(constants: Constants, inner_lr: float, batch: int) -> float:
    """Lemma 13: ``E ||Delta-hat||^2 <= C_Delta = (alpha^2 sigma_H^2/K + (1 + alpha L)^2)(sigma_G^2/K + G^2)``.

    The proof's first line is wrong in the spectral norm, in which second moments of matrices do not split into mean and
    variance. The lemma stands: the Hessian's batch is independent of the vector that it is multiplied with, and for
    ``E ||(I - alpha H-hat) v||^2`` with such a ``v`` the split is right.
    """
    at_least("inner_lr", inner_lr, 0)
    any_whole("batch", batch, 1)
    pullback = inner_lr**2 * constants.hessian_noise**2 / batch + (1 + inner_lr * constants.smoothness) ** 2
    return pullback * (constants.gradient_noise**2 / batch + constants.gradient_bound**2)


def descent(
    constants: Constants,
    inner_lr: float,
    initial_gap: float,
    outer_lr: float,
    iterations: int,
    second_moment: float,
    tracking: float,
) -> Descent:
    """Lemma 1: bounds ``(1/T) sum_t E ||grad F(w_t)||^2`` by

    ``2 (F(w_0) - inf F) / (eta T) + eta L_F second_moment + 8 L^2 tracking``,

    where ``second_moment`` is the average over iterations of ``E ||Delta-hat||^2`` and ``tracking`` that of ``E (1/B)
    sum_{i in B_t} ||v_i(w_t) - u^i_{t+1}||^2``. The proof has ``(1 + alpha L)^2 L^2 <= 4 L^2`` for the printed 8 L^2.
    """
    check_inner_lr(constants, inner_lr, "Lemma 1")
    at_least("initial_gap", initial_gap, 0)
    positive("outer_lr", outer_lr)
    any_whole("iterations", iterations, 1)
    return Descent(
        start=2 * initial_gap / (outer_lr * iterations),
        noise=outer_lr * meta_smoothness(constants, inner_lr) * second_moment,
        tracking=8 * constants.smoothness**2 * tracking,
    )


def maml_floor(constants: Constants, inner_lr: float, batch: int) -> float:
    """Lemma 1 with (5) at ``beta = 1``: ``8 L^2 alpha^2 sigma_G^2 / K``, below which the bound of MAML cannot come.

    It is ``E ||grad F||^2`` that the bias of an adapted model from ``K`` samples may leave, whatever step size and
    number of iterations; the memories' noise is this times ``averaging``.
    """
    check_inner_lr(constants, inner_lr, "Lemma 1")
    any_whole("batch", batch, 1)
    return 8 * (constants.smoothness * inner_lr * constants.gradient_noise) ** 2 / batch


def _check(run: Run) -> None:
    positive("outer_lr", run.outer_lr)
    in_unit_interval("averaging", run.averaging)
    any_whole("iterations", run.iterations, 1)
    check_cohort(run.clients, run.cohort)
    any_whole("batch", run.batch, 1)


def tracking_error(constants: Constants, inner_lr: float, run: Run) -> TrackingError:
    """Lemma 2, corrected: bounds ``E (1/T) sum_t sum_{i in B_t} ||v_i(w_t) - u^i_{t+1}||^2`` by

    ``n alpha^2 sigma_G^2 / (beta K T) + B (16 eta^2 n^2 C_Delta / (beta^2 B^2) + beta alpha^2 sigma_G^2 / K)``,

    the first two terms only for ``beta < 1``. As printed, (5) lacks the factor ``B``, because its proof ends with
    ``sum_i T_i = T`` where ``T`` iterations with ``B`` tasks each visit ``B T`` tasks; for ``B > 1`` it is false (with
    ``beta = 1`` the left side can equal ``B alpha^2 sigma_G^2 / K``). And its first term has ``sigma_G^2`` where a
    memory that begins as an adapted model is off by ``alpha^2 sigma_G^2 / K``. See ``printed_tracking_error``.
    """
    check_inner_lr(constants, inner_lr, "Lemma 2")
    _check(run)
    noise = (inner_lr * constants.gradient_noise) ** 2 / run.batch
    remembers = run.averaging < 1
    away = run.outer_lr * run.clients / (run.averaging * run.cohort)
    moment = gradient_second_moment(constants, inner_lr, run.batch)
    return TrackingError(
        start=run.clients * noise / (run.averaging * run.iterations) if remembers else 0.0,
        lag=run.cohort * 16 * away**2 * moment if remembers else 0.0,
        noise=run.cohort * run.averaging * noise,
    )


def printed_tracking_error(constants: Constants, inner_lr: float, run: Run) -> TrackingError:
    """Lemma 2 as printed; false for a cohort of more than one task, and not proved for ``inner_lr > 1``."""
    corrected = tracking_error(constants, inner_lr, run)
    start = run.clients * constants.gradient_noise**2 / (run.averaging * run.batch * run.iterations)
    return TrackingError(
        start=start if run.averaging < 1 else 0.0, lag=corrected.lag / run.cohort, noise=corrected.noise / run.cohort
    )


def average_gradient_bound(constants: Constants, inner_lr: float, initial_gap: float, run: Run) -> MemoryBound:
    """Theorem 14, the detailed Theorem 3: Lemma 1 with Lemmas 2 (corrected) and 13, for any step sizes.

    Bounds ``(1/T) sum_t E ||grad F(w_t)||^2`` of MOML v1 by ``2 (F(w_0) - inf F) / (eta T) + eta L_F C_Delta
    + 8 L^2 (n alpha^2 sigma_G^2 / (B beta K T) + 16 eta^2 n^2 C_Delta / (beta^2 B^2) + beta alpha^2 sigma_G^2 / K)``.

    Theorem 3 prints ``eta = O(eps^-3)`` and ``beta = O(eps^-2)``. Read ``eps^3`` and ``eps^2``: so has the text after
    Lemma 2, Table 7, and what Theorem 14's ``eta = (B/n)^(2/5) T^(-3/5)`` and ``beta = (n/B)^(2/5) T^(-2/5)`` are at
    ``T = n eps^-5``. The proof's ``144`` before ``n^(2/5)/T^(2/5)`` is ``8 * 16 = 128``.
    """
    error = tracking_error(constants, inner_lr, run)
    moment = gradient_second_moment(constants, inner_lr, run.batch)
    step = descent(constants, inner_lr, initial_gap, run.outer_lr, run.iterations, moment, error.total / run.cohort)
    weight = 8 * constants.smoothness**2 / run.cohort
    return MemoryBound(
        start=step.start,
        noise=step.noise,
        sampling=0.0,  # part of the noise: C_Delta bounds a single task's gradient
        drift=0.0,
        memory_start=weight * error.start,
        memory_lag=weight * error.lag,
        memory_noise=weight * error.noise,
    )


def steps_for(
    constants: Constants, inner_lr: float, initial_gap: float, iterations: int, clients: int, cohort: int, batch: int
) -> Run:
    """Theorem 14's ``eta ~ T^(-3/5)`` and ``beta ~ T^(-2/5)`` with the factors that make its bound smallest.

    The bound's leading terms are ``a / (eta T) + b eta^2 / beta^2 + c beta``, smallest at ``beta = (2 b eta^2 /
    c)^(1/3)`` and ``eta = (3 a / (2 k T))^(3/5)`` with ``k = 3 (b c^2 / 4)^(1/3)``. The paper leaves the
    factors at 1. Where plain MAML (``beta = 1``, ``eta ~ T^(-1/2)``) has the smaller bound, because adapted models are
    exact enough or the run too short to average, it is that.
    """
    positive("initial_gap", initial_gap)
    any_whole("iterations", iterations, 1)
    moment = gradient_second_moment(constants, inner_lr, batch)
    a, smoothness = 2 * initial_gap, meta_smoothness(constants, inner_lr)
    b = 128 * (constants.smoothness * clients / cohort) ** 2 * moment
    c = maml_floor(constants, inner_lr, batch)
    maml_lr = math.sqrt(a / (smoothness * moment * iterations)) if moment else 1 / smoothness
    choices = [Run(maml_lr, 1.0, iterations, clients, cohort, batch)]
    if b and c:
        k = 3 * (b * c**2 / 4) ** (1 / 3)
        eta = (3 * a / (2 * k * iterations)) ** 0.6
        beta = (2 * b * eta**2 / c) ** (1 / 3)
        if beta < 1:
            choices.append(Run(eta, beta, iterations, clients, cohort, batch))
    return min(choices, key=lambda run: average_gradient_bound(constants, inner_lr, initial_gap, run).total)


def plan(
    constants: Constants,
    inner_lr: float,
    initial_gap: float,
    accuracy: float,
    clients: int,
    cohort: int = 1,
    batch: int = 1,
) -> Plan:
    """Theorem 3: the shortest run of MOML v1 whose bound promises ``E ||grad F(w_tau)||^2 <= accuracy^2``.

    ``tau`` is drawn from all iterations. ``T = O(n eps^-5)`` with ``B = K = O(1)``, at the step sizes of ``steps_for``.
    """
    positive("accuracy", accuracy)

    def run_of(iterations: int) -> Run:
        return steps_for(constants, inner_lr, initial_gap, iterations, clients, cohort, batch)

    def reaches(iterations: int) -> bool:
        bound = average_gradient_bound(constants, inner_lr, initial_gap, run_of(iterations))
        return bound.total <= accuracy**2

    run = run_of(fewest(reaches, accuracy, "Theorem 3"))
    return Plan(run, 3 * batch * cohort * run.iterations, average_gradient_bound(constants, inner_lr, initial_gap, run))
