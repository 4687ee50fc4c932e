"""The family of known problems is what it says: constants hold and are attained, moments match brute force."""

import itertools

import jax
import numpy as np
import pytest

from tests.theory.known import SAMPLES, batch_outcomes, random_problem

SEEDS = range(6)


def test_derivatives_are_those_of_the_jax_loss(x64):
    problem = random_problem(0)
    gradient, hessian = jax.jit(jax.grad(problem.loss)), jax.jit(jax.hessian(problem.loss))
    w = np.array([0.4, -1.0, 2.0])
    for client in range(problem.clients):
        samples = problem.samples(client)
        np.testing.assert_allclose(problem.gradient(client, w), gradient(w, samples), rtol=1e-9)
        np.testing.assert_allclose(problem.hessian(client, w), hessian(w, samples), atol=1e-9)
        for z in range(SAMPLES):
            one = samples.at(slice(z, z + 1))
            np.testing.assert_allclose(problem.sample_gradients(client, w)[z], gradient(w, one), rtol=1e-9)
            np.testing.assert_allclose(problem.sample_hessians(client, w)[z], hessian(w, one), atol=1e-9)


@pytest.mark.parametrize("steps", [1, 3])
def test_meta_gradient_is_that_of_the_meta_loss(steps, x64):
    problem, inner_lr = random_problem(1), 0.3
    mean = problem.means.at(slice(2, 3))

    def meta_loss(w):
        for _ in range(steps):
            w = w - inner_lr * jax.grad(problem.loss)(w, mean)
        return problem.loss(w, mean)

    w = np.array([0.4, -1.0, 2.0])
    np.testing.assert_allclose(problem.meta_loss(2, w, inner_lr, steps), meta_loss(w), rtol=1e-9)
    np.testing.assert_allclose(problem.meta_gradient(2, w, inner_lr, steps), jax.jit(jax.grad(meta_loss))(w), rtol=1e-8)


def measured(problem, points):
    """The largest value of each constant over some models."""
    clients = range(problem.clients)
    gradients = np.stack([problem.gradient(i, points) for i in clients])
    hessians = np.stack([problem.hessian(i, points) for i in clients])
    samples = np.stack([problem.sample_gradients(i, points) for i in clients])
    sample_hessians = np.stack([problem.sample_hessians(i, points) for i in clients])
    noise = np.linalg.norm(samples - gradients[:, :, None], axis=-1)
    hessian_noise = np.linalg.norm(sample_hessians - hessians[:, :, None], 2, axis=(-2, -1))
    apart = np.linalg.norm(np.diff(points, axis=0), axis=-1)
    return {
        "smoothness": np.linalg.norm(hessians, 2, axis=(-2, -1)).max(),
        "hessian_lipschitz": (np.linalg.norm(np.diff(hessians, axis=1), 2, axis=(-2, -1)) / apart).max(),
        "gradient_bound": np.linalg.norm(gradients, axis=-1).max(),
        "gradient_noise": np.sqrt((noise**2).mean(-1).max()),
        "hessian_noise": np.sqrt((hessian_noise**2).mean(-1).max()),
        "gradient_dissimilarity": np.sqrt(((gradients - gradients.mean(0)) ** 2).sum(-1).mean(0).max()),
        "hessian_dissimilarity": np.sqrt(
            (np.linalg.norm(hessians - hessians.mean(0), 2, axis=(-2, -1)) ** 2).mean(0).max()
        ),
        "gradient_fourth_moment": (noise**4).mean(-1).max(),
        "hessian_fourth_moment": (hessian_noise**4).mean(-1).max(),
    }


@pytest.mark.parametrize("seed", SEEDS)
def test_constants_hold_everywhere_and_are_nearly_reached(seed):
    problem = random_problem(seed)
    rng = np.random.default_rng(seed)
    far = rng.uniform(-10, 10, (500, problem.dimension))
    near = far + 1e-3 * rng.normal(size=far.shape)
    found = measured(problem, np.stack([far, near], axis=1).reshape(-1, problem.dimension))
    for name, value in found.items():
        constant = getattr(problem.constants, name)
        assert value <= constant * (1 + 1e-9), name
        assert value >= 0.8 * constant, name


def test_minimum_is_below_everything_else():
    for seed in SEEDS:
        problem = random_problem(seed)
        inner_lr = 0.7 / problem.constants.smoothness
        points = np.random.default_rng(seed).uniform(-10, 10, (2000, problem.dimension))
        best, least = problem.minimum(inner_lr, steps=2)
        np.testing.assert_allclose(problem.objective(best, inner_lr, 2), least, atol=1e-9 * abs(least))
        assert problem.objective(points, inner_lr, 2).min() >= least
        gradient = problem.meta_gradients(best, inner_lr, 2).mean(0)
        assert np.linalg.norm(gradient) <= 1e-4 * problem.constants.gradient_bound


def test_outcomes_of_a_batch():
    shares, chance = batch_outcomes(2)
    assert shares.shape == (6, SAMPLES)
    np.testing.assert_allclose(chance.sum(), 1)
    np.testing.assert_allclose(chance @ shares, np.full(SAMPLES, 1 / SAMPLES))


def brute_force(problem, client, w, inner_lr, inner, curvature, outer, kind, radius):
    """Every draw of every batch, with gradients and Hessians as full matrices."""
    draws = [itertools.product(range(SAMPLES), repeat=size) for size in (*inner, *curvature, outer)]
    estimates = []
    for chosen in itertools.product(*draws):
        sets, steps = [list(batch) for batch in chosen], len(inner)
        path = [w]
        for batch in sets[:steps]:
            path.append(path[-1] - inner_lr * problem.sample_gradients(client, path[-1])[batch].mean(0))
        vector = problem.sample_gradients(client, path[-1])[sets[-1]].mean(0)
        for step in reversed(range(steps)):
            batch = sets[steps + step] if kind != "first-order" else []
            if kind == "exact":
                vector = vector - inner_lr * problem.sample_hessians(client, path[step])[batch].mean(0) @ vector
            elif kind == "hessian-free":
                ends = [
                    problem.sample_gradients(client, path[step] + s * radius * vector)[batch].mean(0) for s in (1, -1)
                ]
                vector = vector - inner_lr * (ends[0] - ends[1]) / (2 * radius)
        estimates.append(vector)
    return np.array(estimates)


@pytest.mark.parametrize("kind", ["exact", "first-order", "hessian-free"])
@pytest.mark.parametrize("sizes", [((2,), (1,), 1), ((1, 1), (1, 1), 1)])
def test_moments_of_estimators_match_brute_force(kind, sizes):
    problem, (inner, curvature, outer) = random_problem(4), sizes
    w, inner_lr, radius = np.array([0.3, 1.2, -0.5]), 0.6 / problem.constants.smoothness, 0.1
    used = () if kind == "first-order" else curvature
    estimates = brute_force(problem, 1, w, inner_lr, inner, used, outer, kind, radius)
    moments = problem.estimate(1, w, inner_lr, inner, curvature, outer, kind, radius)
    np.testing.assert_allclose(moments.truth, problem.meta_gradient(1, w, inner_lr, len(inner)))
    np.testing.assert_allclose(moments.bias, estimates.mean(0) - moments.truth, atol=1e-12)
    squared_error = ((estimates - moments.truth) ** 2).sum(-1).mean()
    np.testing.assert_allclose(moments.squared_error, squared_error, rtol=1e-9)
