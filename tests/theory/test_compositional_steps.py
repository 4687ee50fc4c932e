"""Gao's lemmas against expectations that are sums, simulated clients, and counterexamples to what is printed."""

import itertools
import math

import numpy as np
import pytest

from headstart.errors import UsageError
from headstart.theory.compositional import CompositionConstants, CompositionRun
from headstart.theory.compositional_steps import (
    consensus_of_gradients,
    consensus_of_memories,
    consensus_of_models,
    memory_error_after,
    momentum_error_after,
    printed_momentum_error_after,
)

JACOBIAN, JACOBIAN_NOISE, INNER_NOISE, OUTER_NOISE = 1.5, 0.5, 0.4, 0.3
"""``g(x; xi) = (a + s xi) x + r xi`` and ``grad f(u; zeta) = sin u + q zeta`` with ``xi, zeta = +-1``."""


def inner(x, xi):
    return (JACOBIAN + JACOBIAN_NOISE * xi) * x + INNER_NOISE * xi


def gradient(x):
    return JACOBIAN * np.sin(JACOBIAN * x)


def constants(largest_x):
    return CompositionConstants(
        outer_smoothness=1.0,
        inner_smoothness=0.0,
        outer_gradient=math.sqrt(1 + OUTER_NOISE**2),
        inner_jacobian=JACOBIAN + JACOBIAN_NOISE,
        outer_noise=OUTER_NOISE,
        jacobian_noise=JACOBIAN_NOISE,
        inner_noise=JACOBIAN_NOISE * largest_x + INNER_NOISE,
    )


def run(scale=0.5, outer_lr=0.2, momentum=0.8, averaging=0.9, local_steps=1, iterations=1, clients=1):
    return CompositionRun(scale, outer_lr, momentum, averaging, local_steps, iterations, clients)


def stepped(settings, x, m, u):
    """All outcomes of one iteration: the new memories and gradient averages, each as likely as any other."""
    now = x - settings.outer_lr * settings.scale * m
    gamma, alpha = settings.averaging * settings.scale, settings.momentum * settings.scale
    for xi, zeta in itertools.product((-1, 1), repeat=2):
        new = (1 - gamma) * u + gamma * inner(now, xi)
        z = (JACOBIAN + JACOBIAN_NOISE * xi) * (np.sin(new) + OUTER_NOISE * zeta)
        yield now, new, (1 - alpha) * m + alpha * z


STATES = [(x, m, u) for x in (-1.0, 0.3, 2.0) for m in (-2.0, 0.1, 1.5) for u in (-3.0, 0.0, 1.0)]


@pytest.mark.parametrize("momentum", [0.2, 0.8, 1.9])
@pytest.mark.parametrize("averaging", [0.2, 0.9, 1.9])
def test_one_iteration_stays_within_lemmas_4_1_and_4_2(momentum, averaging):
    settings = run(momentum=momentum, averaging=averaging)
    for x, m, u in STATES:
        outcomes = list(stepped(settings, x, m, u))
        known = constants(abs(outcomes[0][0]))
        memory = np.mean([(new - JACOBIAN * now) ** 2 for now, new, _ in outcomes])
        assert memory <= memory_error_after(known, settings, (u - JACOBIAN * x) ** 2, m**2) * (1 + 1e-12)
        error = np.mean([(after - gradient(now)) ** 2 for now, _, after in outcomes])
        assert error <= momentum_error_after(known, settings, (m - gradient(x)) ** 2, memory, m**2) * (1 + 1e-12)


def test_lemma_4_1_is_false_as_printed():
    """Without noise, ``g(x) = 3 x`` and ``f(u) = u^2 / 2``: the gradient moves by ``9 beta eta m``."""
    known = CompositionConstants(1.0, 0.0, 100.0, 3.0, 0.0, 0.0, 0.0)
    settings = run(scale=1.0, outer_lr=0.01, momentum=0.5, averaging=0.999)
    x = 1.0
    m = 9 * x
    now = x - settings.outer_lr * m
    u = 0.001 * 3 * x + 0.999 * 3 * now
    after = 0.5 * m + 0.5 * 3 * u
    error, memory = (after - 9 * now) ** 2, (u - 3 * now) ** 2
    assert error > printed_momentum_error_after(known, settings, 0.0, memory, m**2)
    assert error <= momentum_error_after(known, settings, 0.0, memory, m**2)


def test_at_an_averaging_lemma_4_2_does_not_hold_for_a_client():
    """A client whose memory is exact goes on from the mean of two, which is not."""
    known = CompositionConstants(1.0, 0.0, 1.0, 2.0, 0.0, 0.0, 0.0)
    settings = run(scale=1.0, averaging=0.1)
    # g = 2 x and g = -2 x at x = 1, no noise, no movement; memories 2 and -2 are exact, and their mean is 0.
    mean = 0.0
    after = (0.9 * mean + 0.1 * 2.0 - 2.0) ** 2
    assert memory_error_after(known, settings, memory_error=0.0, squared_momentum=0.0) == 0.0
    assert after > 3


@pytest.fixture(scope="module")
def equal_clients():
    """Four equal clients of 3 rounds of 4 iterations, run many times: mean squares of what is apart, by iteration."""
    rng = np.random.default_rng(0)
    settings = run(scale=1.0, outer_lr=0.003, momentum=0.5, averaging=0.5, local_steps=4, iterations=12, clients=4)
    shape = (4000, settings.clients)
    x, u, m = np.full(shape, 0.8), np.full(shape, JACOBIAN * 0.8), np.zeros(shape)
    apart = {"x": [], "u": [], "z": []}

    def spread(values):
        return float(((values - values.mean(axis=1, keepdims=True)) ** 2).sum(axis=1).mean())

    largest = 0.0
    for t in range(settings.iterations):
        if t and t % settings.local_steps == 0:
            x, u, m = (np.broadcast_to(values.mean(axis=1, keepdims=True), shape).copy() for values in (x, u, m))
        xi, zeta = rng.choice([-1, 1], shape), rng.choice([-1, 1], shape)
        apart["x"].append(spread(x))
        apart["u"].append(spread(u))
        u = 0.5 * u + 0.5 * inner(x, xi)
        z = (JACOBIAN + JACOBIAN_NOISE * xi) * (np.sin(u) + OUTER_NOISE * zeta)
        apart["z"].append((spread(x), spread(u), spread(z)))
        m = 0.5 * m + 0.5 * z
        x = x - settings.outer_lr * m
        largest = max(largest, np.abs(x).max())
    return settings, constants(largest), apart


def test_equal_clients_stay_as_close_as_lemmas_a1_a2_and_4_3_say(equal_clients):
    settings, known, apart = equal_clients
    p = settings.local_steps
    for start in range(0, settings.iterations, p):
        found, models = sum(apart["u"][start : start + p]), sum(apart["x"][start : start + p])
        assert found <= consensus_of_memories(known, settings.clients, p, models)
    for models, memories, gradients in apart["z"]:
        assert gradients <= consensus_of_gradients(known, settings.clients, models, memories)
    assert 0 < sum(apart["x"]) <= consensus_of_models(known, settings)


def test_unlike_clients_are_apart_where_lemma_a1_says_that_they_are_not():
    known = CompositionConstants(1.0, 0.0, 1.0, 2.0, 0.0, 0.0, 0.0)
    # g = 2 x and g = -2 x at the same x = 1: one step of 0.5 takes memories that were equal 2 apart.
    memories = np.array([0.5 * 2.0, 0.5 * -2.0])
    assert ((memories - memories.mean()) ** 2).sum() > consensus_of_memories(known, 2, 1, model_consensus=0.0) == 0.0


def test_lemma_4_3_needs_few_local_steps():
    with pytest.raises(UsageError, match=r"Lemma 4\.3 needs local_steps"):
        consensus_of_models(constants(1.0), run(scale=1.0, outer_lr=0.5, local_steps=10))
