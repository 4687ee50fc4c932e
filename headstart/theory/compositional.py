"""Local-SCGDM (Gao, Li and Huang, 2022): Lemma 3.9, Theorem 3.4 and Corollary 3.5, one function each.

Client ``k`` has ``F^k(x) = f^k(g^k(x))``; for meta-learning ``g^k(x) = x - lambda grad L^k(x)`` and ``f^k = L^k``. All
``K`` clients take part. The model moves by ``beta eta``, the memory ``u`` of ``g`` by ``gamma eta`` and the gradient's
average ``m`` by ``alpha eta``; every ``p`` iterations the server averages all three.

The paper's proof takes clients to be *equal*, which it does not say: (31) and (38) let ``g^k`` and ``grad F^k`` be
those of any other client. Theorem 3.4 has no term for unlike clients, and is false for them: a server that averages
memories of different ``g^k`` hands every client a wrong one, and the method settles away from any stationary point.
``average_gradient_bound`` is for any clients and has that floor; ``printed_average_gradient_bound`` is Theorem 3.4.
"""

import math
from typing import NamedTuple

from headstart.core.checks import any_whole, at_least, positive
from headstart.errors import UsageError
from headstart.theory import per_fedavg
from headstart.theory.conditions import at_most
from headstart.theory.constants import Constants
from headstart.theory.search import fewest

__all__ = [
    "CompositionBound",
    "CompositionConstants",
    "CompositionRun",
    "average_gradient_bound",
    "iterations_for",
    "largest_local_steps",
    "largest_outer_lr",
    "meta_composition",
    "printed_average_gradient_bound",
    "printed_inner_second_moment",
    "printed_largest_local_steps",
    "printed_largest_outer_lr",
    "schedule_for",
]


class CompositionConstants(NamedTuple):
    """The constants of Assumptions 3.1-3.3, none of them squared, and two of unlike clients that the paper has not."""

    outer_smoothness: float
    """``L_f``: ``grad f`` is Lipschitz with it."""
    inner_smoothness: float
    """``L_g``: the Jacobian of ``g`` is Lipschitz with it."""
    outer_gradient: float
    """``C_f``: ``E ||grad f(y; zeta)||^2 <= C_f^2``."""
    inner_jacobian: float
    """``C_g``: ``E ||grad g(x; xi)||^2 <= C_g^2``."""
    outer_noise: float
    """``sigma_f`` of ``grad f(y; zeta)``."""
    jacobian_noise: float
    """``sigma_g`` of ``grad g(x; xi)``."""
    inner_noise: float
    """``delta_g`` of ``g(x; xi)``."""
    inner_dissimilarity: float = 0.0
    """``(1/K) sum_k ||g^k - mean g||^2`` is at most its square."""
    gradient_dissimilarity: float = 0.0
    """``(1/K) sum_k ||grad F^k - grad F||^2`` is at most its square."""

    @property
    def smoothness(self) -> float:
        """``L_F = C_g^2 L_f + C_f L_g``, of every ``F^k``."""
        return self.inner_jacobian**2 * self.outer_smoothness + self.outer_gradient * self.inner_smoothness

    @property
    def memory_weight(self) -> float:
        """``C_g^2 L_f^2``: what an error of the memory, squared, does to the gradient."""
        return (self.inner_jacobian * self.outer_smoothness) ** 2

    @property
    def gradient_noise(self) -> float:
        """``C_g^2 sigma_f^2 + C_f^2 sigma_g^2``, the variance of ``z`` at an exact memory."""
        return (self.inner_jacobian * self.outer_noise) ** 2 + (self.outer_gradient * self.jacobian_noise) ** 2


class CompositionRun(NamedTuple):
    """What a run of Local-SCGDM is set to."""

    scale: float
    """``eta``."""
    outer_lr: float
    """``beta``; the model moves by ``beta eta``."""
    momentum: float
    """``alpha``; the gradient's average moves by ``alpha eta``."""
    averaging: float
    """``gamma``; the memory moves by ``gamma eta``."""
    local_steps: int
    """``p``."""
    iterations: int
    """``T``."""
    clients: int
    """``K``."""


class CompositionBound(NamedTuple):
    """A bound on ``(1/T) sum_t E ||grad F(x-bar_t)||^2`` in its separate terms; ``total`` is the bound."""

    start: float
    """What is left of the distance to the best value."""
    momentum_start: float
    """Of the gradient average's first value."""
    memory_start: float
    """Of the memory's first value."""
    noise: float
    """Of noise in the gradient's average: falls with ``alpha eta``."""
    memory_noise: float
    """Of noise in the memory: falls with ``gamma eta``."""
    drift: float
    """Of several local steps: falls with ``(p beta eta)^2``."""
    memory_dissimilarity: float
    """Of memories averaged over unlike clients: the floor."""

    @property
    def total(self) -> float:
        return sum(self)

    @property
    def dominant(self) -> str:
        """The name of the largest term."""
        return max(zip(self, self._fields, strict=True))[1]


def printed_inner_second_moment(constants: Constants, inner_lr: float, batch: int = 1) -> float:
    """``C_g^2 = (1 + lambda L_1)^2 + lambda^2 sigma_2^2`` as Lemma 3.9 prints it.

    It bounds ``E ||grad g(x; xi)^T y||^2`` for unit vectors ``y`` that do not depend on ``xi``, but not the second
    moment of the spectral norm, for which (21) would need ``E ||A + N||^2 = ||A||^2 + E ||N||^2``. Take ``hess L = -L_1
    I`` and noise ``diag(s, -s)`` with ``s = +-sigma_2``: ``||I - lambda hess L(x; xi)||`` is always ``1 + lambda (L_1 +
    sigma_2)``.
    """
    at_least("inner_lr", inner_lr, 0)
    any_whole("batch", batch, 1)
    return (1 + inner_lr * constants.smoothness) ** 2 + inner_lr**2 * constants.hessian_noise**2 / batch


def meta_composition(constants: Constants, inner_lr: float, batch: int = 1) -> CompositionConstants:
    """Lemma 3.9, corrected: the constants of ``g(x) = x - lambda grad L(x)`` and ``f = L`` from those of ``L``.

    ``L_f = L_1``, ``L_g = lambda L_2``, ``C_f^2 = sigma_1^2 + G^2``, ``sigma_f = sigma_1``, ``sigma_g = lambda
    sigma_2``, ``delta_g = lambda sigma_1`` and ``C_g = 1 + lambda (L_1 + sigma_2)``, which Minkowski's inequality gives
    for the spectral norm (see ``printed_inner_second_moment``). ``batch`` samples are in each draw; for matrices noise
    does not fall with ``sqrt(batch)`` in the spectral norm, so ``C_g`` does not use it, while ``sigma_g``, which only
    occurs times independent vectors, does. The clients' memories differ by ``lambda gamma_G``, and, for ``lambda <=
    1/L_1``, their meta-gradients by Per-FedAvg's Lemma 4.4. One task a client.
    """
    at_least("inner_lr", inner_lr, 0)
    any_whole("batch", batch, 1)
    noise = constants.gradient_noise / math.sqrt(batch)
    return CompositionConstants(
        outer_smoothness=constants.smoothness,
        inner_smoothness=inner_lr * constants.hessian_lipschitz,
        outer_gradient=math.hypot(noise, constants.gradient_bound),
        inner_jacobian=1 + inner_lr * (constants.smoothness + constants.hessian_noise),
        outer_noise=noise,
        jacobian_noise=inner_lr * constants.hessian_noise / math.sqrt(batch),
        inner_noise=inner_lr * noise,
        inner_dissimilarity=inner_lr * constants.gradient_dissimilarity,
        gradient_dissimilarity=per_fedavg.meta_dissimilarity(constants, inner_lr),
    )


def _check_composition(composition: CompositionConstants) -> None:
    positive("outer_smoothness", composition.outer_smoothness)
    positive("inner_jacobian", composition.inner_jacobian)
    for name, value in composition._asdict().items():
        at_least(name, value, 0)


def _check(run: CompositionRun, initial_gap: float, needed_by: str) -> None:
    at_least("initial_gap", initial_gap, 0)
    positive("scale", run.scale)
    positive("outer_lr", run.outer_lr)
    positive("momentum", run.momentum)
    positive("averaging", run.averaging)
    any_whole("local_steps", run.local_steps, 1)
    any_whole("iterations", run.iterations, 1)
    any_whole("clients", run.clients, 1)
    at_most("scale", run.scale, 1.0, "1", needed_by)
    for name, value in (("momentum * scale", run.momentum), ("averaging * scale", run.averaging)):
        at_most(name, value * run.scale, 1.0, "1", needed_by)


def largest_outer_lr(composition: CompositionConstants, momentum: float, averaging: float) -> float:
    """The largest ``beta`` of ``average_gradient_bound``: ``1/(L_F sqrt(6/alpha^2 + 82/gamma^2))``."""
    _check_composition(composition)
    positive("momentum", momentum)
    positive("averaging", averaging)
    return 1 / (composition.smoothness * math.sqrt(6 / momentum**2 + 82 / averaging**2))


def largest_local_steps(composition: CompositionConstants, outer_lr: float, scale: float) -> int:
    """The largest ``p`` of ``average_gradient_bound``: ``1/(16 L_F beta eta)``; 0 where ``beta eta`` is too large."""
    _check_composition(composition)
    positive("outer_lr", outer_lr)
    positive("scale", scale)
    return math.floor(1 / (16 * composition.smoothness * outer_lr * scale) * (1 + 1e-12))


def average_gradient_bound(
    composition: CompositionConstants, initial_gap: float, run: CompositionRun
) -> CompositionBound:
    """Theorem 3.4 for clients that may differ: bounds ``(1/T) sum_t E ||grad F(x-bar_t)||^2``.

    With ``c = C_g^2 L_f^2``, ``nu^2 = C_g^2 sigma_f^2 + C_f^2 sigma_g^2``, ``Gamma`` and ``Gamma_F`` the
    dissimilarities of ``g`` and ``grad F``, and ``q = p/T``, it is the sum of

    ``2 (F(x_0) - inf F)/(beta eta T)``, ``2 (nu^2/K + c delta_g^2)/(alpha eta T)``,
    ``7 c (9 delta_g^2 + 6 Gamma^2)/(gamma eta T)``, ``2 alpha eta nu^2/K``, ``63 c gamma eta delta_g^2``,
    ``700 (L_F p beta eta)^2 ((1+q)(nu^2 + Gamma_F^2) + q c delta_g^2)`` and ``126 c Gamma^2``,

    for ``beta <= largest_outer_lr``, ``p beta eta <= 1/(16 L_F)`` and ``eta``, ``alpha eta``, ``gamma eta`` at most 1.

    It follows the averages over clients, ``m-bar`` against ``grad F(x-bar)`` and ``u-bar`` against ``mean_k
    g^k(x-bar)``, which averaging leaves alone, and the distance of a client's own memory and model from them. The paper
    follows each client's own, which averaging changes. The Jacobian and the memory use the same draw ``xi``; so that
    ``E ||grad g(x; xi)||^2 ||u - g(x)||^2`` is at most ``C_g^2 E ||u - g(x)||^2``, as (25) has it, ``||grad g(x; xi)||
    <= C_g`` should hold for every ``xi``.
    """
    _check(run, initial_gap, "The bound")
    largest = largest_outer_lr(composition, run.momentum, run.averaging)
    at_most("outer_lr", run.outer_lr, largest, "1/(L_F sqrt(6/alpha^2 + 82/gamma^2))", "The bound")
    at_most(
        "local_steps",
        run.local_steps,
        1 / (16 * composition.smoothness * run.outer_lr * run.scale),
        "1/(16 L_F beta eta)",
        "The bound",
    )
    eta, length = run.scale, run.scale * run.iterations
    weight, noise, inner = composition.memory_weight, composition.gradient_noise, composition.inner_noise**2
    unlike, unlike_gradients = composition.inner_dissimilarity**2, composition.gradient_dissimilarity**2
    first = run.local_steps / run.iterations
    distance = (composition.smoothness * run.local_steps * run.outer_lr * eta) ** 2
    return CompositionBound(
        start=2 * initial_gap / (run.outer_lr * length),
        momentum_start=2 * (noise / run.clients + weight * inner) / (run.momentum * length),
        memory_start=7 * weight * (9 * inner + 6 * unlike) / (run.averaging * length),
        noise=2 * run.momentum * eta * noise / run.clients,
        memory_noise=63 * weight * run.averaging * eta * inner,
        drift=700 * distance * ((1 + first) * (noise + unlike_gradients) + first * weight * inner),
        memory_dissimilarity=126 * weight * unlike,
    )


def printed_largest_outer_lr(composition: CompositionConstants, momentum: float, averaging: float) -> float:
    """Theorem 3.4: ``beta <= sqrt((1/8) / (C_g^4 L_f^2/gamma^2 + C_g^4 L_f^2/gamma + L_F^2/alpha^2))``."""
    _check_composition(composition)
    positive("momentum", momentum)
    positive("averaging", averaging)
    memory = composition.inner_jacobian**4 * composition.outer_smoothness**2
    return math.sqrt(1 / (8 * (memory / averaging**2 + memory / averaging + (composition.smoothness / momentum) ** 2)))


def printed_largest_local_steps(composition: CompositionConstants, outer_lr: float, scale: float) -> int:
    """Theorem 3.4: ``p <= 1/(4 beta eta sqrt(6 C_f^2 L_g^2 + 16 C_g^4 L_f^2))``."""
    _check_composition(composition)
    positive("outer_lr", outer_lr)
    positive("scale", scale)
    jacobian = (composition.outer_gradient * composition.inner_smoothness) ** 2
    memory = composition.inner_jacobian**4 * composition.outer_smoothness**2
    return math.floor(1 / (4 * outer_lr * scale * math.sqrt(6 * jacobian + 16 * memory)) * (1 + 1e-12))


def printed_average_gradient_bound(
    composition: CompositionConstants, initial_gap: float, run: CompositionRun
) -> CompositionBound:
    """Theorem 3.4, for equal clients, with ``L_f`` for the ``L_g`` of its third term.

    ``2 (F(x_0) - F*)/(beta eta T) + 6 (nu^2 + c delta_g^2)/(alpha eta T) + 4 c delta_g^2/(gamma eta T)
    + 2 alpha eta nu^2 + 2 c gamma eta (1 + gamma eta) delta_g^2
    + 32 (L_F p beta eta)^2 (16 c delta_g^2 + C_g^2 sigma_f^2 + 3 C_f^2 sigma_g^2)``.

    (6), (42) and (45) have ``C_g^2 L_g^2 delta_g^2`` in the third term, but the potential (39) that it comes from has
    ``C_g^2 L_f^2``; for quadratic losses ``L_g`` would be zero. Unlike clients are refused. For equal ones the proof
    still has gaps: (25) takes the draw ``xi`` in ``u`` and in the Jacobian to be uncorrelated, and Lemmas 4.1 and 4.2
    do not look at the iterations in which the server averages. No violation was found in 200 random problems.
    """
    _check(run, initial_gap, "Theorem 3.4")
    if composition.inner_dissimilarity or composition.gradient_dissimilarity:
        raise UsageError(
            "Theorem 3.4 holds for equal clients only, and the constants say that clients differ.",
            "Use average_gradient_bound, or set inner_dissimilarity and gradient_dissimilarity to 0 if they do not.",
        )
    largest = printed_largest_outer_lr(composition, run.momentum, run.averaging)
    at_most("outer_lr", run.outer_lr, largest, "printed_largest_outer_lr", "Theorem 3.4")
    at_most(
        "scale",
        run.scale,
        1 / (2 * run.outer_lr * composition.smoothness),
        "1/(2 beta (C_g^2 L_f + C_f L_g))",
        "Theorem 3.4",
    )
    steps = printed_largest_local_steps(composition, run.outer_lr, run.scale)
    at_most("local_steps", run.local_steps, steps, "1/(4 beta eta sqrt(6 C_f^2 L_g^2 + 16 C_g^4 L_f^2))", "Theorem 3.4")
    eta, length = run.scale, run.scale * run.iterations
    weight, noise, inner = composition.memory_weight, composition.gradient_noise, composition.inner_noise**2
    jacobian = (composition.outer_gradient * composition.jacobian_noise) ** 2
    distance = (composition.smoothness * run.local_steps * run.outer_lr * eta) ** 2
    return CompositionBound(
        start=2 * initial_gap / (run.outer_lr * length),
        momentum_start=6 * (noise + weight * inner) / (run.momentum * length),
        memory_start=4 * weight * inner / (run.averaging * length),
        noise=2 * run.momentum * eta * noise,
        memory_noise=2 * weight * run.averaging * eta * (1 + run.averaging * eta) * inner,
        drift=32 * distance * (16 * weight * inner + noise + 2 * jacobian),
        memory_dissimilarity=0.0,
    )


def schedule_for(
    composition: CompositionConstants, iterations: int, clients: int, momentum: float = 1.0, averaging: float = 1.0
) -> CompositionRun:
    """Corollary 3.5: ``eta = T^(-1/2)`` and ``p = T^(1/4)``, with the largest ``beta`` of ``average_gradient_bound``.

    ``p`` is lowered to what the conditions allow, which matters for few iterations only. All terms but the floor then
    fall as ``T^(-1/2)``: ``T = O(eps^-4)`` and ``T/p = O(eps^-3)`` rounds (Remark 3.7).
    """
    any_whole("iterations", iterations, 1)
    scale = iterations**-0.5
    outer_lr = largest_outer_lr(composition, momentum, averaging)
    steps = min(math.floor(iterations**0.25 + 1e-9), largest_local_steps(composition, outer_lr, scale))
    if steps < 1:
        outer_lr = 1 / (16 * composition.smoothness * scale)
    return CompositionRun(scale, outer_lr, momentum, averaging, max(1, steps), iterations, clients)


def iterations_for(
    composition: CompositionConstants,
    initial_gap: float,
    accuracy: float,
    clients: int,
    momentum: float = 1.0,
    averaging: float = 1.0,
) -> int:
    """Corollary 3.5 and Remark 3.7: the fewest iterations whose ``schedule_for`` has a bound of ``accuracy^2``.

    Where clients are too unlike for any number, the error says so.
    """
    positive("accuracy", accuracy)
    floor = 126 * composition.memory_weight * composition.inner_dissimilarity**2
    if floor >= accuracy**2:
        raise UsageError(
            f"No number of iterations brings the bound to accuracy^2 = {accuracy**2:.6g}: averaging the memories of "
            f"unlike clients leaves memory_dissimilarity = {floor:.6g}.",
            "Lower inner_lr, or use LocalMOML, whose memories stay with the clients.",
        )

    def reaches(iterations: int) -> bool:
        run = schedule_for(composition, iterations, clients, momentum, averaging)
        return average_gradient_bound(composition, initial_gap, run).total <= accuracy**2

    return fewest(reaches, accuracy, "Corollary 3.5")
