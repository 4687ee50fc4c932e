"""MOML v2, whose gradients need no bound (Wang, Yuan, Ying and Yang, 2023): Lemmas 4, 8, 12, 15-17 and Theorem 5.

Steps follow the smoothness around the model: ``eta_t = eta_0 / L-hat(w_t)`` and ``beta_t = 6 L^2 eta_0^(-1/3)
eta_(t-1)``, with ``L-hat`` from tasks and samples of its own (``memory.lipschitz_at``). ``Constants.gradient_bound`` is
not used. All need ``alpha < (sqrt(2) - 1)/L``.

The constants ``C_1 .. C_11`` here are those of the paper's proofs with their slips corrected; each function says which.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from headstart.core.checks import any_whole, at_least, positive
from headstart.errors import UsageError
from headstart.theory.conditions import at_most, check_cohort
from headstart.theory.constants import Constants
from headstart.theory.memory import lipschitz_at

__all__ = [
    "GradientControl",
    "InverseLipschitz",
    "LipschitzBatches",
    "MomentBound",
    "Tracking",
    "UnboundedPlan",
    "decrease",
    "gradient_control",
    "gradient_second_moment",
    "inverse_lipschitz",
    "largest_scale",
    "lipschitz_batches",
    "plan",
    "refresh_variance",
    "tracking",
]


class GradientControl(NamedTuple):
    """``||grad L(w)|| <= from_meta ||grad F(w)|| + from_dissimilarity gamma_G``."""

    from_meta: float
    """``C_1``."""
    from_dissimilarity: float
    """``C_2``."""


class LipschitzBatches(NamedTuple):
    """The fewest tasks and samples with which Lemma 12 trusts ``L-hat``."""

    cohort: int
    samples: int


class InverseLipschitz(NamedTuple):
    """Bounds on the moments of ``1 / L-hat(w)``."""

    least: float
    """At most ``E[1/L-hat]``."""
    most: float
    """At least ``E[1/L-hat]``."""
    square: float
    """At least ``E[1/L-hat^2]``."""


class MomentBound(NamedTuple):
    """``tracking * error + gradient * ||grad F||^2 + noise`` bounds a second moment."""

    tracking: float
    gradient: float
    noise: float


class Tracking(NamedTuple):
    """How the memories' error goes on in Lemma 4.

    ``E Upsilon_{t+1} <= (1 - 3 L^2 s^(-1/3) E eta_t) E Upsilon_t + s^(1/3) E eta_t C_9 ||grad F||^2 + s^(4/3) C_10``,
    where ``s`` is ``eta_0`` and ``Upsilon_t`` the mean over tasks of ``||u^i_{t+1} - v_i(w_t)||^2``.
    """

    lag: float
    """``C_6``."""
    gradient: float
    """``C_9``."""
    noise: float
    """``C_10``."""


class UnboundedPlan(NamedTuple):
    """Steps and iterations of MOML v2 that reach the accuracy."""

    scale: float
    """``eta_0``."""
    iterations: int
    """``T``."""
    lipschitz: LipschitzBatches
    """The tasks and samples of each ``L-hat``."""


def gradient_control(constants: Constants, inner_lr: float) -> GradientControl:
    """Lemma 8: ``C_1 = 1/(1 - 2 x - x^2)`` and ``C_2 = (2 x + x^2) C_1`` with ``x = alpha L``.

    (8) prints ``||grad L||^2 <= C_1^2 ||grad F|| + C_2^2 gamma_G^2``. The proof's inequality is the one between norms,
    whose square has a factor 2 on the right: ``2 C_1^2 ||grad F||^2 + 2 C_2^2 gamma_G^2``. (9) bounds the mean of
    ``||grad L_i(v_i(w))||^2``, in which sense it is used; for ``||grad F_i||^2``, as printed, ``(1 + alpha L)^2`` has
    to be squared.
    """
    at_least("inner_lr", inner_lr, 0)
    x = inner_lr * constants.smoothness
    room = 1 - 2 * x - x**2
    if room <= 0:
        raise UsageError(
            f"Lemma 8 needs inner_lr < (sqrt(2) - 1)/L = {(math.sqrt(2) - 1) / constants.smoothness:.6g}, and inner_lr "
            f"is {inner_lr:.6g}.",
            "Lower inner_lr.",
        )
    return GradientControl(1 / room, (2 * x + x**2) / room)


def lipschitz_batches(constants: Constants, inner_lr: float, clients: int) -> LipschitzBatches:
    """Lemma 12: ``(n-1) B/(n-B) >= (8 rho alpha gamma_G / L)^2`` tasks and ``S >= (8 rho alpha sigma_G / L)^2``
    samples.
    """
    any_whole("clients", clients, 1)
    at_least("inner_lr", inner_lr, 0)
    bend = 8 * constants.hessian_lipschitz * inner_lr / constants.smoothness
    unlike = math.ceil((bend * constants.gradient_dissimilarity) ** 2)
    cohort = math.ceil(unlike * clients / (clients - 1 + unlike)) if clients > 1 else 1
    return LipschitzBatches(max(1, cohort), max(1, math.ceil((bend * constants.gradient_noise) ** 2)))


def inverse_lipschitz(
    constants: Constants, inner_lr: float, gradient_norms: Sequence[float], clients: int, cohort: int, samples: int
) -> InverseLipschitz:
    """Lemma 12: what ``1/L-hat(w)`` is on average, where ``gradient_norms`` are all tasks' ``||grad L_i(w)||``.

    ``4/(5 L(w)) <= E[1/L-hat] <= min{11/(8 L(w)), 1/(4 L)}`` and ``E[1/L-hat^2] <= 4/L(w)^2``. (13) has a stray
    ``eta_0`` and the chain ``11/(8 L(w)) <= 1/(4 L)``, which fails where ``L(w)`` is near ``4 L``; both bounds hold by
    themselves.
    """
    check_cohort(clients, cohort)
    needed = lipschitz_batches(constants, inner_lr, clients)
    if cohort < needed.cohort or samples < needed.samples:
        raise UsageError(
            f"Lemma 12 needs {needed.cohort} tasks and {needed.samples} samples of each, and L-hat has {cohort} and "
            f"{samples}.",
            "Draw more of them for L-hat, or lower inner_lr.",
        )
    at = lipschitz_at(constants, inner_lr, gradient_norms)
    return InverseLipschitz(4 / (5 * at), min(11 / (8 * at), 1 / (4 * constants.smoothness)), 4 / at**2)


def gradient_second_moment(constants: Constants, inner_lr: float, batch: int) -> MomentBound:
    """Lemma 15: ``E ||Delta-hat||^2 <= C_3 Upsilon + C_4 ||grad F||^2 + C_5``.

    With ``a = (1 + alpha L)^2 + alpha^2 sigma_H^2 / K``: ``C_3 = 2 L^2 a``, ``C_4 = 4 a (1 + alpha L)^2 C_1^2`` and
    ``C_5 = a (sigma_G^2/K + 2 (1 + alpha L)^2 (2 C_2^2 + 1) gamma_G^2)``. ``C_4`` is printed with ``C_1`` for
    ``C_1^2``.
    """
    any_whole("batch", batch, 1)
    control = gradient_control(constants, inner_lr)
    stretch = (1 + inner_lr * constants.smoothness) ** 2
    pullback = stretch + inner_lr**2 * constants.hessian_noise**2 / batch
    unlike = (2 * control.from_dissimilarity**2 + 1) * constants.gradient_dissimilarity**2
    return MomentBound(
        tracking=2 * constants.smoothness**2 * pullback,
        gradient=4 * pullback * stretch * control.from_meta**2,
        noise=pullback * (constants.gradient_noise**2 / batch + 2 * stretch * unlike),
    )


def refresh_variance(
    constants: Constants, inner_lr: float, participation: float, batch: int, squared_gradient: float
) -> float:
    """Lemma 16 at one model, corrected: bounds ``(1/n) E ||g-hat - g||^2``, the noise with which (v2) moves memories.

    ``C_p (2 C_1^2 ||grad F||^2 + (2 C_2^2 + 1) gamma_G^2) + (C_p + 1) sigma_G^2 / K`` with ``C_p = 1/p - 1``. (17) has
    ``2 C_p sigma_G^2/K``, which says that nothing is noisy where every task is drawn (``p = 1``). It also goes back to
    the model before, with ``L`` for ``L^2`` and without the factor 2 of ``||a + b||^2`` in Lemma 8.
    """
    any_whole("batch", batch, 1)
    positive("participation", participation)
    at_least("squared_gradient", squared_gradient, 0)
    control = gradient_control(constants, inner_lr)
    rare = 1 / participation - 1
    unlike = (2 * control.from_dissimilarity**2 + 1) * constants.gradient_dissimilarity**2
    return (
        rare * (2 * control.from_meta**2 * squared_gradient + unlike) + (rare + 1) * constants.gradient_noise**2 / batch
    )


def tracking(constants: Constants, inner_lr: float, participation: float, batch: int) -> Tracking:
    """Lemma 4, corrected, for ``eta_0 <= min{(2/(3 L))^(3/2), (3 L^2/(C_3 C_6))^(3/2)}``.

    ``C_6 = (4 (1 + alpha L)^2 + alpha^2 L^2 C_p)/(3 L^2)``, ``C_7 = 36 L^3 alpha^2 C_p C_1^2``, ``C_8 = 3 L^2 alpha^2
    (C_p (4 C_2^2 + 1) gamma_G^2 + (C_p + 1) sigma_G^2/K)``, ``C_9 = C_7 + C_4 C_6`` and ``C_10 = C_8 + C_5 C_6/(4 L)``.
    Printed: ``alpha^2 L C_p``, ``18``, ``2 C_2^2`` and ``2 C_p``, from Lemma 16. The lemma asks for ``(1/(3
    L))^(3/2)``, its proof for ``(2/(3 L))^(3/2)``, which is what ``beta_t <= 1`` takes.
    """
    control, moment = gradient_control(constants, inner_lr), gradient_second_moment(constants, inner_lr, batch)
    positive("participation", participation)
    rare, smoothness = 1 / participation - 1, constants.smoothness
    lag = (4 * (1 + inner_lr * smoothness) ** 2 + (inner_lr * smoothness) ** 2 * rare) / (3 * smoothness**2)
    gradient = 36 * smoothness**3 * inner_lr**2 * rare * control.from_meta**2
    unlike = rare * (4 * control.from_dissimilarity**2 + 1) * constants.gradient_dissimilarity**2
    noise = 3 * (smoothness * inner_lr) ** 2 * (unlike + (rare + 1) * constants.gradient_noise**2 / batch)
    return Tracking(lag, gradient + moment.gradient * lag, noise + moment.noise * lag / (4 * smoothness))


def largest_scale(constants: Constants, inner_lr: float, participation: float, batch: int) -> float:
    """The largest ``eta_0`` of Lemmas 4 and 17.

    ``min{(2/(3 L))^(3/2), (3 L^2/(C_3 C_6))^(3/2), 2 L^2/(5 C_3), 1/(8 C_9^(3/2)), 1/(20 C_4)}``.
    """
    moment = gradient_second_moment(constants, inner_lr, batch)
    memory = tracking(constants, inner_lr, participation, batch)
    return min(
        (2 / (3 * constants.smoothness)) ** 1.5,
        (3 * constants.smoothness**2 / (moment.tracking * memory.lag)) ** 1.5,
        2 * constants.smoothness**2 / (5 * moment.tracking),
        1 / (8 * memory.gradient**1.5),
        1 / (20 * moment.gradient),
    )


def decrease(
    constants: Constants,
    inner_lr: float,
    participation: float,
    batch: int,
    scale: float,
    lipschitz: float,
    squared_gradient: float,
) -> float:
    """Lemma 17, corrected: how much ``Phi_t = F(w_t) + eta_0^(1/3) Upsilon_t`` may grow on average, or must fall.

    ``-eta_0 ||grad F||^2 / (10 L(w)) + eta_0^2 C_5/(2 L) + eta_0^(5/3) C_10`` for ``eta_0 <= largest_scale``, with
    ``lipschitz`` for ``L(w)``. Printed is ``C_5/2``: (23) with Lemma 12 gives ``C_5/(2 L)``.
    """
    positive("scale", scale)
    positive("lipschitz", lipschitz)
    at_most("scale", scale, largest_scale(constants, inner_lr, participation, batch), "largest_scale", "Lemma 17")
    moment = gradient_second_moment(constants, inner_lr, batch).noise / (2 * constants.smoothness)
    memory = tracking(constants, inner_lr, participation, batch).noise
    return -scale * squared_gradient / (10 * lipschitz) + scale**2 * moment + scale ** (5 / 3) * memory


def plan(
    constants: Constants,
    inner_lr: float,
    initial_gap: float,
    initial_tracking: float,
    accuracy: float,
    clients: int,
    participation: float,
    batch: int = 1,
) -> UnboundedPlan:
    """Theorem 18, the detailed Theorem 5: iterations of which one has ``E ||grad F(w_t)|| <= accuracy``.

    ``T = 20 (a + b eps) Phi_0 / (eta_0 eps^2)`` with ``Phi_0 = initial_gap + eta_0^(1/3) initial_tracking``, ``eta_0 =
    O(eps^3)`` and so ``T = O(C_p eps^-5)``. ``initial_gap`` is ``F(w_0) - inf F``, ``initial_tracking`` is
    ``Upsilon_0``.

    Theorem 5 prints ``eta_0 = O(eps^-3)``; read ``eps^3``, as Theorem 18 has it. ``C_11`` is printed with ``C_9`` where
    the noise that it balances has ``C_10``, and ``C_5/2`` lacks ``1/L``. Theorem 18 takes the last step from another
    paper, with a ``sigma`` that is ``gamma_G`` here; instead, ``L(w) <= a + b ||grad F(w)||`` by Lemmas 8 and 10, with
    ``a = 4 L + 2 rho alpha (1 + C_2) gamma_G`` and ``b = 2 rho alpha C_1``, and ``y -> y^2/(a + b y)`` is convex.
    """
    at_least("initial_gap", initial_gap, 0)
    at_least("initial_tracking", initial_tracking, 0)
    positive("accuracy", accuracy)
    control = gradient_control(constants, inner_lr)
    moment = gradient_second_moment(constants, inner_lr, batch)
    memory = tracking(constants, inner_lr, participation, batch)
    bend = 2 * constants.hessian_lipschitz * inner_lr
    steepness = (
        4 * constants.smoothness
        + bend * (1 + control.from_dissimilarity) * constants.gradient_dissimilarity
        + bend * control.from_meta * accuracy
    )
    half = accuracy**2 / (40 * steepness)  # a decrease of twice half a step is left over for each noise term
    scale = largest_scale(constants, inner_lr, participation, batch)
    if moment.noise:
        scale = min(scale, 2 * constants.smoothness * half / moment.noise)
    if memory.noise:
        scale = min(scale, (half / memory.noise) ** 1.5)
    potential = initial_gap + scale ** (1 / 3) * initial_tracking
    iterations = max(1, math.ceil(potential / (2 * scale * half)))
    return UnboundedPlan(scale, iterations, lipschitz_batches(constants, inner_lr, clients))
