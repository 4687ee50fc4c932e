"""MOML v2: the corrected lemmas hold on 200 problems; moments are finite sums, but for Lemma 4 with its margin."""

import itertools

import jax
import numpy as np
import pytest

from headstart.errors import UsageError
from headstart.theory import memory, unbounded_memory
from tests.theory.known import batch_outcomes, random_problem
from tests.theory.memory_runs import Federation, each, squared
from tests.theory.sweep import SLACK, cases
from tests.theory.test_memory import exact_second_moments, gradient_norms

ALL = list(cases(steps=1, largest=0.4))  # alpha < (sqrt(2) - 1)/L


def federation(runs):
    return Federation([case.problem for case in ALL], [case.inner_lr for case in ALL], runs)


def per_problem(function, *arguments):
    return np.array([function(case.problem.constants, case.inner_lr, *arguments) for case in ALL])


def test_lemma_8_bounds_gradients_by_meta_gradients():
    for case in ALL:
        constants, problem = case.problem.constants, case.problem
        control = unbounded_memory.gradient_control(constants, case.inner_lr)
        points = np.concatenate([case.points, np.random.default_rng(0).uniform(-5, 5, (100, 3))])
        gradients = np.stack([problem.gradient(i, points) for i in range(problem.clients)])
        meta = np.linalg.norm(problem.meta_gradients(points, case.inner_lr).mean(0), axis=-1)
        dissimilarity = constants.gradient_dissimilarity
        bound = control.from_meta * meta + control.from_dissimilarity * dissimilarity
        assert np.all(np.linalg.norm(gradients.mean(0), axis=-1) <= bound * SLACK)
        adapted = points - case.inner_lr * gradients
        after = [problem.gradient(i, adapted[i]) for i in range(problem.clients)]
        stretch = (1 + case.inner_lr * constants.smoothness) ** 2
        nine = 2 * control.from_meta**2 * meta**2 + (2 * control.from_dissimilarity**2 + 1) * dissimilarity**2
        assert np.all(squared(np.array(after)).mean(0) <= stretch * nine * SLACK)


def test_lemma_8_as_printed_is_false():
    """(9) for ||grad F_i||^2, evaluated: two tasks -L w^2/2 +- b w at w = 0, where grad F = 0 and gamma_G = b."""
    constants = random_problem(0).constants
    steep, apart = constants.smoothness, 0.7
    inner_lr = 0.1 / steep

    def loss(w, sign):
        return -steep * w**2 / 2 + sign * apart * w

    def meta(w, sign):
        return loss(w - inner_lr * jax.grad(loss)(w, sign), sign)

    gradients = np.array([float(jax.grad(meta)(0.0, sign)) for sign in (1.0, -1.0)])
    assert gradients.mean() == pytest.approx(0, abs=1e-6)
    control = unbounded_memory.gradient_control(constants, inner_lr)
    stretch = (1 + inner_lr * steep) ** 2
    nine = 2 * control.from_meta**2 * gradients.mean() ** 2 + (2 * control.from_dissimilarity**2 + 1) * apart**2
    assert (gradients**2).mean() > stretch * nine


def test_lemma_12_bounds_the_exact_moments_of_the_estimate():
    """All cohorts and all outcomes of their batches, with the fewest tasks and samples that the lemma allows."""
    tightest = []
    for case in ALL:
        problem, constants = case.problem, case.problem.constants
        # A smaller inner step where the lemma would ask for more samples than can be enumerated.
        most = np.sqrt(3) * constants.smoothness / (8 * constants.hessian_lipschitz * constants.gradient_noise)
        inner_lr = min(case.inner_lr, most)
        cohort, samples = unbounded_memory.lipschitz_batches(constants, inner_lr, problem.clients)
        shares, chance = batch_outcomes(samples)
        w = case.points[0]
        norms = np.linalg.norm([shares @ problem.sample_gradients(i, w) for i in range(problem.clients)], axis=-1)
        first, second, cohorts = 0.0, 0.0, list(itertools.combinations(range(problem.clients), cohort))
        for drawn in cohorts:
            sums, weight = np.zeros(1), np.ones(1)
            for i in drawn:
                sums, weight = np.add.outer(sums, norms[i]).ravel(), np.outer(weight, chance).ravel()
            estimate = 4 * constants.smoothness + 2 * constants.hessian_lipschitz * inner_lr * sums / cohort
            first += weight @ (1 / estimate) / len(cohorts)
            second += weight @ (1 / estimate**2) / len(cohorts)
        exact = gradient_norms(case, w)
        bound = unbounded_memory.inverse_lipschitz(constants, inner_lr, exact, problem.clients, cohort, samples)
        assert bound.least <= first * SLACK
        assert first <= bound.most * SLACK
        assert second <= bound.square * SLACK
        tightest.append(first / bound.most)
    assert max(tightest) > 0.8


def test_lemma_15_bounds_the_exact_second_moment():
    stacked = federation(runs=16)
    rng = np.random.default_rng(1)
    w = np.repeat(rng.uniform(-5, 5, (*stacked.shape[:2], 1, 3)), 4, axis=2)
    true = stacked.adapted(w, stacked.means)
    u = true + 10 ** rng.uniform(-2, 1, (*stacked.shape[:2], 1, 1)) * rng.normal(size=true.shape)
    moments = exact_second_moments(stacked, w, u, batch=2)
    means = stacked.pulled(w, stacked.means, stacked.gradient(u, stacked.means))
    tracking, gradient, noise = per_problem(unbounded_memory.gradient_second_moment, 2).T[..., None]
    meta = squared(stacked.truth(w).mean(2))
    bound = tracking * squared(u - true).mean(2) + gradient * meta + noise
    for cohort in (1, 2, 4):  # Lemma 9: the mean of a cohort drawn without replacement, with independent noise
        variance = moments - squared(means)
        mixed = (4 - cohort) / (cohort * 3) * squared(means).mean(2) + 4 * (cohort - 1) / (cohort * 3) * squared(
            means.mean(2)
        )
        assert np.all(mixed + variance.mean(2) / cohort <= bound * SLACK)


@pytest.mark.parametrize("cohort", [1, 2, 4])
def test_lemma_16_bounds_the_exact_noise_of_the_refresh(cohort):
    stacked = federation(runs=16)
    w = np.repeat(np.random.default_rng(1).uniform(-5, 5, (*stacked.shape[:2], 1, 3)), 4, axis=2)
    gradients = stacked.gradient(w, stacked.means)
    each_sample = [stacked.gradient(w, stacked.samples[:, :, None, :, s]) for s in range(3)]
    variance = np.mean([squared(g - gradients) for g in each_sample], axis=0) / 2
    p = cohort / 4
    # E ||g_i [i drawn] / p - grad L_i||^2 with g_i of variance v: (1/p - 1) ||grad L_i||^2 + v / p.
    exact = ((1 / p - 1) * squared(gradients) + variance / p).mean(2)
    meta = squared(stacked.truth(w).mean(2))
    bound = [
        [unbounded_memory.refresh_variance(c.problem.constants, c.inner_lr, p, 2, s) for s in row]
        for c, row in zip(ALL, meta, strict=True)
    ]
    assert np.all(exact <= np.array(bound) * SLACK)


@pytest.mark.parametrize("cohort", [1, 4])
def test_lemmas_4_and_17_bound_one_iteration(cohort):
    """Two refreshes with a step between them, 256 times from one state; with a margin of four standard errors."""
    stacked = federation(runs=256)
    rng = np.random.default_rng(2)
    p = cohort / 4
    w = np.repeat(stacked.start([case.points[0] for case in ALL]), 4, axis=2)
    scale = per_problem(unbounded_memory.largest_scale, p, 1)
    smoothness = np.array([case.problem.constants.smoothness for case in ALL])
    size = [memory.lipschitz_at(c.problem.constants, c.inner_lr, gradient_norms(c, c.points[0])) for c in ALL]
    eta = scale / np.array(size)
    beta = 6 * smoothness**2 * scale ** (-1 / 3) * eta
    assert np.all(beta <= 1)
    u = stacked.adapted(w, stacked.means) + 0.01 * rng.normal(size=(len(ALL), 1, 4, 3))

    def refreshed(u, w):
        drawn = stacked.cohort(cohort) > 0
        towards = drawn * (stacked.adapted(w, stacked.draw()) - w) / p
        return (1 - each(beta)) * u + each(beta) * (w + towards)

    def error(u, w):
        return squared(u - stacked.adapted(w, stacked.means)).mean(2)

    u = refreshed(u, w)
    before = error(u, w)
    estimate = stacked.pulled(w, stacked.draw(), stacked.gradient(u, stacked.draw()))
    moved = w - each(eta) * (stacked.cohort(cohort) * estimate).sum(2, keepdims=True)
    after = error(refreshed(u, moved), moved)
    _, gradient, noise = per_problem(unbounded_memory.tracking, p, 1).T
    meta = squared(stacked.truth(w).mean(2))[:, 0]
    grown = after - (1 - 3 * smoothness**2 * scale ** (-1 / 3) * eta)[:, None] * before
    bound = scale ** (1 / 3) * eta * gradient * meta + scale ** (4 / 3) * noise
    assert np.all(grown.mean(1) + 4 * grown.std(1) / 16 <= bound)
    grown = scale[:, None] ** (1 / 3) * (after - before) + objective(stacked, moved) - objective(stacked, w)
    bound = [
        unbounded_memory.decrease(case.problem.constants, case.inner_lr, p, 1, *at)
        for case, at in zip(ALL, zip(scale, size, meta, strict=True), strict=True)
    ]
    assert np.all(grown.mean(1) + 4 * grown.std(1) / 16 <= bound)


def objective(stacked, w):
    """``F`` of every problem and run."""
    v, (cosine, sine, slope) = stacked.adapted(w, stacked.means), stacked.means
    return (cosine * np.cos(stacked.omega * v) + sine * np.sin(stacked.omega * v) + slope * v).sum(-1).mean(-1)


def test_plans_have_the_order_of_theorem_5():
    constants = random_problem(0).constants
    inner_lr, accuracy = 0.3 / constants.smoothness, 1e-5
    arguments = constants, inner_lr, 1.0, 0.0
    rough, fine = (unbounded_memory.plan(*arguments, e, 100, 0.1) for e in (accuracy, accuracy / 2))
    np.testing.assert_allclose(rough.scale / fine.scale, 2**3, rtol=0.01)
    np.testing.assert_allclose(fine.iterations / rough.iterations, 2**5, rtol=0.01)
    assert fine.scale <= unbounded_memory.largest_scale(constants, inner_lr, 0.1, 1)
    rare = unbounded_memory.plan(*arguments, accuracy, 100, 0.01)
    assert rare.iterations > rough.iterations


def test_conditions_are_named():
    constants = random_problem(1).constants
    with pytest.raises(UsageError, match=r"Lemma 8 needs inner_lr < \(sqrt\(2\) - 1\)/L"):
        unbounded_memory.gradient_control(constants, 0.5 / constants.smoothness)
    inner_lr = 0.4 / constants.smoothness
    needed = unbounded_memory.lipschitz_batches(constants, inner_lr, 1000)
    assert needed.cohort > 1
    with pytest.raises(UsageError, match="Lemma 12 needs"):
        unbounded_memory.inverse_lipschitz(constants, inner_lr, [1.0], 1000, 1, needed.samples)
