"""LocalMOML: the corrected bounds hold along runs on 200 problems with known constants; the printed one does not."""

import numpy as np
import pytest

from headstart.errors import UsageError
from headstart.theory import local_memory, memory
from headstart.theory.local_memory import LocalRun
from tests.theory.known import KnownProblem, random_problem
from tests.theory.memory_runs import ALL, Federation, local_moml, starts
from tests.theory.sweep import CASES, SLACK
from tests.theory.test_memory import exact_second_moments


def test_lemma_19_bounds_the_exact_variance_at_a_memory():
    federation = Federation([case.problem for case in ALL], [case.inner_lr for case in ALL], runs=16)
    w, u = np.random.default_rng(1).uniform(-5, 5, (2, *federation.shape, 3))
    mean = federation.pulled(w, federation.means, federation.gradient(u, federation.means))
    for batch in (1, 3):
        variance = exact_second_moments(federation, w, u, batch) - (mean**2).sum(-1)
        bounds = [local_memory.gradient_noise(c.problem.constants, c.inner_lr, batch, batch) for c in ALL]
        assert np.all(variance.max((1, 2)) <= np.array(bounds) * SLACK)


@pytest.mark.parametrize(
    ("cohort", "memory_batch"), [(2, 3), (4, 3), (4, None)], ids=["device", "all-restarted", "silo"]
)
def test_lemmas_20_and_21_and_theorem_7_hold_along_runs(cohort, memory_batch):
    """Averages over 4 runs of 12 rounds with the largest step size; the last line says how far below the bounds."""
    rng = np.random.default_rng(cohort)
    beta = np.where(np.arange(CASES) % 5, rng.uniform(0.05, 1, CASES), 1.0)
    federation = Federation([c.problem for c in ALL], [c.inner_lr for c in ALL], runs=4, batch=2)
    points, gaps = starts()
    steps, rounds = 5, 12
    eta = [
        local_memory.largest_outer_lr(c.problem.constants, c.inner_lr, b, steps, memory_batch is None)
        for c, b in zip(ALL, beta, strict=True)
    ]
    measured = local_moml(federation, federation.start(points), eta, beta, steps, rounds, cohort, memory_batch)
    ratios = []
    for i, (case, gap) in enumerate(zip(ALL, gaps, strict=True)):
        constants, squared, tracking = case.problem.constants, measured.squared_gradient[i], measured.tracking[i]
        run = LocalRun(eta[i], beta[i], steps, rounds, 4, cohort, 2, 2, 2, memory_batch)
        noise = local_memory.gradient_noise(constants, case.inner_lr, 2, 2)
        bounds = (
            local_memory.drift(constants, case.inner_lr, eta[i], steps, noise, tracking, squared),
            local_memory.tracking_error(constants, case.inner_lr, run, squared).total,
            local_memory.average_gradient_bound(constants, case.inner_lr, gap, run).total,
        )
        ratios.append(np.array([measured.drift[i], tracking, squared]) / bounds)
    assert np.max(ratios, axis=0) == pytest.approx([0.025, 0.95, 0.04], rel=0.1)


def steep_problem():
    """Two equal clients with L = 400 and noise in their gradients only."""
    frequency = np.full(3, 2.0)
    wave = np.tile(-100.0 + 0j, (2, 3))
    return KnownProblem(frequency, np.eye(3), wave, np.zeros((2, 3)), np.zeros(2), np.full(2, 0.1))


def test_theorem_7_as_printed_is_false():
    """Plain SGD (alpha = 0, H = beta = 1) from the minimum, with the largest step size that the theorem allows."""
    problem = steep_problem()
    constants = problem.constants
    run = LocalRun(1e-9, 1.0, 1, 1500, 2, 2, 1, 1, 1, 1)
    run = run._replace(outer_lr=local_memory.printed_largest_outer_lr(constants, 0.0, run))
    federation = Federation([problem], [0.0], runs=32)
    measured = local_moml(federation, np.zeros((1, 32, 1, 3)), [run.outer_lr], [1.0], 1, run.rounds, 2, 1)
    (found,) = measured.squared_gradient
    exact = run.outer_lr * 400 * 0.1**2 / 2 / (2 - run.outer_lr * 400)  # two clients halve the variance
    np.testing.assert_allclose(found, exact, rtol=0.05)
    assert local_memory.printed_average_gradient_bound(constants, 0.0, 0.0, run).total < found / 5
    run = run._replace(outer_lr=local_memory.largest_outer_lr(constants, 0.0, 1.0, 1, keeps_memory=False))
    assert local_memory.average_gradient_bound(constants, 0.0, 0.0, run).total > exact


def test_the_printed_theorem_is_reproduced():
    """Its C_1 .. C_5 and terms by hand, for constants that make them simple."""
    constants = steep_problem().constants
    printed = local_memory.printed_constants(constants, 0.0, 2, 2)
    bend = 2 * (np.sqrt(3) * 200 * 800 / 400) ** 2 + 16 * 400**2
    np.testing.assert_allclose(printed.c1, bend + 3200)
    np.testing.assert_allclose(printed.c2, 1 + printed.c1 / (4 * 1600**2))
    np.testing.assert_allclose(printed.c3, 1 + 400**2 / 6400 + 400**2 * printed.c1 / (8 * 1600**2))
    np.testing.assert_allclose(printed.c4, 1 / 6400)
    np.testing.assert_allclose(printed.c5, 1 / (16 * max(400, np.sqrt(96 * printed.c3))))
    run = LocalRun(1e-6, 0.5, 3, 10, 2, 2, 1, 1, 1, None)
    bound = local_memory.printed_average_gradient_bound(constants, 0.0, 2.0, run)
    sigma = 2 * 0.01
    expected = [
        4 * 2.0 / (1e-6 * 30),
        4e-6 / 2 * sigma,
        0.0,
        32e-12 * 6 * printed.c1 * sigma,
        64 * printed.c3 * 0.01 / (0.5 * 30),
        3072 * printed.c3 * 1e-12 / 0.25 * sigma,
        0.0,
    ]
    np.testing.assert_allclose(bound, expected)


def test_plans_have_the_orders_of_the_corollaries():
    constants = random_problem(0).constants
    inner_lr, accuracy = 0.5 / constants.smoothness, 1e-4
    rough, fine = (
        local_memory.cross_device_plan(constants, inner_lr, 1.0, e, 10, 3).run for e in (accuracy, accuracy / 2)
    )
    np.testing.assert_allclose(rough.averaging / fine.averaging, 2**2, rtol=0.01)
    np.testing.assert_allclose(fine.local_steps / rough.local_steps, 2**2, rtol=0.01)
    np.testing.assert_allclose(rough.outer_lr / fine.outer_lr, 2**4, rtol=0.01)
    np.testing.assert_allclose(fine.rounds / rough.rounds, 2**4, rtol=0.01)
    np.testing.assert_allclose(fine.samples / rough.samples, 2**6, rtol=0.01)
    rough, fine = (local_memory.cross_silo_plan(constants, inner_lr, 1.0, e, 10).run for e in (accuracy, accuracy / 2))
    np.testing.assert_allclose(rough.averaging / fine.averaging, 2**2, rtol=0.01)
    np.testing.assert_allclose(fine.local_steps / rough.local_steps, 2**2, rtol=0.01)
    np.testing.assert_allclose(rough.outer_lr / fine.outer_lr, 2**3, rtol=0.01)
    np.testing.assert_allclose(fine.rounds / rough.rounds, 2**3, rtol=0.01)
    np.testing.assert_allclose(fine.samples / rough.samples, 2**5, rtol=0.01)


def test_plans_reach_the_accuracy_and_need_all_their_rounds():
    for seed in range(0, 200, 20):
        constants = random_problem(seed).constants
        inner_lr, accuracy = 0.3 / constants.smoothness, 0.1 * constants.gradient_bound
        arguments = constants, inner_lr, 1.0, accuracy
        for plan in (
            local_memory.cross_device_plan(*arguments, clients=50, cohort=10, batch=4),
            local_memory.cross_silo_plan(*arguments, clients=50, batch=4),
        ):
            assert plan.bound.total <= accuracy**2
            shorter = plan.run._replace(rounds=plan.run.rounds - 1)
            assert local_memory.average_gradient_bound(*arguments[:3], shorter).total > accuracy**2


def test_an_exact_inner_step_needs_no_memory():
    constants = random_problem(0).constants
    plan = local_memory.cross_device_plan(constants, 0.0, 1.0, 0.1, clients=4, cohort=2)
    assert (plan.run.averaging, plan.run.local_steps) == (1.0, 1)


def test_conditions_are_named():
    constants = random_problem(0).constants
    inner_lr = 0.5 / constants.smoothness
    run = LocalRun(1e-6, 0.5, 5, 10, 4, 2, 1, 1, 1, 4)
    with pytest.raises(UsageError, match="Theorem 7 needs outer_lr <= largest_outer_lr"):
        local_memory.average_gradient_bound(constants, inner_lr, 1.0, run._replace(outer_lr=1.0))
    with pytest.raises(UsageError, match="kept from round to round only where all clients take part"):
        local_memory.average_gradient_bound(constants, inner_lr, 1.0, run._replace(memory_batch=None))
    with pytest.raises(UsageError, match="Lemma 20 needs outer_lr"):
        local_memory.drift(constants, inner_lr, 1.0, 5, 0.0, 0.0, 0.0)
    with pytest.raises(UsageError, match="most of it memory_noise"):
        local_memory.rounds_for(constants, inner_lr, 1.0, run._replace(averaging=1.0), accuracy=1e-3)
    assert memory.maml_floor(constants, inner_lr, 1) > 1e-6
