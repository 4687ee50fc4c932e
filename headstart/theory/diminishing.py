"""Per-FedAvg with outer step sizes that fall from round to round: the bound behind fallah's Remarks 4.8 and G.1.

The proof of Theorem 4.5 (in ``stationarity``) goes round by round, so each round may have a step size ``beta_k`` of its
own. Summed up, it bounds the average of ``||grad F||^2`` in which round ``k`` has the weight ``beta_k``, and every term
of the theorem becomes an average of its own over rounds.

Remark G.1 says that ``beta_k = O(1/sqrt(tau k))`` has the complexity of Corollary 4.6: ``tau = O(eps^-1/2)`` and ``K =
O(eps^-3/2)`` for ``O(eps)``. The bound does not say that.

- From round 1 on, ``beta_1 <= 1/(10 tau L_F)`` keeps ``beta_k`` below ``1/(10 tau L_F sqrt(k))``: the start falls as
  ``1/sqrt(K) = O(eps^3/4)``.
- With the first ``O(tau)`` numbers left out, ``beta_k = O(1/sqrt(tau (tau + k)))``, the start falls as ``1/sqrt(tau K)
  = O(eps)`` and the noise as ``log(K)`` times that, but the drift of the first rounds as ``sqrt(tau/K) = O(eps^1/2)``.
- With ``O(K)`` numbers left out all terms are ``O(eps)``; the last step size is then a fixed share of the first.
"""

import math
from collections.abc import Sequence

from headstart.core.checks import positive
from headstart.errors import UsageError
from headstart.theory import per_fedavg
from headstart.theory.constants import Constants
from headstart.theory.stationarity import PROVED, EstimatorError, GradientBound, Schedule

__all__ = ["diminishing_steps", "weighted_gradient_bound"]


def diminishing_steps(initial: float, rounds: int, skipped: int = 0) -> list[float]:
    """``beta_k = initial sqrt((1 + skipped)/(k + 1 + skipped))``: Remark G.1's, with its first numbers left out."""
    return [initial * math.sqrt((1 + skipped) / (k + 1 + skipped)) for k in range(rounds)]


def weighted_gradient_bound(
    constants: Constants,
    inner_lr: float,
    error: EstimatorError,
    outer_lrs: Sequence[float],
    local_steps: int,
    clients: int,
    cohort: int,
    initial_gap: float,
    constant: float = PROVED,
) -> GradientBound:
    """Bounds ``sum_k beta_k (1/tau) sum_t E ||grad F(w_k,t)||^2 / sum_k beta_k``, with ``outer_lrs`` the ``beta_k``.

    By ``4 (F(w_0) - F*) / (tau sum_k beta_k)`` and the other terms of ``per_fedavg.average_gradient_bound``, each
    averaged over rounds with the same weights; for one step size it is that bound. All ``beta_k <= 1/(10 tau L_F)``.
    """
    if not outer_lrs:
        raise UsageError("There are no step sizes.", "Give one for each round.")
    positive("outer_lr", min(outer_lrs))
    total = math.fsum(outer_lrs)
    # Terms grow with beta or with its square, so their averages are those of the largest step size, shared down.
    # What one local step has none of goes with the square.
    largest = max(outer_lrs)
    rounds = total / largest
    linear = math.fsum(step**2 for step in outer_lrs) / total / largest
    square = math.fsum(step**3 for step in outer_lrs) / total / largest**2
    alone, several = (
        per_fedavg.average_gradient_bound(
            constants, inner_lr, error, Schedule(largest, steps, 1), clients, cohort, initial_gap, constant
        )
        for steps in (1, local_steps)
    )
    return GradientBound(
        start=several.start / rounds,
        noise=linear * alone.noise + square * (several.noise - alone.noise),
        sampling=linear * several.sampling,
        drift=square * several.drift,
        bias=several.bias,
    )
