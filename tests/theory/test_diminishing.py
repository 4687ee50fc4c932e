"""Outer step sizes that fall: the bound holds on known problems, and does not say what Remark G.1 does."""

import numpy as np
import pytest

from headstart.errors import UsageError
from headstart.theory import per_fedavg
from headstart.theory.diminishing import diminishing_steps, weighted_gradient_bound
from headstart.theory.stationarity import Schedule
from tests.theory.known import random_problem
from tests.theory.sweep import SIMULATED_BATCH, SUPPORTED, simulated


@pytest.fixture
def setting():
    constants = random_problem(5).constants
    inner_lr = 0.1 / constants.smoothness
    return constants, inner_lr, per_fedavg.estimator_error(constants, inner_lr, 10, 10, 10)


def largest(constants, inner_lr, local_steps):
    return 1 / (10 * local_steps * per_fedavg.meta_smoothness(constants, inner_lr))


def test_equal_steps_are_theorem_4_5(setting):
    constants, inner_lr, error = setting
    step = largest(constants, inner_lr, 3)
    expected = per_fedavg.average_gradient_bound(constants, inner_lr, error, Schedule(step, 3, 7), 5, 2, 1.5)
    assert weighted_gradient_bound(*setting, [step] * 7, 3, 5, 2, 1.5) == pytest.approx(expected)


def test_terms_are_averages_over_rounds(setting):
    """Each term is that of a round's own step size, and a round weighs as its step size does."""
    constants, inner_lr, error = setting
    steps = largest(constants, inner_lr, 3) * np.array([1.0, 0.5, 0.1, 0.7])
    bound = weighted_gradient_bound(*setting, list(steps), 3, 5, 2, 1.5)
    own = [
        per_fedavg.average_gradient_bound(constants, inner_lr, error, Schedule(step, 3, 1), 5, 2, 1.5) for step in steps
    ]
    averages = np.average(own, axis=0, weights=steps)
    assert bound[1:] == pytest.approx(tuple(averages[1:]))
    assert bound.start == pytest.approx(4 * 1.5 / (3 * steps.sum()))


def test_gradients_are_as_small_as_the_bound_says():
    group, local_steps, cohort, rounds = 3, 4, 2, 10
    shares = diminishing_steps(1.0, rounds)

    def smoothness(case):
        return per_fedavg.meta_smoothness(case.problem.constants, case.inner_lr)

    for measured, case, outer_lr, gap in simulated(group, 1, local_steps, rounds, cohort, smoothness, False, shares):
        problem = case.problem
        error = per_fedavg.estimator_error(problem.constants, case.inner_lr, *[SIMULATED_BATCH] * 3)
        steps = [outer_lr * share for share in shares]
        bound = weighted_gradient_bound(
            problem.constants, case.inner_lr, error, steps, local_steps, problem.clients, cohort, gap, SUPPORTED
        )
        assert measured <= bound.total


def test_remark_g_1_is_not_what_the_bound_says(setting):
    """With its tau = eps^-1/2 and K = eps^-3/2 not all terms fall as eps does, unless steps hardly fall."""
    constants, inner_lr, _ = setting

    def bound(scale, skipped_of):
        """With ``eps = 0.01 / scale^4``, so that all numbers are whole."""
        local_steps, rounds = 10 * scale**2, 1000 * scale**6
        skipped = skipped_of(local_steps, rounds)
        # beta_k = c/sqrt(tau (k + skipped)), as far as the first round bears it
        most = largest(constants, inner_lr, local_steps)
        initial = most * min(1, np.sqrt(local_steps / (1 + skipped)))
        return weighted_gradient_bound(*setting, diminishing_steps(initial, rounds, skipped), local_steps, 4, 4, 1.0)

    def powers(skipped_of):
        """The power of eps by which each term falls."""
        before, after = bound(1, skipped_of), bound(2, skipped_of)
        return {
            name: np.log(old / new) / np.log(2**4)
            for name, old, new in zip(before._fields, before, after, strict=True)
            if old
        }

    assert powers(lambda local_steps, rounds: 0)["start"] == pytest.approx(0.75, abs=0.05)
    assert powers(lambda local_steps, rounds: local_steps)["drift"] == pytest.approx(0.5, abs=0.1)
    hardly = powers(lambda local_steps, rounds: 10 * rounds)
    assert [hardly[name] for name in ("start", "noise", "drift")] == pytest.approx([1, 1, 1], abs=0.15)


def test_mistakes(setting):
    constants, inner_lr, _ = setting
    step = largest(constants, inner_lr, 2)
    with pytest.raises(UsageError, match="no step sizes"):
        weighted_gradient_bound(*setting, [], 2, 5, 2, 1.5)
    with pytest.raises(UsageError, match="outer_lr"):
        weighted_gradient_bound(*setting, [step, 0.0], 2, 5, 2, 1.5)
    with pytest.raises(UsageError, match=r"Theorem 4\.5 needs outer_lr"):
        weighted_gradient_bound(*setting, [step, 1.1 * step], 2, 5, 2, 1.5)
