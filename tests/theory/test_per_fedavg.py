"""Every bound of Per-FedAvg holds on 200 problems whose bias, variance, smoothness and dissimilarity are known."""

import itertools

import numpy as np
import pytest

from headstart.errors import UsageError
from headstart.theory import per_fedavg
from headstart.theory.constants import Constants
from headstart.theory.stationarity import EstimatorError, Schedule
from tests.theory.known import random_problem
from tests.theory.sweep import (
    SIMULATED_BATCH,
    SLACK,
    SUPPORTED,
    assert_within,
    cases,
    simulated,
    spread,
    steepness,
    worst_error,
)


def test_meta_losses_are_as_smooth_as_lemma_4_2_says():
    for case in cases(steps=1):
        assert steepness(case, 1) <= per_fedavg.meta_smoothness(case.problem.constants, case.inner_lr) * SLACK


def test_estimates_are_as_good_as_lemma_4_3_says():
    for case in cases(steps=1):
        error = per_fedavg.estimator_error(
            case.problem.constants, case.inner_lr, case.inner[0], case.outer, case.curvature[0]
        )
        assert_within(worst_error(case, "exact"), error)


def test_lemma_4_3_is_its_factored_form():
    c = random_problem(3).constants
    alpha = 0.4 / c.smoothness
    gradient = c.gradient_bound**2 + c.gradient_noise**2 * (1 / 5 + 0.4**2 / 4)
    factored = 12 * gradient * (1 + c.hessian_noise**2 * alpha**2 / (4 * 6)) - 12 * c.gradient_bound**2
    np.testing.assert_allclose(per_fedavg.estimator_error(c, alpha, 4, 5, 6).mean_squared_error, factored)


def test_spectral_variances_of_a_batch_do_not_add_up():
    """(30b) fails for Hessian noise diag(+-1, +-1), while its products with a fixed vector behave."""
    signs = np.array(list(itertools.product([-1, 1], repeat=4))).reshape(-1, 2, 2)
    mean = signs.mean(1)  # of two samples' diagonals
    assert np.mean(np.max(np.abs(mean), axis=-1) ** 2) > 1 / 2
    assert np.mean(np.sum((mean * np.array([0.6, 0.8])) ** 2, axis=-1)) <= 1 / 2


def test_first_order_estimates_are_as_good_as_lemma_h_1_says():
    for case in cases(steps=1):
        error = per_fedavg.first_order_error(case.problem.constants, case.inner_lr, case.inner[0], case.outer)
        assert_within(worst_error(case, "first-order"), error)


def test_hessian_free_estimates_are_as_good_as_lemma_h_2_says():
    for case in cases(steps=1):
        error = per_fedavg.hessian_free_error(
            case.problem.constants, case.inner_lr, case.radius, case.inner[0], case.outer, case.curvature[0]
        )
        assert_within(worst_error(case, "hessian-free"), error)


def test_formulas_written_out():
    plain = Constants(
        smoothness=2.0,
        hessian_lipschitz=3.0,
        gradient_bound=5.0,
        gradient_noise=0.7,
        hessian_noise=1.1,
        gradient_dissimilarity=0.4,
        hessian_dissimilarity=0.6,
    )
    assert per_fedavg.meta_smoothness(plain, 0.25) == pytest.approx(8 + 0.25 * 3 * 5)
    assert per_fedavg.estimator_error(plain, 0.25, 4, 5, 6).bias == pytest.approx(2 * 0.25 * 2 * 0.7 / 2)
    first_order = 0.5 * (0.7 / 2 + 5), 2 * 0.49 * (1 / 5 + 0.25 / 4) + 2 * (0.5 * 5) ** 2
    assert per_fedavg.first_order_error(plain, 0.25, 4, 5) == pytest.approx(first_order)
    bias = 0.25 * (2 * 2 * 0.7 / 2 + 2 * 0.7 / 5**0.5 + 3 * 0.1 * 25)
    mean_squared_error = 6 * 0.49 * (0.5 / 4 + 2 / 5 + 0.25**2 / (2 * 0.01 * 6)) + 2 * (0.25 * 3 * 0.1) ** 2 * 5**4
    assert per_fedavg.hessian_free_error(plain, 0.25, 0.1, 4, 5, 6) == pytest.approx((bias, mean_squared_error))
    expected = 3 * 25 * 0.25**2 * 0.36 + 192 * 0.16
    assert per_fedavg.meta_dissimilarity(plain, 0.25) ** 2 == pytest.approx(expected)


def test_meta_gradients_are_as_alike_as_lemma_4_4_says():
    for case in cases(steps=1):
        assert spread(case, 1) <= per_fedavg.meta_dissimilarity(case.problem.constants, case.inner_lr) * SLACK


def test_special_cases_the_paper_names():
    quiet = Constants(
        smoothness=2.0,
        hessian_lipschitz=1.0,
        gradient_bound=3.0,
        gradient_noise=0.0,
        hessian_noise=0.0,
        gradient_dissimilarity=0.0,
        hessian_dissimilarity=0.0,
    )
    assert per_fedavg.estimator_error(quiet, 0.5, 1, 1, 1) == (0, 0)
    assert per_fedavg.meta_dissimilarity(quiet, 0.5) == 0
    noisy = random_problem(0).constants
    assert per_fedavg.estimator_error(noisy, 0.0, 1, 4, 1) == (0, pytest.approx(12 * noisy.gradient_noise**2 / 4))


def distributions(rng):
    """Five samples' features, and four clients that draw them with chances of their own."""
    problem = random_problem(int(rng.integers(1000)))
    features = rng.normal(size=(3, 5, problem.dimension))
    return problem, features, rng.dirichlet(np.full(5, 0.3), size=4)


def test_dissimilarity_is_at_most_what_total_variation_allows():
    rng = np.random.default_rng(0)
    for _ in range(200):
        problem, (cosine, sine, slope), chances = distributions(rng)
        amplitude, omega = np.hypot(cosine, sine), problem.frequency
        bound = np.linalg.norm(omega * amplitude + np.abs(slope), axis=-1).max()
        smoothness = (omega**2 * amplitude).max()
        distances = np.abs(chances - chances.mean(0)).sum(-1) / 2
        allowed = per_fedavg.dissimilarity_from_total_variation(bound, smoothness, distances)
        u = rng.uniform(-5, 5, (50, 1, problem.dimension))
        gradients = omega * (sine * np.cos(omega * u) - cosine * np.sin(omega * u)) + slope
        hessians = -(omega**2) * (cosine * np.cos(omega * u) + sine * np.sin(omega * u))
        assert_dissimilarity(chances, gradients, hessians, allowed)


def test_dissimilarity_is_at_most_what_wasserstein_allows():
    """Samples on a line, ``l(w; z) = sum_j cos(omega_j u_j - z)``: W_1 is the area between distribution functions."""
    rng = np.random.default_rng(1)
    for _ in range(200):
        problem, _, chances = distributions(rng)
        z, omega = np.sort(rng.uniform(-1, 1, 5)), problem.frequency
        ahead = np.cumsum(chances - chances.mean(0), axis=-1)[:, :-1]
        distances = np.abs(ahead) @ np.diff(z)
        allowed = per_fedavg.dissimilarity_from_wasserstein(np.linalg.norm(omega), (omega**2).max(), distances)
        phase = omega * rng.uniform(-5, 5, (50, 1, problem.dimension)) - z[:, None]
        assert_dissimilarity(chances, -omega * np.sin(phase), -(omega**2) * np.cos(phase), allowed)


def assert_dissimilarity(chances, gradients, hessians, allowed):
    """Clients are mixtures of samples: (points, samples, d) become (points, clients, d)."""
    gradients, hessians = chances @ gradients, chances @ hessians
    apart = ((gradients - gradients.mean(1, keepdims=True)) ** 2).sum(-1).mean(-1)
    bent = (np.abs(hessians - hessians.mean(1, keepdims=True)).max(-1) ** 2).mean(-1)
    assert apart.max() <= allowed.gradient**2 * SLACK
    assert bent.max() <= allowed.hessian**2 * SLACK


@pytest.mark.parametrize("at_minimum", [False, True])
@pytest.mark.parametrize("group", range(4))
def test_gradients_are_as_small_as_theorem_4_5_says(group, at_minimum):
    """A fourth of the problems with each setting; from a minimum, only noise, drift and bias have a say."""
    local_steps, rounds, cohort = [(1, 30, 4), (3, 20, 4), (4, 20, 1), (5, 20, 2)][group]
    for measured, case, outer_lr, gap in simulated(
        group, 1, local_steps, rounds, cohort, per_fedavg_smoothness, at_minimum
    ):
        problem = case.problem
        error = per_fedavg.estimator_error(problem.constants, case.inner_lr, *[SIMULATED_BATCH] * 3)
        schedule = Schedule(outer_lr, local_steps, rounds)
        bound = per_fedavg.average_gradient_bound(
            problem.constants, case.inner_lr, error, schedule, problem.clients, cohort, gap, SUPPORTED
        )
        assert measured <= bound.total


def per_fedavg_smoothness(case):
    return per_fedavg.meta_smoothness(case.problem.constants, case.inner_lr)


def settled(local_steps, step):
    """What ``E ||grad F||^2`` does not fall below, in the long run, for ``f = (w -+ 1)^2 / 2`` with one of both a
    round.

    A round is ``w -> q w +- (1 - q)`` with ``q = (1 - beta)^tau``, so ``E w^2`` settles at ``(1 - q)^2 / (1 - q^2)``
    at the rounds' start and is at least ``q^2`` of it within a round. Models stay in [-1, 1], where gradients are at
    most 2.
    """
    exponent = local_steps * np.log1p(-step / local_steps)
    return np.exp(2 * exponent) * -np.expm1(exponent) / (1 + np.exp(exponent))


@pytest.mark.parametrize("constant", [1.0, 2240.0])
def test_printed_theorem_4_5_fails_where_clients_sit_out(constant):
    """``alpha = 0``, ``L = gamma_G = 1``, no noise: no constant is large enough for many small local steps."""
    two = Constants(
        smoothness=1.0,
        hessian_lipschitz=0.0,
        gradient_bound=2.0,
        gradient_noise=0.0,
        hessian_noise=0.0,
        gradient_dissimilarity=1.0,
        hessian_dissimilarity=0.0,
    )
    step, local_steps = 1e-5 / constant, int(1e5 * constant)
    schedule = Schedule(step / local_steps, local_steps, rounds=10**21)
    arguments = (two, 0.0, EstimatorError(0.0, 0.0), schedule, 2, 1)
    assert settled(local_steps, step) > per_fedavg.printed_average_gradient_bound(*arguments, 1.0, constant).total
    assert settled(local_steps, step) <= per_fedavg.average_gradient_bound(*arguments, 1.0).total


def test_terms_of_theorem_4_5():
    constants = random_problem(2).constants
    smoothness = per_fedavg.meta_smoothness(constants, 0.0)
    error = per_fedavg.estimator_error(constants, 0.0, 1, 1, 1)
    schedule = Schedule(1 / (20 * smoothness), 1, 10)
    bound = per_fedavg.average_gradient_bound(constants, 0.0, error, schedule, 5, 2, 1e6, constant=3)
    assert bound.drift == bound.bias == 0
    assert bound.dominant == "start"
    assert bound.total == pytest.approx(bound.start + bound.noise + bound.sampling)
    assert bound.start == pytest.approx(4e6 / (schedule.outer_lr * 10))
    gamma = per_fedavg.meta_dissimilarity(constants, 0.0)
    assert bound.sampling == pytest.approx(3 / 20 * gamma**2 * (1 - 0.4) / (0.4 * 4))
    printed = per_fedavg.printed_average_gradient_bound(constants, 0.0, error, schedule, 5, 2, 1e6, constant=3)
    assert printed == bound  # with one local step


def test_corollary_4_6_reaches_its_accuracy():
    """Along its schedules Theorem 4.5 falls as fast as the accuracy, down to the floor of the bias."""
    constants = random_problem(5).constants
    inner_lr = 0.1 / constants.smoothness
    error = per_fedavg.estimator_error(constants, inner_lr, 10, 10, 10)

    def above_floor(accuracy, cohort):
        schedule = per_fedavg.schedule_for(constants, inner_lr, accuracy)
        bound = per_fedavg.average_gradient_bound(constants, inner_lr, error, schedule, 4, cohort, 1.0)
        return bound.total - bound.bias

    small = (0.01 / per_fedavg.meta_smoothness(constants, inner_lr)) ** 2
    assert above_floor(small / 100, 4) == pytest.approx(above_floor(small, 4) / 100, rel=0.2)
    assert above_floor(small / 100, 2) > above_floor(small, 2) / 20  # where clients sit out it falls with the root
    with pytest.raises(UsageError, match=r"Corollary 4\.6 needs outer_lr"):
        per_fedavg.schedule_for(constants, inner_lr, 100.0)


def test_conditions_are_named():
    constants = random_problem(0).constants
    too_large = 1.01 / constants.smoothness
    error = EstimatorError(0.0, 0.0)
    with pytest.raises(UsageError, match=r"Lemma 4\.2 needs inner_lr <= 1/L"):
        per_fedavg.meta_smoothness(constants, too_large)
    with pytest.raises(UsageError, match=r"Lemma 4\.3"):
        per_fedavg.estimator_error(constants, too_large, 1, 1, 1)
    with pytest.raises(UsageError, match="inner_batch = 0"):
        per_fedavg.estimator_error(constants, 0.0, 0, 1, 1)
    with pytest.raises(UsageError, match="radius"):
        per_fedavg.hessian_free_error(constants, 0.0, 0.0, 1, 1, 1)
    with pytest.raises(UsageError, match=r"Theorem 4\.5 needs outer_lr"):
        per_fedavg.average_gradient_bound(constants, 0.0, error, Schedule(1e9, 1, 1), 2, 2, 1.0)
    with pytest.raises(UsageError, match="cohort = 3"):
        per_fedavg.average_gradient_bound(constants, 0.0, error, Schedule(1e-9, 1, 1), 2, 3, 1.0)
    with pytest.raises(UsageError, match="no distances"):
        per_fedavg.dissimilarity_from_total_variation(1.0, 1.0, [])
    with pytest.raises(UsageError, match="distance = -1"):
        per_fedavg.dissimilarity_from_wasserstein(1.0, 1.0, [-1.0])
