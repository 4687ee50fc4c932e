"""How the errors of Local-SCGDM change from one iteration to the next: gao Lemmas 4.1-4.3, A.1 and A.2.

``m`` follows ``grad F``, ``u`` follows ``g``, and clients' ``x`` drift apart between two averagings. Each function
takes bounds on the errors before and returns one on the error after.

The printed lemmas have two gaps. The proof of Lemma 4.1 drops the product of two errors that see the same batch
``xi``, on which both ``u_(t+1)`` and the Jacobian are taken: with it the weight of the memory's error is
``2 alpha eta + (alpha eta)^2``, and ``||grad g(x; xi)|| <= C_g`` has to hold for every ``xi``. (It is also printed with
``L_f`` where its proof has ``L_F``, and so printed it is false.) And Lemmas 4.1 and 4.2 are stated for every client
and iteration, but at an averaging a client goes on from the *mean* ``x``, ``u`` and ``m`` and not from its own: they
hold between two averagings only. Lemmas A.1, A.2 and 4.3 need clients with the same ``g`` and ``f``.
``compositional.average_gradient_bound`` needs neither.
"""

from headstart.core.checks import any_whole, at_least
from headstart.theory.compositional import CompositionConstants, CompositionRun
from headstart.theory.conditions import at_most

__all__ = [
    "consensus_of_gradients",
    "consensus_of_memories",
    "consensus_of_models",
    "memory_error_after",
    "momentum_error_after",
    "printed_momentum_error_after",
]


def momentum_error_after(
    composition: CompositionConstants,
    run: CompositionRun,
    momentum_error: float,
    memory_error: float,
    squared_momentum: float,
) -> float:
    """Lemma 4.1, corrected: a bound on ``E ||m_(t+1) - grad F(x_t)||^2`` between two averagings.

    ``momentum_error`` is ``E ||m_t - grad F(x_(t-1))||^2``, ``memory_error`` is ``E ||u_(t+1) - g(x_t)||^2`` and
    ``squared_momentum`` is ``E ||m_t||^2``, with which ``x`` has moved.
    """
    _check(momentum_error, memory_error, squared_momentum)
    rate = run.momentum * run.scale
    return (
        (1 - rate) * momentum_error
        + (2 * rate + rate**2) * composition.memory_weight * memory_error
        + 2 * run.scale * (run.outer_lr * composition.smoothness) ** 2 / run.momentum * squared_momentum
        + 2 * rate**2 * composition.gradient_noise
    )


def printed_momentum_error_after(
    composition: CompositionConstants,
    run: CompositionRun,
    momentum_error: float,
    memory_error: float,
    squared_momentum: float,
) -> float:
    """Lemma 4.1 as printed, (11): with ``L_f`` where its proof has ``L_F``, and so false where ``C_g`` is large."""
    _check(momentum_error, memory_error, squared_momentum)
    rate = run.momentum * run.scale
    return (
        (1 - rate) * momentum_error
        + 2 * rate * composition.memory_weight * memory_error
        + 2 * run.scale * (run.outer_lr * composition.outer_smoothness) ** 2 / run.momentum * squared_momentum
        + 2 * rate**2 * composition.gradient_noise
    )


def memory_error_after(
    composition: CompositionConstants, run: CompositionRun, memory_error: float, squared_momentum: float
) -> float:
    """Lemma 4.2, (12): a bound on ``E ||u_(t+1) - g(x_t)||^2`` between two averagings.

    ``memory_error`` is ``E ||u_t - g(x_(t-1))||^2`` and ``squared_momentum`` is ``E ||m_t||^2``.
    """
    _check(memory_error, squared_momentum)
    rate = run.averaging * run.scale
    moved = run.scale * (run.outer_lr * composition.inner_jacobian) ** 2 / run.averaging * squared_momentum
    return (1 - rate) * memory_error + moved + (rate * composition.inner_noise) ** 2


def consensus_of_memories(composition: CompositionConstants, clients: int, steps: int, model_consensus: float) -> float:
    """Lemma A.1, (27): ``sum_t sum_k E ||u_t^k - mean u_t||^2`` over ``steps`` iterations since an averaging.

    ``model_consensus`` is the same sum of ``||x_t^k - mean x_t||^2``. For equal clients.
    """
    _check(model_consensus)
    any_whole("clients", clients, 1)
    any_whole("steps", steps, 0)
    noise = 8 * steps * clients * composition.inner_noise**2
    return noise + 8 * composition.inner_jacobian**2 * model_consensus


def consensus_of_gradients(
    composition: CompositionConstants, clients: int, model_consensus: float, memory_consensus: float
) -> float:
    """Lemma A.2, (33): ``sum_k E ||z^k - mean z||^2`` of the gradients ``z``. For equal clients."""
    _check(model_consensus, memory_consensus)
    any_whole("clients", clients, 1)
    outer = composition.inner_jacobian * composition.outer_noise
    inner = composition.outer_gradient * composition.jacobian_noise
    return (
        48 * (composition.outer_gradient * composition.inner_smoothness) ** 2 * model_consensus
        + 16 * composition.memory_weight * memory_consensus
        + clients * (8 * outer**2 + 24 * inner**2)
    )


def consensus_of_models(composition: CompositionConstants, run: CompositionRun) -> float:
    """Lemma 4.3, (13): ``sum_t sum_k E ||x_t^k - mean x_t||^2`` over all ``T`` iterations. For equal clients.

    Needs ``p <= 1 / (4 beta eta sqrt(6 C_f^2 L_g^2 + 16 C_g^4 L_f^2))``.
    """
    step = run.outer_lr * run.scale
    steep = 6 * (composition.outer_gradient * composition.inner_smoothness) ** 2
    steep += 16 * composition.inner_jacobian**2 * composition.memory_weight
    if steep:
        formula = "1 / (4 beta eta sqrt(6 C_f^2 L_g^2 + 16 C_g^4 L_f^2))"
        at_most("local_steps", run.local_steps, 1 / (4 * step * steep**0.5), formula, "Lemma 4.3")
    outer = composition.inner_jacobian * composition.outer_noise
    inner = composition.outer_gradient * composition.jacobian_noise
    noise = 256 * composition.memory_weight * composition.inner_noise**2 + 16 * outer**2 + 48 * inner**2
    return run.iterations * run.clients * (run.local_steps * step) ** 2 * noise


def _check(*errors: float) -> None:
    for error in errors:
        at_least("an error", error, 0)
