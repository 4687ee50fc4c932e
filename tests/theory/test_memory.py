"""MOML v1: every bound holds on 200 problems with known constants; moments are exact, runs are averages over 8."""

import numpy as np
import pytest

from headstart.algorithms.moml_v2 import gradient_lipschitz
from headstart.errors import UsageError
from headstart.theory import memory
from headstart.theory.memory import Run
from tests.theory.known import random_problem
from tests.theory.memory_runs import ALL, Federation, moml, squared, starts
from tests.theory.sweep import CASES, SLACK, spread, steepness

PROBLEMS = [case.problem for case in ALL]
INNER_LR = [case.inner_lr for case in ALL]


def gradient_norms(case, points):
    """``||grad L_i||`` of every client, (clients, points)."""
    return np.linalg.norm([case.problem.gradient(i, points) for i in range(case.problem.clients)], axis=-1)


def test_lemma_10_bounds_the_smoothness_around_a_model():
    rng = np.random.default_rng(0)
    for case in ALL:
        problem, (w, *others) = case.problem, case.points
        size = memory.lipschitz_at(problem.constants, case.inner_lr, gradient_norms(case, w))
        away = np.concatenate([others, w + 10 ** rng.uniform(-3, 1, (40, 1)) * rng.normal(size=(40, w.size))])
        slope = problem.meta_gradients(w, case.inner_lr).mean(0)
        change = problem.objective(away, case.inner_lr) - problem.objective(w, case.inner_lr) - (away - w) @ slope
        distance = np.linalg.norm(away - w, axis=-1)
        assert np.all(np.abs(change) <= size / 2 * distance**2 * SLACK + 1e-9 * size)
        turn = np.linalg.norm(problem.meta_gradients(away, case.inner_lr).mean(0) - slope, axis=-1)
        assert np.all(turn <= size * distance * SLACK)


def test_lemmas_10_and_11_bound_smoothness_and_dissimilarity_everywhere():
    for case in ALL:
        constants = case.problem.constants
        assert steepness(case, 1) <= memory.meta_smoothness(constants, case.inner_lr) * SLACK
        assert spread(case, 1) <= memory.meta_dissimilarity(constants, case.inner_lr) * SLACK


def test_the_estimate_of_the_smoothness_is_the_one_that_moml_v2_runs_with():
    constants = random_problem(1).constants
    expected = gradient_lipschitz(constants.smoothness, constants.hessian_lipschitz, 0.01, 2.0)
    assert memory.lipschitz_at(constants, 0.01, [1.0, 3.0]) == expected


def test_lemma_13_bounds_the_exact_second_moment():
    """With independent batches the second moments of Hessian and gradient multiply, coordinate by coordinate."""
    federation = Federation(PROBLEMS, INNER_LR, runs=16)
    rng = np.random.default_rng(1)
    w, u = rng.uniform(-5, 5, (2, *federation.shape, 3))
    for batch in (1, 3):
        moment = exact_second_moments(federation, w, u, batch).mean(2)  # of single tasks, which a cohort's is below
        bounds = [memory.gradient_second_moment(c.problem.constants, c.inner_lr, batch) for c in ALL]
        assert np.all(moment.max(1) <= np.array(bounds) * SLACK)


def exact_second_moments(federation, w, u, batch):
    samples = federation.samples[:, :, None]
    noise = [
        ((derivative(at[..., None, :], samples) - derivative(at, federation.means)[..., None, :]) ** 2).mean(-2) / batch
        for derivative, at in ((wide(federation, "curvature"), w), (wide(federation, "gradient"), u))
    ]
    pullback = federation.pulled(w, federation.means, 1.0) ** 2 + federation.alpha**2 * noise[0]
    return (pullback * (federation.gradient(u, federation.means) ** 2 + noise[1])).sum(-1)


def wide(federation, derivative):
    """A derivative that takes an extra axis of samples before the coordinates."""

    def at(u, features):
        if u.ndim == 4:
            return getattr(federation, derivative)(u, features)
        moved = [np.moveaxis(part, -2, 0) for part in features]
        return np.stack(
            [getattr(federation, derivative)(u[..., 0, :], [part[s] for part in moved]) for s in range(3)], axis=-2
        )

    return at


@pytest.mark.parametrize("cohort", [1, 2, 4])
def test_lemmas_1_and_2_and_theorem_3_hold_along_runs(cohort):
    """Averages over 8 runs of 60 iterations; the last lines say how far below their bounds they are."""
    rng = np.random.default_rng(cohort)
    federation = Federation(PROBLEMS, INNER_LR, runs=8, batch=2)
    share = 10 ** rng.uniform(-2, 0, CASES)
    beta = np.where(np.arange(CASES) % 5, rng.uniform(0.05, 1, CASES), 1.0)
    eta = [s / memory.meta_smoothness(c.problem.constants, c.inner_lr) for s, c in zip(share, ALL, strict=True)]
    points, gaps = starts()
    measured = moml(federation, federation.start(points), eta, beta, 60, cohort)
    ratios = []
    for i, (case, gap) in enumerate(zip(ALL, gaps, strict=True)):
        constants, run = case.problem.constants, Run(eta[i], beta[i], 60, 4, cohort, 2)
        tracking = memory.tracking_error(constants, case.inner_lr, run).total
        descent = memory.descent(
            constants,
            case.inner_lr,
            gap,
            eta[i],
            60,
            measured.squared_estimate[i],
            measured.tracking[i] / cohort,
        )
        bound = memory.average_gradient_bound(constants, case.inner_lr, gap, run)
        assert measured.squared_estimate[i] <= memory.gradient_second_moment(constants, case.inner_lr, 2)
        assert measured.squared_gradient[i] <= descent.total
        ratios.append((measured.tracking[i] / tracking, measured.squared_gradient[i] / bound.total))
    # The first comes close for beta = 1 and noise that is the same for all clients.
    assert np.max(ratios, axis=0) == pytest.approx([0.96, 0.3], abs=0.1)
    assert max(tracking for (tracking, _), b in zip(ratios, beta, strict=True) if b < 0.5) < 0.5


def test_lemma_2_as_printed_is_false_for_several_tasks_at_a_time():
    """With beta = 1 the error of B adapted models is exactly B times the mean of alpha^2 sigma_i^2 / K."""
    problem = random_problem(5)
    constants = problem.constants
    inner_lr = 1 / constants.smoothness
    variance = (problem.frequency[0] * problem.wave_noise) ** 2 / 2 + problem.slope_noise**2
    exact = 4 * inner_lr**2 * variance.mean()
    run = Run(1e-9, 1.0, 100, clients=4, cohort=4, batch=1)
    assert memory.printed_tracking_error(constants, inner_lr, run).total < exact
    assert exact <= memory.tracking_error(constants, inner_lr, run).total


def test_maml_stalls_at_its_floor_and_memories_do_not():
    constants = random_problem(0).constants
    inner_lr = 0.5 / constants.smoothness
    floor = memory.maml_floor(constants, inner_lr, batch=2)
    maml = memory.average_gradient_bound(constants, inner_lr, 1.0, Run(1e-12, 1.0, 10**30, 4, 2, 2))
    np.testing.assert_allclose(maml.total, floor, rtol=1e-3)
    assert maml.dominant == "memory_noise"
    planned = memory.plan(constants, inner_lr, 1.0, accuracy=floor**0.5 / 10, clients=4, cohort=2, batch=2)
    assert planned.bound.total <= floor / 100
    assert planned.run.averaging < 0.01


def test_plans_have_the_order_of_theorem_3():
    constants = random_problem(0).constants
    inner_lr, accuracy = 0.5 / constants.smoothness, 1e-4
    runs = [memory.plan(constants, inner_lr, 1.0, accuracy / s, n).run for s, n in ((1, 10), (2, 10), (1, 20))]
    np.testing.assert_allclose(runs[1].iterations / runs[0].iterations, 2**5, rtol=0.02)
    np.testing.assert_allclose(runs[2].iterations / runs[0].iterations, 2, rtol=0.02)
    np.testing.assert_allclose(runs[0].outer_lr / runs[1].outer_lr, 2**3, rtol=0.02)
    np.testing.assert_allclose(runs[0].averaging / runs[1].averaging, 2**2, rtol=0.02)


def test_a_plan_is_the_shortest_and_no_step_sizes_do_better():
    constants = random_problem(2).constants
    inner_lr, accuracy = 0.5 / constants.smoothness, 0.05
    run = memory.plan(constants, inner_lr, 1.0, accuracy, clients=4).run
    shorter = memory.steps_for(constants, inner_lr, 1.0, run.iterations - 1, 4, 1, 1)
    assert memory.average_gradient_bound(constants, inner_lr, 1.0, shorter).total > accuracy**2
    best = memory.average_gradient_bound(constants, inner_lr, 1.0, run)
    for factor in (0.5, 2.0):
        for changed in (run._replace(outer_lr=factor * run.outer_lr), run._replace(averaging=factor * run.averaging)):
            other = memory.average_gradient_bound(constants, inner_lr, 1.0, changed)
            assert other.total > best.total * 0.9


def test_conditions_are_named():
    constants = random_problem(0).constants
    with pytest.raises(UsageError, match=r"Lemma 10 needs inner_lr <= 1/L"):
        memory.meta_smoothness(constants, 2 / constants.smoothness)
    with pytest.raises(UsageError, match="more than clients"):
        memory.tracking_error(constants, 0.0, Run(0.1, 0.5, 10, 4, 5, 1))
    with pytest.raises(UsageError, match="averaging"):
        memory.tracking_error(constants, 0.0, Run(0.1, 1.5, 10, 4, 2, 1))
    with pytest.raises(UsageError, match="no gradient norms"):
        memory.lipschitz_at(constants, 0.0, [])


def test_runs_agree_with_a_gradient_by_differences():
    case = ALL[7]
    federation = Federation([case.problem], [case.inner_lr], runs=1)
    u = federation.start([case.points[0]])
    steps = 1e-6 * np.eye(3)
    w = case.points[0]
    slope = [
        (case.problem.objective(w + s, case.inner_lr) - case.problem.objective(w - s, case.inner_lr)) / 2e-6
        for s in steps
    ]
    np.testing.assert_allclose(federation.squared_gradient(u), squared(np.array(slope)), rtol=1e-6)
