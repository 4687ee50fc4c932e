"""What the convergence theorems of Per-FedAvg and of nu steps share: schedules, estimators' errors and the bound.

Theorem 4.5 of Per-FedAvg and Theorem 8 of nu steps bound ``1/(tau K) sum_k sum_t E ||grad F(w_k,t)||^2``, where
``w_k,t`` is the mean of the cohort's models after ``t`` local steps of round ``k``, by the same formula of ``L_F``,
``sigma_F``, ``gamma_F`` and the bias ``m_F``. As printed it is wrong where clients sit out (see
``per_fedavg.printed_average_gradient_bound``). What holds, for ``beta <= 1/(10 tau L_F)``, with ``x = beta L_F`` and
``V = (1-r)/(r(n-1))``, is

    4 (F(w_0) - F*)/(beta tau K) + 16 x sigma_F^2 + 6 x^2 tau (tau-1) (sigma_F^2 + gamma_F^2) + 15 x tau V gamma_F^2 +
    5 m_F^2.

Proof. Let ``w`` be the model at a round's start, ``g = grad F(w)``, and let all clients run, of which the cohort,
drawn independently of their runs, counts. Norms are root mean squares over clients and batches, given ``w``.

1. Client models move by ``a_(t+1) <= (1+x) a_t + beta (sigma_F + gamma_F + |g|)``, so ``L_F^2 a_t^2`` has a mean over
   ``t < tau`` of at most ``Q (sigma_F^2 + gamma_F^2 + |g|^2)`` with ``Q = 1.2215 x^2 tau (tau-1) <= 0.0123``.
2. The round moves by ``d`` with ``E d = -beta tau (g + e)``, ``|e|^2 <= 2 m_F^2 + 2 Q (..)``: the cohort is a fair
   sample of the clients *at the round's start*, which is what (99) of Per-FedAvg wants at every local step and does
   not have.
3. ``|d| <= beta (tau |g| + tau sqrt(V) gamma_F + tau sqrt(Q (..)) + tau m_F + sqrt(tau) sigma_F)``; the noise about
   its mean is a martingale, and ``V`` is the variance of sampling without replacement (93). So by smoothness ``E F``
   falls in a round by at least ``beta tau`` times ``0.3828 |g|^2 - 1.4 m_F^2 - 1.4 Q (sigma_F^2 + gamma_F^2) - 4 x
   tau V gamma_F^2 - 4 x sigma_F^2``.
4. Within a round ``|grad F(w_k,t)|^2 <= 1.25 |g|^2 + 5 L_F^2 |w_k,t - w|^2``, with 3. for ``t`` steps. Collect the
   terms.
"""

import math
from typing import NamedTuple

from headstart.core.checks import any_whole, at_least, positive
from headstart.theory.conditions import at_most, check_cohort

__all__ = ["PROVED", "EstimatorError", "GradientBound", "Schedule", "average_gradient_bound", "rates"]

PROVED = 16.0
"""An O(1) with which the bound holds: the largest number of the proof above."""


class EstimatorError(NamedTuple):
    """How wrong a stochastic meta-gradient may be, for every client and model."""

    bias: float
    """``||E[estimate] - grad F_i||`` (``m_F``, ``mu_F``)."""
    mean_squared_error: float
    """``E ||estimate - grad F_i||^2`` (``sigma_F^2``)."""


class Schedule(NamedTuple):
    """How a run proceeds."""

    outer_lr: float
    """``beta``."""
    local_steps: int
    """``tau``."""
    rounds: int
    """``K``."""


class GradientBound(NamedTuple):
    """A bound on ``1/(tau K) sum_k sum_t E ||grad F||^2`` in its separate terms; ``total`` is the bound."""

    start: float
    """What is left of the distance to the best value: falls with rounds."""
    noise: float
    """Of the batches' noise: falls with the outer step size and with batch sizes."""
    sampling: float
    """Of clients that sit out: zero when all take part."""
    drift: float
    """Of unlike clients that take several local steps: zero for one local step."""
    bias: float
    """Of the biased estimate: the floor, which only batch sizes and the inner step size lower."""

    @property
    def total(self) -> float:
        return sum(self)

    @property
    def dominant(self) -> str:
        """The name of the largest term."""
        return max(zip(self, self._fields, strict=True))[1]


def _check_outer_lr(outer_lr: float, local_steps: int, smoothness: float, needed_by: str) -> None:
    at_most("outer_lr", outer_lr, 1 / (10 * local_steps * smoothness), "1/(10 local_steps L_F)", needed_by)


def average_gradient_bound(
    smoothness: float,
    error: EstimatorError,
    dissimilarity: float,
    schedule: Schedule,
    clients: int,
    cohort: int,
    initial_gap: float,
    constant: float,
    sampling_steps: int,
    needed_by: str,
) -> GradientBound:
    """The right side that Theorem 4.5 of Per-FedAvg and Theorem 8 of nu steps have in common.

    ``smoothness``, ``error`` and ``dissimilarity`` are ``L_F``, ``(m_F, sigma_F^2)`` and ``gamma_F``. The term of
    client sampling is multiplied by ``sampling_steps``: 1 as printed, ``tau`` as corrected.
    """
    outer_lr, local_steps, rounds = schedule
    positive("outer_lr", outer_lr)
    any_whole("local_steps", local_steps, 1)
    any_whole("rounds", rounds, 1)
    check_cohort(clients, cohort)
    at_least("initial_gap", initial_gap, 0)
    positive("constant", constant)
    _check_outer_lr(outer_lr, local_steps, smoothness, needed_by)
    step = outer_lr * smoothness
    # (1 - r) / (r (n - 1)) of the papers, with r = cohort / clients; no client sits out where there is one.
    share = 0.0 if cohort == clients else (clients - cohort) / (cohort * (clients - 1))
    apart = local_steps * (local_steps - 1)
    return GradientBound(
        start=4 * initial_gap / (outer_lr * local_steps * rounds),
        noise=constant * step * (1 + step * apart) * error.mean_squared_error,
        sampling=constant * step * sampling_steps * share * dissimilarity**2,
        drift=constant * step**2 * apart * dissimilarity**2,
        bias=constant * error.bias**2,
    )


def rates(
    accuracy: float, smoothness: float, local_steps_factor: float, rounds_factor: float, needed_by: str
) -> Schedule:
    """``beta = eps``, ``tau = O(eps^-1/2)``, ``K = O(eps^-3/2)``, refused where ``beta`` is too large for them."""
    positive("accuracy", accuracy)
    positive("local_steps_factor", local_steps_factor)
    positive("rounds_factor", rounds_factor)
    schedule = Schedule(
        outer_lr=accuracy,
        local_steps=max(1, math.floor(local_steps_factor * accuracy**-0.5)),
        rounds=math.ceil(rounds_factor * accuracy**-1.5),
    )
    _check_outer_lr(accuracy, schedule.local_steps, smoothness, needed_by)
    return schedule
