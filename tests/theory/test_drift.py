"""Clients' drift against exact recursions and simulated rounds."""

import math

import numpy as np
import pytest

from headstart.errors import UsageError
from headstart.theory import Constants, EstimatorError, Schedule, per_fedavg
from headstart.theory.drift import client_drift, short_round_drift

CENTERS = np.array([-2.0, 0.5, 1.5])
STEEP = 2.0
GAMMA = STEEP * math.sqrt(np.mean((CENTERS - CENTERS.mean()) ** 2))


def simulated(outer_lr, steps, noise, runs=20_000):
    """Mean distance and square of it, of clients with the losses ``L (w - c_i)^2 / 2`` and noise of their own."""
    rng = np.random.default_rng(0)
    w = np.zeros((runs, len(CENTERS)))
    for _ in range(steps):
        w = w - outer_lr * (STEEP * (w - CENTERS) + noise * rng.normal(size=w.shape))
    apart = np.abs(w - w.mean(axis=1, keepdims=True))
    return apart.mean(), (apart**2).mean()


@pytest.mark.parametrize("noise", [0.0, 1.0, 5.0])
@pytest.mark.parametrize(("outer_lr", "steps"), [(0.005, 1), (0.005, 10), (0.05, 4), (0.3, 3)])
def test_simulated_rounds_stay_below_proposition_f1(noise, outer_lr, steps):
    distance, squared = simulated(outer_lr, steps, noise)
    bound = client_drift(STEEP, noise, GAMMA, outer_lr, steps)
    assert 0 < distance <= bound.distance
    assert 0 < squared <= bound.squared


@pytest.mark.parametrize("steps", [1, 3, 5])
def test_corollary_f2_follows_from_the_proposition(steps):
    tau = 5
    outer_lr = 1 / (10 * tau * STEEP)
    long, short = (
        client_drift(STEEP, 1.0, 0.7, outer_lr, steps),
        short_round_drift(STEEP, 1.0, 0.7, outer_lr, steps, tau),
    )
    assert long.distance <= short.distance
    assert long.squared <= short.squared


def test_the_best_split_is_no_worse_than_any_other():
    best = client_drift(1.0, 1.0, 1.0, 0.05, 8).squared
    assert all(
        best <= client_drift(1.0, 1.0, 1.0, 0.05, 8, split=phi).squared * (1 + 1e-9) for phi in (0.01, 0.1, 1, 5)
    )


def test_one_step_has_a_closed_form():
    """After one step models differ by ``beta (grad F_i - grad F)`` and noise."""
    found = client_drift(STEEP, 0.0, GAMMA, 0.01, 1)
    assert found.distance == pytest.approx(2 * 0.01 * GAMMA)
    assert client_drift(STEEP, 1.0, GAMMA, 0.01, 0) == (0.0, 0.0)


def test_a_step_that_is_too_large_is_refused_with_the_largest():
    with pytest.raises(UsageError, match=r"1/\(10 tau L_F\) = 0\.01"):
        short_round_drift(2.0, 1.0, 1.0, 0.02, 5, 5)


CONSTANTS = Constants(
    smoothness=1.0,
    hessian_lipschitz=0.5,
    gradient_bound=2.0,
    gradient_noise=1.0,
    hessian_noise=0.3,
    gradient_dissimilarity=0.2,
    hessian_dissimilarity=0.1,
)


@pytest.mark.parametrize("cohort", [1, 5, 10])
@pytest.mark.parametrize("tau", [1, 4, 20])
def test_the_first_versions_theorem_is_weaker_than_the_corrected_one(cohort, tau):
    error = per_fedavg.estimator_error(CONSTANTS, 0.1, 10, 10, 10)
    schedule = Schedule(1 / (10 * tau * per_fedavg.meta_smoothness(CONSTANTS, 0.1)), tau, 100)
    first = per_fedavg.first_version_average_gradient_bound(CONSTANTS, 0.1, error, schedule, 3.0)
    x = 0.1 / tau
    share = (1 - cohort / 10) / (cohort / 10 * 9)
    gamma = per_fedavg.meta_dissimilarity(CONSTANTS, 0.1) ** 2
    sigma = error.mean_squared_error
    corrected = 16 * x * sigma + 6 * x**2 * tau * (tau - 1) * (sigma + gamma) + 15 * x * tau * share * gamma
    start = 4 * 3.0 / (schedule.outer_lr * tau * 100)
    assert first == pytest.approx(start + 60 * (sigma + gamma))
    assert corrected + 5 * error.bias**2 <= first - start


def test_the_first_versions_theorem_needs_its_step_size():
    with pytest.raises(UsageError, match="first version"):
        per_fedavg.first_version_average_gradient_bound(
            CONSTANTS, 0.1, EstimatorError(0.1, 0.1), Schedule(1.0, 4, 10), 1.0
        )


def test_automatic_curvature_stays_within_its_error():
    """On ``c (1 - cos w) + b w`` with random ``c`` and ``b`` all constants are known, and expectations are sums."""
    samples = [(0.6, 0.3), (0.6, -0.3), (1.0, 0.3), (1.0, -0.3)]
    steep, noise_b, noise_c = 0.8, 0.3, 0.2
    alpha = 0.9

    def gradient(w, c, b):
        return c * math.sin(w) + b

    def mean(w):
        return steep * math.sin(w)

    constants = Constants(
        smoothness=1.0,
        hessian_lipschitz=1.0,
        gradient_bound=steep,
        gradient_noise=math.hypot(noise_b, noise_c),
        hessian_noise=noise_c,
        gradient_dissimilarity=0.0,
        hessian_dissimilarity=0.0,
    )
    bound = per_fedavg.automatic_error(constants, alpha, 1, 1)
    worst_bias = worst_square = 0.0
    for w in np.linspace(-3, 3, 61):
        exact = (1 - alpha * steep * math.cos(w)) * mean(w - alpha * mean(w))
        values = [
            (1 - alpha * c * math.cos(w)) * gradient(w - alpha * gradient(w, c, b), *other)
            for c, b in samples
            for other in samples
        ]
        worst_bias = max(worst_bias, abs(np.mean(values) - exact))
        worst_square = max(worst_square, np.mean((np.array(values) - exact) ** 2))
    assert 0.05 * bound.bias < worst_bias <= bound.bias
    assert 0.1 * bound.mean_squared_error < worst_square <= bound.mean_squared_error
