"""Every bound of nu steps holds on 200 problems; the printed one that does not is shown to fail."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from headstart.algorithms import MetaFL
from headstart.core import Sides
from headstart.errors import UsageError
from headstart.theory import multi_step, per_fedavg
from headstart.theory.constants import Constants
from headstart.theory.stationarity import PROVED, EstimatorError, Schedule
from tests.theory.known import KnownProblem, random_problem
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

BEYOND = 1.5  # times 1/L: these bounds do not need alpha <= 1/L


def smoothness_of(case):
    return multi_step.meta_smoothness(case.problem.constants, case.inner_lr, case.steps)


def test_meta_losses_are_as_smooth_as_lemma_4_says():
    for case in cases(largest=BEYOND):
        assert steepness(case, case.steps) <= smoothness_of(case) * SLACK


def test_adaptation_is_as_exact_as_lemma_5_says():
    for case in cases(largest=BEYOND):
        allowed = multi_step.adaptation_error(case.problem.constants, case.inner_lr, case.steps, case.inner)
        for client in range(case.problem.clients):
            for w in case.points:
                measured = case.problem.drift(client, w, case.inner_lr, case.inner)
                assert all(np.array(measured) <= np.array(allowed) * SLACK)


def test_lemma_5_is_its_closed_form():
    c, alpha, sizes = random_problem(7).constants, 0.3, (2, 3, 5)
    stretch = alpha * c.smoothness
    kurtosis = [(c.gradient_fourth_moment + 3 * (d - 1) * c.gradient_noise**4) / d**3 for d in sizes]
    first = alpha * c.gradient_noise * sum((1 + stretch) ** j / sizes[2 - j] ** 0.5 for j in range(3))
    a, b = 2 + 2 * stretch**2, 8 + 64 * stretch**4
    second = (alpha * c.gradient_noise) ** 2 * (a**2 / sizes[0] + 2 * sum(a ** (2 - j) / sizes[j] for j in (1, 2)))
    fourth = alpha**4 * (b**2 * kurtosis[0] + 64 * sum(b ** (2 - j) * kurtosis[j] for j in (1, 2)))
    np.testing.assert_allclose(multi_step.adaptation_error(c, alpha, 3, sizes), (first, second, fourth))


PLAIN = Constants(
    smoothness=2.0,
    hessian_lipschitz=3.0,
    gradient_bound=5.0,
    gradient_noise=0.7,
    hessian_noise=1.1,
    gradient_dissimilarity=0.4,
    hessian_dissimilarity=0.6,
    gradient_fourth_moment=1.3,
    hessian_fourth_moment=1.9,
)
ALPHA, GROWTH = 0.25, 1.5  # alpha and 1 + alpha L


def test_lemma_4_solves_its_recursion():
    """(63) from (60)."""
    factor = ALPHA * 3
    for steps in range(1, 5):
        expected = 2 * GROWTH ** (2 * steps) + 5 * factor
        assert multi_step.meta_smoothness(PLAIN, ALPHA, steps) == pytest.approx(expected)
        factor = GROWTH * (factor + ALPHA * 3 * GROWTH ** (2 * steps - 1))


def test_lemma_6_for_two_steps_written_out():
    inner, curvature, outer = (2, 3), (4, 5), 6
    (h1, v1, k1), (h2, v2, k2) = (multi_step.adaptation_error(PLAIN, ALPHA, steps, inner[:steps]) for steps in (1, 2))
    moment_4, moment_5 = ((1.9 + 3 * (size - 1) * 1.1**4) / size**3 for size in curvature)
    second = 2 * (ALPHA**2 * 1.1**2 / 4) * (GROWTH + ALPHA * 1.1 / 5**0.5) ** 2
    second += 2 * ALPHA**2 * GROWTH**2 * (1.1**2 / 5 + 9 * v1)
    fourth = 64 * ALPHA**4 * moment_4 * (GROWTH**4 + ALPHA**4 * moment_5)
    fourth += 64 * ALPHA**4 * GROWTH**4 * (81 * k1 + moment_5)
    np.testing.assert_allclose(multi_step.curvature_error(PLAIN, ALPHA, 2, inner, curvature), (second, fourth))
    square = 0.7**2 / 6 + 4 * v2
    bias = GROWTH**2 * (0.7 / 6**0.5 + 2 * h2) + 5 * ALPHA * 3 * GROWTH * h1 + (second * square) ** 0.5
    mean_squared_error = 3 * GROWTH**4 * square + 3 * 25 * second
    mean_squared_error += 6 * (2 * fourth * ((1.3 + 15 * 0.7**4) / 6**3 + 16 * k2)) ** 0.5
    np.testing.assert_allclose(
        multi_step.estimator_error(PLAIN, ALPHA, 2, inner, outer, curvature), (bias, mean_squared_error)
    )


def test_lemmas_10_and_11_for_two_steps_written_out():
    inner, curvature, outer, delta = (2, 3), (4, 5), 6, 0.1
    (h1, v1, _), (h2, v2, _) = (multi_step.adaptation_error(PLAIN, ALPHA, steps, inner[:steps]) for steps in (1, 2))
    first, second = 0.7 / 6**0.5 + 2 * h2, 0.7**2 / 6 + 4 * v2
    missing = 5 * (GROWTH**2 + 1)
    expected = first + missing, 2 * second + 2 * missing**2
    np.testing.assert_allclose(multi_step.first_order_error(PLAIN, ALPHA, 2, inner, outer), expected)
    first = GROWTH * first + ALPHA / delta * (0.7 / 5**0.5 + 2 * h1)
    first = GROWTH * first + ALPHA / delta * 0.7 / 4**0.5
    second = 3 * second * 1.25 + 1.5 * ALPHA**2 / delta**2 * (0.7**2 / 5 + 8 * v1)
    second = 3 * second * 1.25 + 1.5 * ALPHA**2 / delta**2 * 0.7**2 / 4
    once = ALPHA * 3 * delta * 25
    twice = GROWTH * once + once * GROWTH**2  # (159)
    expected = first + twice, 2 * second + 2 * twice**2
    np.testing.assert_allclose(multi_step.hessian_free_error(PLAIN, ALPHA, 2, delta, inner, outer, curvature), expected)


def test_printed_lemma_7_solves_its_recursion():
    """(138) from (135)."""
    hessian = (ALPHA * 0.6) ** 2
    for steps in range(1, 5):
        expected = 15 * 25 * hessian + 6 * 0.4**2 * GROWTH ** (2 * steps) * 1.25
        assert multi_step.printed_meta_dissimilarity(PLAIN, ALPHA, steps) ** 2 == pytest.approx(expected)
        hessian = 2 * ALPHA**2 * GROWTH ** (2 * steps) * 0.6**2 + 2 * GROWTH**2 * hessian


def test_estimates_are_as_good_as_lemma_6_says():
    for case in cases(largest=BEYOND):
        error = multi_step.estimator_error(
            case.problem.constants, case.inner_lr, case.steps, case.inner, case.outer, case.curvature
        )
        assert_within(worst_error(case, "exact"), error)


def test_first_order_estimates_are_as_good_as_lemma_10_says():
    for case in cases(largest=BEYOND):
        error = multi_step.first_order_error(case.problem.constants, case.inner_lr, case.steps, case.inner, case.outer)
        assert_within(worst_error(case, "first-order"), error)


def test_hessian_free_estimates_are_as_good_as_lemma_11_says():
    for case in cases(largest=BEYOND):
        small = case._replace(inner=(1,) * case.steps, points=case.points[:1])  # the enumeration grows with the sizes
        error = multi_step.hessian_free_error(
            case.problem.constants, case.inner_lr, case.steps, case.radius, small.inner, case.outer, case.curvature
        )
        assert_within(worst_error(small, "hessian-free"), error)


def test_meta_gradients_are_as_alike_as_lemma_7_corrected_says():
    for case in cases(largest=BEYOND):
        allowed = multi_step.meta_dissimilarity(case.problem.constants, case.inner_lr, case.steps)
        assert spread(case, case.steps) <= allowed * SLACK


def test_printed_lemma_7_holds_for_one_step():
    for case in cases(steps=1, largest=BEYOND):
        allowed = multi_step.printed_meta_dissimilarity(case.problem.constants, case.inner_lr, 1)
        assert spread(case, 1) <= allowed * SLACK


@pytest.mark.parametrize("steps", [2, 3])
def test_printed_lemma_7_fails_for_more(steps):
    """``f_i(w) = cos(w_0) + cos(w_1) + ... + b_i w_1`` near 0 with ``alpha = 1/L``; the corrected bound is attained."""
    slope = np.zeros((2, 3))
    slope[:, 1] = 1e-6, -1e-6
    nothing = np.zeros(2)
    problem = KnownProblem(np.ones(3), np.eye(3), np.ones((2, 3), complex), slope, nothing, nothing)
    constants = problem.constants
    assert (constants.smoothness, constants.hessian_dissimilarity) == (1, 0)
    gradients = problem.meta_gradients(np.zeros(3), 1.0, steps)
    measured = np.sqrt(((gradients - gradients.mean(0)) ** 2).sum(-1).mean())
    assert measured == pytest.approx(4**steps * constants.gradient_dissimilarity)
    assert measured > 1.1 * multi_step.printed_meta_dissimilarity(constants, 1.0, steps)
    without_bending = Constants(**{**vars(constants), "hessian_lipschitz": 0.0})
    assert multi_step.meta_dissimilarity(without_bending, 1.0, steps) == pytest.approx(measured)


@pytest.mark.parametrize("at_minimum", [False, True])
@pytest.mark.parametrize("group", range(4))
def test_gradients_are_as_small_as_theorem_8_says(group, at_minimum):
    steps, local_steps, rounds, cohort = [(2, 1, 20, 4), (3, 3, 10, 4), (2, 4, 10, 1), (3, 5, 8, 2)][group]
    for measured, case, outer_lr, gap in simulated(
        group, steps, local_steps, rounds, cohort, smoothness_of, at_minimum
    ):
        constants, inner_lr = case.problem.constants, case.inner_lr
        error = multi_step.estimator_error(constants, inner_lr, steps, *[SIMULATED_BATCH] * 3)
        schedule = Schedule(outer_lr, local_steps, rounds)
        bound = multi_step.average_gradient_bound(
            constants, inner_lr, steps, error, schedule, case.problem.clients, cohort, gap, SUPPORTED
        )
        assert measured <= bound.total


def test_printed_theorem_8_differs_where_it_says():
    constants, error = random_problem(1).constants, EstimatorError(1.0, 2.0)
    inner_lr = 0.5 / constants.smoothness
    schedule = Schedule(0.01 / multi_step.meta_smoothness(constants, inner_lr, 2), 5, 10)
    arguments = (constants, inner_lr, 2, error, schedule, 10, 3, 1.0, 1.0)
    right, printed = (
        multi_step.average_gradient_bound(*arguments),
        multi_step.printed_average_gradient_bound(*arguments),
    )
    assert (right.start, right.noise, right.bias) == (printed.start, printed.noise, printed.bias)
    corrected = multi_step.meta_dissimilarity(constants, inner_lr, 2)
    ratio = (corrected / multi_step.printed_meta_dissimilarity(constants, inner_lr, 2)) ** 2
    assert right.drift == pytest.approx(ratio * printed.drift)
    assert right.sampling == pytest.approx(5 * ratio * printed.sampling)


def test_printed_theorem_8_fails_in_a_run():
    """Two clients ``(w -+ 1)^2 / 2``, one a round, no noise, from the minimum: it settles above the bound."""
    tau, rounds, runs, step = 400, 5000, 32, 1.25e-6
    algorithm = MetaFL(inner_steps=2, inner_lr=0.0, outer_lr=step, local_steps=tau, batch_size=1)
    targets = jnp.asarray(np.random.default_rng(0).choice([-1.0, 1.0], (runs, rounds)))

    class Client(NamedTuple):
        target: Array

        def sample(self, key, size):
            return self.target[None]

        def episode(self, key):
            return Sides(self, self)

    def loss(w, batch):
        return jnp.mean((w - batch) ** 2) / 2

    def one_round(w, target):
        server = algorithm.init_server(w)
        down = algorithm.broadcast(server, jax.random.key(0))
        done = algorithm.client_update(loss, down, algorithm.init_client(w), Client(target), jax.random.key(0))
        return algorithm.server_update(server, done.up).params, w

    _, models = jax.jit(jax.vmap(lambda drawn: jax.lax.scan(one_round, jnp.zeros(()), drawn)))(targets)
    measured = float(jnp.mean(models[:, rounds // 2 :] ** 2))  # grad F(w) = w
    two = Constants(
        smoothness=1.0,
        hessian_lipschitz=0.0,
        gradient_bound=2.0,
        gradient_noise=0.0,
        hessian_noise=0.0,
        gradient_dissimilarity=1.0,
        hessian_dissimilarity=0.0,
    )
    arguments = (two, 0.0, 2, EstimatorError(0.0, 0.0), Schedule(step, tau, rounds), 2, 1, 0.0)
    assert measured > 1.3 * multi_step.printed_average_gradient_bound(*arguments, PROVED).total
    assert measured <= multi_step.average_gradient_bound(*arguments, PROVED).total


def test_one_step_at_the_largest_step_size_is_as_smooth_as_per_fedavg():
    for seed in range(20):
        constants = random_problem(seed).constants
        largest = 1 / constants.smoothness
        one = multi_step.meta_smoothness(constants, largest, 1)
        assert one == pytest.approx(per_fedavg.meta_smoothness(constants, largest))
        half = multi_step.meta_smoothness(constants, largest / 2, 1)
        assert half < per_fedavg.meta_smoothness(constants, largest / 2)


def test_how_else_one_step_compares_with_per_fedavg():
    for case in cases(steps=1, count=50):
        c, alpha = case.problem.constants, case.inner_lr
        sizes = (case.inner[0], case.outer, case.curvature[0])
        apart = multi_step.adaptation_error(c, alpha, 1, sizes[0])
        assert 2 * c.smoothness * apart.first == pytest.approx(per_fedavg.estimator_error(c, alpha, *sizes).bias)
        assert multi_step.meta_dissimilarity(c, alpha, 1) <= per_fedavg.meta_dissimilarity(c, alpha)
        pairs = [
            (multi_step.first_order_error(c, alpha, 1, *sizes[:2]), per_fedavg.first_order_error(c, alpha, *sizes[:2])),
            (
                multi_step.hessian_free_error(c, alpha, 1, case.radius, *sizes),
                per_fedavg.hessian_free_error(c, alpha, case.radius, *sizes),
            ),
        ]
        for ours, theirs in pairs:
            assert ours.bias >= theirs.bias
        largest = 1 / c.smoothness
        ours, theirs = (
            multi_step.estimator_error(c, largest, 1, *sizes),
            per_fedavg.estimator_error(c, largest, *sizes),
        )
        still = Constants(**{**vars(c), "hessian_noise": 0.0, "hessian_fourth_moment": 0.0})
        assert ours.bias >= theirs.bias
        assert multi_step.estimator_error(still, largest, 1, *sizes).mean_squared_error == pytest.approx(
            per_fedavg.estimator_error(still, largest, *sizes).mean_squared_error
        )


def test_bias_falls_with_batches_as_remark_9_says():
    constants = random_problem(5).constants
    inner_lr = 0.01 / constants.smoothness
    at = [multi_step.estimator_error(constants, inner_lr, 3, d, d, d).bias ** 2 for d in (10**6, 10**8)]
    assert at[0] == pytest.approx(100 * at[1], rel=0.1)


def test_remark_9_reaches_its_accuracy():
    constants = random_problem(5).constants
    inner_lr = 0.1 / constants.smoothness
    error = multi_step.estimator_error(constants, inner_lr, 2, 10, 10, 10)
    small = (0.01 / multi_step.meta_smoothness(constants, inner_lr, 2)) ** 2

    def above_floor(accuracy):
        schedule = multi_step.schedule_for(constants, inner_lr, 2, accuracy)
        bound = multi_step.average_gradient_bound(constants, inner_lr, 2, error, schedule, 4, 4, 1.0)
        return bound.total - bound.bias

    assert above_floor(small / 100) == pytest.approx(above_floor(small) / 100, rel=0.2)
    with pytest.raises(UsageError, match="Remark 9 needs outer_lr"):
        multi_step.schedule_for(constants, inner_lr, 2, 100.0)


def test_mistakes_are_named():
    constants = random_problem(0).constants
    with pytest.raises(UsageError, match="steps = 0"):
        multi_step.meta_smoothness(constants, 0.1, 0)
    with pytest.raises(UsageError, match="inner_lr = -1"):
        multi_step.meta_dissimilarity(constants, -1.0, 1)
    with pytest.raises(UsageError, match="inner_batch has 2 sizes for 3 inner steps"):
        multi_step.adaptation_error(constants, 0.1, 3, (1, 2))
    with pytest.raises(UsageError, match="curvature_batch = 0"):
        multi_step.estimator_error(constants, 0.1, 2, 1, 1, (1, 0))
    with pytest.raises(UsageError, match="radius"):
        multi_step.hessian_free_error(constants, 0.1, 1, -1.0, 1, 1, 1)
    bare = Constants(**{**vars(constants), "gradient_fourth_moment": None})
    with pytest.raises(UsageError, match="Lemma 6 needs the fourth moments"):
        multi_step.estimator_error(bare, 0.1, 1, 1, 1, 1)
    assert np.isfinite(multi_step.first_order_error(bare, 0.1, 2, 1, 1)).all()
