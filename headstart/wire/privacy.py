r"""How much privacy a run has spent: epsilon at a delta, for one client's whole data.

**What is promised.** Client-level ``(epsilon, delta)`` differential privacy: for every set S of outcomes,
``P[M(D) in S] <= exp(epsilon) P[M(D') in S] + delta``, where D' is D with *all* data of one client replaced by any
other data. The number of clients is public. Under **central** privacy (noise at the server) the outcome is all that the
server makes of the noised means: the models of all rounds, and whatever is computed from them. The server itself is
trusted. Under **local** privacy (noise at the clients) the outcome is what leaves a client; nobody is trusted.

**What is not.** What stays at a client: its memories, its residual of error feedback and its adapted model, which are
functions of its own data and must not be published. Figures that a record shows beside the model, such as the mean
training loss, which carry no noise. Under central privacy nobody may know who took part in which round. In either case
the seed must stay secret, because it gives away cohorts, batch draws and noise; a simulation therefore states what
a deployment with secret keys would have. Numbers are taken for real numbers: attacks on rounding are not covered.

**Sensitivity.** Replacing a client swaps one clipped update for another, so the sum of a cohort changes by up to
*twice* the clipping norm C. Noise of deviation z C is thus a Gaussian mechanism of multiplier z / 2, or in Dong, Roth
and Su's words ``mu = 2 / z``. The bits of adaptive clipping change by up to 1 under noise of deviation sigma_b, which
adds ``sigma_b^-2 = 4 (2 sigma_b)^-2`` to ``mu^2``; the update's multiplier is raised such that the sum is ``4 z^-2``
again (see :class:`~headstart.wire.AdaptiveClip`), so z alone decides.
"""

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr
from scipy.stats import binom

from headstart.core import checks
from headstart.errors import UsageError
from headstart.wire.chain import Wire
from headstart.wire.noise import Where

__all__ = ["PrivacySpent", "default_delta", "epsilon_of", "noise_for", "privacy_spent"]


class PrivacySpent(NamedTuple):
    """The privacy of a run; its text is a line for people."""

    epsilon: float
    delta: float
    kind: Literal["central", "local"]
    note: str
    """What the figure is of: rounds, and how many clients took part in each."""

    def __str__(self) -> str:
        if math.isinf(self.epsilon):
            return f"no {self.kind} differential privacy: the noise has multiplier 0, {self.note}"
        return (
            f"{self.kind} differential privacy: epsilon = {self.epsilon:.3g} at delta = {self.delta:.2g} "
            f"for one client's whole data, {self.note}"
        )


def default_delta(clients: int) -> float:
    """``1 / clients ** 1.1`` and at most ``1e-5``.

    Delta has to be well below one in the number of clients, or publishing one client at random would pass for private.
    """
    return min(1e-5, clients**-1.1)


def privacy_spent(
    wire: Wire, rounds: int, cohort: int, clients: int, secret_cohorts: bool = True
) -> PrivacySpent | None:
    """The privacy of a run with this wire; ``None`` without noise on it.

    ``secret_cohorts`` is whether nobody but the server knows who takes part in which round.
    """
    mechanism = wire.mechanism()
    if mechanism is None:
        return None
    at = mechanism.noise.at
    delta = default_delta(clients) if wire.delta is None else wire.delta
    epsilon = epsilon_of(float(mechanism.noise.multiplier), delta, rounds, cohort, clients, at, secret_cohorts)
    note = f"{rounds} rounds, {cohort} of {clients} clients per round"
    if at == "server" and cohort < clients and not secret_cohorts:
        note += ", of whom sites know the numbers"
    return PrivacySpent(epsilon, delta, "central" if at == "server" else "local", note)


def epsilon_of(
    multiplier: float,
    delta: float,
    rounds: int,
    cohort: int,
    clients: int,
    at: Where = "server",
    secret_cohorts: bool = True,
) -> float:
    r"""Epsilon at ``delta`` after ``rounds`` rounds, each with ``cohort`` of ``clients`` drawn without replacement.

    With everyone in every round it is that of one Gaussian mechanism with ``mu = 2 sqrt(rounds) / multiplier``, exactly
    (Balle and Wang 2018, Theorem 8; Dong, Roth and Su 2022, Corollary 3.3).

    At the clients, a client is exposed in the rounds in which it takes part, and everyone may know which these are.
    Their number is binomial whatever the data are, so delta is the mean of the same formula's over it, exactly.

    The same holds at the server where cohorts are no secret, as of sites that know the seed. Otherwise the draw of a
    secret cohort amplifies privacy there. With q the cohort's share, one round has

    .. math:: \delta(\epsilon) = q\, \delta_\mu\bigl(\log(1 + (e^\epsilon - 1) / q)\bigr), \quad \epsilon \ge 0

    (Balle, Barthe and Gaboardi 2018, Theorem 9: drawn without replacement, one replaced) and the mirror image for
    negative epsilon, as replacement goes both ways. A pair of distributions with this curve dominates the round (Zhu,
    Dong and Wang 2022, Proposition 8 and Theorem 10). Its privacy loss is discretised from above (Doroshenko et al.
    2022) and composed numerically by ``dp-accounting``. That is tighter than the Renyi bound of Wang, Balle and
    Kasiviswanathan 2019, by a factor of two and more.
    """
    _check(delta, rounds, cohort, clients)
    checks.at_least("noise.multiplier", multiplier, 0)
    if multiplier == 0:
        return math.inf
    mu = 2 / multiplier
    if at == "server" and secret_cohorts and cohort < clients:
        return _amplified(mu, cohort / clients, rounds, delta)
    times = np.arange(1, rounds + 1)
    chance = binom.pmf(times, rounds, cohort / clients)
    times, chance = times[chance > 0], chance[chance > 0]

    def delta_of(epsilon: float) -> float:
        return float(np.sum(chance * _gaussian_delta(epsilon, mu * np.sqrt(times))))

    return _smallest(delta_of, delta)


def noise_for(epsilon: float, delta: float, rounds: int, cohort: int, clients: int, at: Where = "server") -> float:
    """The smallest noise multiplier, to a thousandth of itself, with which a run stays within ``epsilon``."""
    checks.positive("epsilon", epsilon)
    _check(delta, rounds, cohort, clients)

    def enough(multiplier: float) -> bool:
        return epsilon_of(multiplier, delta, rounds, cohort, clients, at) <= epsilon

    high = 1.0
    while not enough(high):
        high *= 2
    low = high / 2
    while enough(low):
        low, high = low / 2, low
    while high / low > 1.001:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _check(delta: float, rounds: int, cohort: int, clients: int) -> None:
    checks.whole("rounds", rounds, 1)
    checks.whole("clients", clients, 1)
    checks.whole("cohort", cohort, 1)
    if cohort > clients:
        raise UsageError(f"cohort = {cohort} of {clients} clients.", f"Give at most {clients}.")
    if not 0 < delta < 1:
        raise UsageError(f"delta = {delta} lies outside (0, 1).", "Give a small number, well below 1 / clients.")


def _gaussian_delta(epsilon: Any, mu: Any) -> np.ndarray:
    """Delta of the Gaussian mechanism whose sensitivity is ``mu`` deviations: Balle and Wang 2018, Theorem 8."""
    return np.exp(log_ndtr(mu / 2 - epsilon / mu)) - np.exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu))


def _round_delta(epsilon: np.ndarray, mu: float, share: float) -> np.ndarray:
    """Delta of one round with a secret cohort, for any sign of epsilon."""
    away = np.abs(epsilon)
    inner = away + np.log1p(-(1 - share) * np.exp(-away)) - math.log(share)
    positive = share * np.maximum(_gaussian_delta(inner, mu), 0)
    return np.where(epsilon >= 0, positive, -np.expm1(-away) + np.exp(-away) * positive)


def _smallest(delta_of: Callable[[float], float], delta: float) -> float:
    """The smallest epsilon with at most this delta."""
    if delta_of(0.0) <= delta:
        return 0.0
    high = 1.0
    while delta_of(high) > delta:
        high *= 2
    return float(brentq(lambda epsilon: delta_of(epsilon) - delta, 0, high, xtol=1e-9, rtol=1e-12))


TAIL = 1e-3
"""The part of delta that may come from cutting off the privacy loss."""
POINTS = 20_000
"""Of the grid on which one round's privacy loss lies, on either side of 0."""
FINEST = 1e-5


def _amplified(mu: float, share: float, rounds: int, delta: float) -> float:
    try:
        from dp_accounting.pld import pld_pmf, privacy_loss_distribution
    except ImportError as missing:
        raise UsageError(
            "Accounting for the privacy of cohorts needs the package dp-accounting, which is not installed.",
            "Install headstart[privacy].",
        ) from missing
    largest = _smallest(lambda epsilon: float(_round_delta(np.asarray(epsilon), mu, share)), TAIL * delta / rounds)
    interval = max(FINEST, largest / POINTS)
    end = math.ceil(largest / interval) + 1
    deltas = _round_delta(np.arange(-end, end + 1) * interval, mu, share)
    one = pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(interval, -end, end, deltas)
    composed = privacy_loss_distribution.PrivacyLossDistribution(one).self_compose(rounds, TAIL * delta)
    return float(composed.get_epsilon_for_delta(delta))
