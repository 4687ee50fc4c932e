"""The lemmas, Theorem 7 and the corollaries of LocalMOML (Wang, Yuan, Ying and Yang, 2023), one function each.

Every round, ``B`` of ``n`` clients take ``H`` local steps from ``w_r`` with batches S_1 (``inner_batch``, adapts), S_2
(``curvature_batch``, Hessian) and S_3 (``outer_batch``, gradient). *Across devices* a round restarts every memory from
``K_0`` samples (``memory_batch``); *across silos* all clients take part and keep their memories
(``memory_batch=None``), which begin with the adapted model of the first visit. ``beta = 1`` is Per-FedAvg.

Theorem 7 as printed is false, and its proof has gaps (see ``printed_average_gradient_bound``). The bounds here are the
paper's argument with those repaired: same terms, same orders, other constants. ``docs/theory.md`` has the steps.
"""

import math
from typing import NamedTuple

from headstart.core.checks import any_whole, at_least, in_unit_interval, positive
from headstart.errors import UsageError
from headstart.theory.conditions import at_most, check_cohort, check_inner_lr
from headstart.theory.constants import Constants
from headstart.theory.memory import MemoryBound, TrackingError, meta_dissimilarity, meta_smoothness
from headstart.theory.search import fewest

__all__ = [
    "LocalPlan",
    "LocalRun",
    "PrintedConstants",
    "average_gradient_bound",
    "cross_device_plan",
    "cross_silo_plan",
    "drift",
    "gradient_noise",
    "largest_outer_lr",
    "printed_average_gradient_bound",
    "printed_constants",
    "printed_largest_outer_lr",
    "rounds_for",
    "tracking_error",
]


class LocalRun(NamedTuple):
    """What a run of LocalMOML is set to."""

    outer_lr: float
    """``eta``."""
    averaging: float
    """``beta``; 1 is Per-FedAvg."""
    local_steps: int
    """``H``."""
    rounds: int
    """``R``."""
    clients: int
    """``n``."""
    cohort: int
    """``B``."""
    inner_batch: int
    """``|S_1|``."""
    curvature_batch: int
    """``|S_2|``."""
    outer_batch: int
    """``|S_3|``."""
    memory_batch: int | None
    """``K_0 = |S_0|``, or None where memories are kept from round to round."""

    @property
    def samples(self) -> int:
        """The samples of all clients and rounds together."""
        step = self.inner_batch + self.curvature_batch + self.outer_batch
        return self.rounds * self.cohort * (self.local_steps * step + (self.memory_batch or 0))


class LocalPlan(NamedTuple):
    """A run that Theorem 7 lets reach the accuracy, and the bound it has."""

    run: LocalRun
    bound: MemoryBound


class PrintedConstants(NamedTuple):
    """``C_1 .. C_5`` of Theorem 7 as printed."""

    c1: float
    c2: float
    c3: float
    c4: float
    c5: float


def _check(constants: Constants, inner_lr: float, run: LocalRun, needed_by: str) -> None:
    check_inner_lr(constants, inner_lr, needed_by)
    positive("outer_lr", run.outer_lr)
    in_unit_interval("averaging", run.averaging)
    any_whole("local_steps", run.local_steps, 1)
    any_whole("rounds", run.rounds, 1)
    check_cohort(run.clients, run.cohort)
    for name in ("inner_batch", "curvature_batch", "outer_batch"):
        any_whole(name, getattr(run, name), 1)
    if run.memory_batch is not None:
        any_whole("memory_batch", run.memory_batch, 1)
    elif run.cohort < run.clients:
        raise UsageError(
            f"{needed_by} has memories kept from round to round only where all clients take part, and "
            f"cohort = {run.cohort} of clients = {run.clients}.",
            "Set memory_batch, so that every round restarts the memories, or let all clients take part.",
        )


def gradient_noise(constants: Constants, inner_lr: float, curvature_batch: int, outer_batch: int) -> float:
    """Lemma 19: ``sigma-hat^2``, the variance of a stochastic meta-gradient at a given memory.

    ``2 sigma_G^2/|S_3| + (2 alpha^2 sigma_G^2/|S_3|)(sigma_H^2/|S_2| + L^2) + alpha^2 G^2 sigma_H^2/|S_2|``. S_1 has no
    part in it: its noise is in the memory.
    """
    at_least("inner_lr", inner_lr, 0)
    any_whole("curvature_batch", curvature_batch, 1)
    any_whole("outer_batch", outer_batch, 1)
    gradient = constants.gradient_noise**2 / outer_batch
    hessian = constants.hessian_noise**2 / curvature_batch
    return (
        2 * gradient
        + 2 * inner_lr**2 * gradient * (hessian + constants.smoothness**2)
        + inner_lr**2 * constants.gradient_bound**2 * hessian
    )


def _noise(constants: Constants, inner_lr: float, run: LocalRun) -> float:
    return gradient_noise(constants, inner_lr, run.curvature_batch, run.outer_batch)


def _absent(clients: int, cohort: int) -> float:
    """``(n - B) / (n - 1)`` of Lemma 9; no client sits out where there is one."""
    return 0.0 if cohort == clients else (clients - cohort) / (clients - 1)


def largest_outer_lr(
    constants: Constants, inner_lr: float, averaging: float, local_steps: int, keeps_memory: bool
) -> float:
    """The largest ``eta`` of ``average_gradient_bound``.

    ``1/(16 H L_F)``, for ``beta < 1`` also ``beta/(32 L)``; where memories are kept ``beta/(384 L)`` and
    ``sqrt(beta/H)/(384 L)`` instead. The paper's ``C_4/H`` and ``C_5 beta`` have this shape.
    """
    in_unit_interval("averaging", averaging)
    any_whole("local_steps", local_steps, 1)
    largest = 1 / (16 * local_steps * meta_smoothness(constants, inner_lr))
    if averaging == 1:
        return largest
    if not keeps_memory:
        return min(largest, averaging / (32 * constants.smoothness))
    follows = min(averaging, math.sqrt(averaging / local_steps))
    return min(largest, follows / (384 * constants.smoothness))


def _check_outer_lr(constants: Constants, inner_lr: float, run: LocalRun, needed_by: str) -> None:
    largest = largest_outer_lr(constants, inner_lr, run.averaging, run.local_steps, run.memory_batch is None)
    at_most("outer_lr", run.outer_lr, largest, "largest_outer_lr", needed_by)


def drift(
    constants: Constants,
    inner_lr: float,
    outer_lr: float,
    local_steps: int,
    noise: float,
    tracking: float,
    squared_gradient: float,
) -> float:
    """Lemma 20, corrected: bounds ``(1/nH) sum_i sum_h E ||w^i_{r,h} - w_r||^2``, how far local steps lead clients, by

    ``3 eta^2 H (H-1) (sigma-hat^2 + 4 gamma_F^2 + 4 ||grad F(w_r)||^2) + 52 eta^2 H^2 L^2 tracking``

    for ``eta <= 1/(sqrt(8) H L_F)``. ``noise`` is ``sigma-hat^2``, ``tracking`` the round's average of ``E ||u^i_{r,h}
    - v_i(w^i_{r,h})||^2``. The paper, with ``32 eta^2 H^2 L^2`` before ``tracking`` and larger coefficients before the
    rest, bounds ``||a + b||^2`` by ``||a||^2 + ||b||^2`` where it bounds the local gradient: a factor 2 is missing.
    """
    at_least("outer_lr", outer_lr, 0)
    any_whole("local_steps", local_steps, 1)
    largest = 1 / (math.sqrt(8) * local_steps * meta_smoothness(constants, inner_lr))
    at_most("outer_lr", outer_lr, largest, "1/(sqrt(8) H L_F)", "Lemma 20")
    spread = noise + 4 * meta_dissimilarity(constants, inner_lr) ** 2 + 4 * squared_gradient
    length = (outer_lr * local_steps) ** 2
    return 3 * outer_lr**2 * local_steps * (local_steps - 1) * spread + 52 * length * constants.smoothness**2 * tracking


def tracking_error(constants: Constants, inner_lr: float, run: LocalRun, squared_gradient: float) -> TrackingError:
    """Lemma 21, corrected: bounds ``(1/nHR) sum E ||u^i_{r,h} - v_i(w^i_{r,h})||^2``, how far memories are off.

    With ``S = sigma-hat^2 + 4 gamma_F^2 + 4 squared_gradient``, where ``squared_gradient`` is the average over rounds
    of ``E ||grad F(w_r)||^2``, and for ``beta < 1``:

    - across devices ``1.2 alpha^2 sigma_G^2 (1/(beta H K_0) + beta/K) + 5 (eta/beta)^2 S``,
    - across silos ``2.46 alpha^2 sigma_G^2/(beta H R K) + 4.92 beta alpha^2 sigma_G^2/K
      + (318 (eta/beta)^2 + 260 eta^2 H/beta) S``.

    For ``beta = 1`` it is ``alpha^2 sigma_G^2 / K``. Printed is ``S_0`` for ``K_0``, and ``sigma_G^2`` without
    ``alpha^2`` in the first term. The proof takes a round's last local model for the next round's first. They differ by
    the averaging, which a kept memory has to make good for: that is the new term with ``H``. Of the order of the drift,
    it changes no rate.
    """
    _check(constants, inner_lr, run, "Lemma 21")
    _check_outer_lr(constants, inner_lr, run, "Lemma 21")
    noise = (inner_lr * constants.gradient_noise) ** 2
    if run.averaging == 1:
        return TrackingError(start=0.0, lag=0.0, noise=noise / run.inner_batch)
    spread = _noise(constants, inner_lr, run) + 4 * meta_dissimilarity(constants, inner_lr) ** 2 + 4 * squared_gradient
    follows = (run.outer_lr / run.averaging) ** 2
    if run.memory_batch is not None:
        return TrackingError(
            start=1.2 * noise / (run.averaging * run.local_steps * run.memory_batch),
            lag=5 * follows * spread,
            noise=1.2 * noise * run.averaging / run.inner_batch,
        )
    jump = run.outer_lr**2 * run.local_steps / run.averaging
    return TrackingError(
        start=2.46 * noise / (run.averaging * run.local_steps * run.rounds * run.inner_batch),
        lag=(318 * follows + 260 * jump) * spread,
        noise=4.92 * noise * run.averaging / run.inner_batch,
    )


def average_gradient_bound(constants: Constants, inner_lr: float, initial_gap: float, run: LocalRun) -> MemoryBound:
    """Theorem 7, corrected: bounds ``(1/R) sum_r E ||grad F(w_r)||^2`` for ``eta <= largest_outer_lr`` by

    - ``start``: ``5 (F(w_1) - inf F) / (eta H R)``,
    - ``noise``: ``5 eta L_F sigma-hat^2 / B``,
    - ``sampling``: ``10 eta H L_F gamma_F^2 (n-B) / (B (n-1))``,
    - ``drift``: ``19 (eta L_F)^2 H (H-1) (sigma-hat^2 + 4 gamma_F^2)``,
    - the three terms of ``tracking_error`` without gradients, times ``26.5 L^2``.

    The paper's O(1) constants ``C_1``, ``C_3`` are replaced by powers of ``L`` and ``L_F``, without which the sides of
    its inequality have different units. ``F(w_1)`` there is read as ``F(w_1) - inf F``, ``S_0`` as ``K_0``.
    """
    at_least("initial_gap", initial_gap, 0)
    _check(constants, inner_lr, run, "Theorem 7")
    _check_outer_lr(constants, inner_lr, run, "Theorem 7")
    tracking = tracking_error(constants, inner_lr, run, squared_gradient=0.0)
    smoothness, noise = meta_smoothness(constants, inner_lr), _noise(constants, inner_lr, run)
    dissimilarity = meta_dissimilarity(constants, inner_lr) ** 2
    step, weight = run.outer_lr * smoothness, 26.5 * constants.smoothness**2
    return MemoryBound(
        start=5 * initial_gap / (run.outer_lr * run.local_steps * run.rounds),
        noise=5 * step * noise / run.cohort,
        sampling=10 * step * run.local_steps * dissimilarity * _absent(run.clients, run.cohort) / run.cohort,
        drift=19 * step**2 * run.local_steps * (run.local_steps - 1) * (noise + 4 * dissimilarity),
        memory_start=weight * tracking.start,
        memory_lag=weight * tracking.lag,
        memory_noise=weight * tracking.noise,
    )


def printed_constants(constants: Constants, inner_lr: float, clients: int, cohort: int) -> PrintedConstants:
    """``C_1 .. C_5`` as the proof of Theorem 7 defines them."""
    check_inner_lr(constants, inner_lr, "Theorem 7")
    smoothness, meta = constants.smoothness, meta_smoothness(constants, inner_lr)
    bend = 2 * (constants.gradient_bound * constants.hessian_lipschitz / smoothness) ** 2 + 16 * smoothness**2
    absent = _absent(clients, cohort) / cohort
    c1 = bend + 2 * meta + 2 * absent * meta
    c2 = 1 + absent + c1 / (4 * meta**2)
    c3 = 1 + smoothness**2 / (4 * meta) + smoothness**2 * c1 / (8 * meta**2)
    return PrintedConstants(c1, c2, c3, 1 / (4 * max(meta, 8 * c2)), 1 / (16 * max(smoothness, math.sqrt(96 * c3))))


def printed_largest_outer_lr(constants: Constants, inner_lr: float, run: LocalRun) -> float:
    """``min{C_4/H, C_5 beta}`` of Theorem 7, the second only for ``beta < 1``."""
    printed = printed_constants(constants, inner_lr, run.clients, run.cohort)
    largest = printed.c4 / run.local_steps
    return largest if run.averaging == 1 else min(largest, printed.c5 * run.averaging)


def printed_average_gradient_bound(
    constants: Constants, inner_lr: float, initial_gap: float, run: LocalRun
) -> MemoryBound:
    """Theorem 7 as printed, with ``F(w_1) - inf F`` for ``F(w_1)`` and ``K_0`` for ``S_0``; false where ``L`` is large.

    (25) drops ``L_F/2`` before ``E ||Delta w||^2``, so ``noise`` and ``sampling`` lack a factor ``L_F``: already SGD
    (``alpha = 0``, ``n = H = beta = 1``) on ``f(w) = L w^2/2`` settles at ``E ||grad f||^2 = eta L sigma^2/(2 - eta
    L)``, which is above the printed ``8 eta sigma^2`` from ``L = 16`` on. Further gaps, which constants cover: ``L^2``
    is missing before the tracking error in (24); (26) takes the noise of a round to be uncorrelated with the gradients
    after it; Lemmas 20 and 21 as told there.
    """
    _check(constants, inner_lr, run, "Theorem 7")
    printed = printed_constants(constants, inner_lr, run.clients, run.cohort)
    at_most(
        "outer_lr",
        run.outer_lr,
        printed_largest_outer_lr(constants, inner_lr, run),
        "min{C_4/H, C_5 beta}",
        "Theorem 7",
    )
    noise, dissimilarity = _noise(constants, inner_lr, run), meta_dissimilarity(constants, inner_lr) ** 2
    spread = noise + 2 * dissimilarity
    eta, beta, steps = run.outer_lr, run.averaging, run.local_steps
    many = run.rounds if run.memory_batch is None else run.memory_batch
    inner = constants.gradient_noise**2
    remembers = beta < 1
    return MemoryBound(
        start=4 * initial_gap / (eta * steps * run.rounds),
        noise=4 * eta * noise / run.cohort,
        sampling=16 * eta * steps * dissimilarity * _absent(run.clients, run.cohort) / run.cohort,
        drift=32 * eta**2 * steps * (steps - 1) * printed.c1 * spread,
        memory_start=64 * printed.c3 * inner / (beta * steps * many) if remembers else 0.0,
        memory_lag=3072 * printed.c3 * (eta / beta) ** 2 * spread if remembers else 0.0,
        memory_noise=64 * printed.c3 * beta * inner_lr**2 * inner / run.inner_batch,
    )


def rounds_for(constants: Constants, inner_lr: float, initial_gap: float, run: LocalRun, accuracy: float) -> int:
    """Theorem 7: the fewest rounds with which ``run``, its own rounds aside, has a bound of ``accuracy^2``.

    Where no number of rounds is enough, the error names the term that stands in the way.
    """
    positive("accuracy", accuracy)
    endless = average_gradient_bound(constants, inner_lr, initial_gap, run._replace(rounds=10**15))
    floor = endless._replace(start=0.0)
    if floor.total >= accuracy**2:
        raise UsageError(
            f"No number of rounds brings the bound of Theorem 7 to accuracy^2 = {accuracy**2:.6g}: without the start "
            f"it is {floor.total:.6g}, most of it {floor.dominant} = {max(floor):.6g}.",
            "Lower outer_lr for noise, sampling, drift or memory_lag, averaging for memory_noise; more samples for "
            "memory_start.",
        )

    def reaches(rounds: int) -> bool:
        bound = average_gradient_bound(constants, inner_lr, initial_gap, run._replace(rounds=rounds))
        return bound.total <= accuracy**2

    return fewest(reaches, accuracy, "Theorem 7")


def _planned(constants: Constants, inner_lr: float, initial_gap: float, accuracy: float, run: LocalRun) -> LocalPlan:
    """The run with the largest ``eta`` that leaves every term its share, and with the rounds it then needs."""
    unit = average_gradient_bound(constants, inner_lr, initial_gap, run)
    share = accuracy**2 / len(unit)
    linear, square = max(unit.noise, unit.sampling), max(unit.drift, unit.memory_lag)
    slower = min(1.0, share / linear if linear else 1.0, math.sqrt(share / square) if square else 1.0)
    run = run._replace(outer_lr=slower * run.outer_lr)
    run = run._replace(rounds=rounds_for(constants, inner_lr, initial_gap, run, accuracy))
    return LocalPlan(run, average_gradient_bound(constants, inner_lr, initial_gap, run))


def _averaging_for(constants: Constants, inner_lr: float, accuracy: float, batch: int, coefficient: float) -> float:
    """``beta = O(eps^2)`` that leaves the memories' noise a share of the bound; 1 where no memory is needed."""
    positive("accuracy", accuracy)
    any_whole("batch", batch, 1)
    noise = coefficient * (constants.smoothness * inner_lr * constants.gradient_noise) ** 2 / batch
    share = accuracy**2 / len(MemoryBound._fields)
    return 1.0 if noise <= share else share / noise


def cross_device_plan(
    constants: Constants,
    inner_lr: float,
    initial_gap: float,
    accuracy: float,
    clients: int,
    cohort: int,
    batch: int = 1,
) -> LocalPlan:
    """Corollary 1: a run of LocalMOML with restarted memories whose bound promises ``E ||grad F||^2 <= accuracy^2``.

    ``beta = O(eps^2)``, ``eta = O(eps^4)``, ``H = K_0 = O(eps^-2)`` and so ``R = O(eps^-4)`` and ``T = R H =
    O(eps^-6)`` local steps, with the constants of the corrected Theorem 7, each of its terms within a seventh of
    ``eps^2``. ``H`` is ``sqrt(K)/beta``, the fewest steps over which ``K_0 = H`` samples at their beginning are enough.
    Where the accuracy needs no memory, ``beta = H = 1``.
    """
    beta = _averaging_for(constants, inner_lr, accuracy, batch, 26.5 * 1.2)
    steps = 1 if beta == 1 else math.ceil(math.sqrt(batch) / beta)
    run = LocalRun(
        outer_lr=largest_outer_lr(constants, inner_lr, beta, steps, keeps_memory=False),
        averaging=beta,
        local_steps=steps,
        rounds=1,
        clients=clients,
        cohort=cohort,
        inner_batch=batch,
        curvature_batch=batch,
        outer_batch=batch,
        memory_batch=steps,
    )
    return _planned(constants, inner_lr, initial_gap, accuracy, run)


def cross_silo_plan(
    constants: Constants, inner_lr: float, initial_gap: float, accuracy: float, clients: int, batch: int = 1
) -> LocalPlan:
    """Corollary 2: a run of LocalMOML with kept memories whose bound promises ``E ||grad F||^2 <= accuracy^2``.

    ``beta = O(eps^2)``, ``eta = O(eps^3)``, ``H = O(eps^-2)`` and so ``R = O(eps^-3)`` and ``T = R H = O(eps^-5)``
    local steps, with the constants of the corrected Theorem 7 and ``H = 1/beta``.
    """
    beta = _averaging_for(constants, inner_lr, accuracy, batch, 26.5 * 4.92)
    steps = 1 if beta == 1 else math.ceil(1 / beta)
    run = LocalRun(
        outer_lr=largest_outer_lr(constants, inner_lr, beta, steps, keeps_memory=True),
        averaging=beta,
        local_steps=steps,
        rounds=1,
        clients=clients,
        cohort=clients,
        inner_batch=batch,
        curvature_batch=batch,
        outer_batch=batch,
        memory_batch=None,
    )
    return _planned(constants, inner_lr, initial_gap, accuracy, run)
