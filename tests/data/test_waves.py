"""The exact formulas of the waves against automatic differentiation, sampling, and searches for the suprema."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import headstart as hs
from headstart.data.waves import WaveTasks, waves
from headstart.problems.waves import WaveSamples
from headstart.theory import Constants

TASKS = WaveTasks.spread_out(clients=3, dimension=2, spread=0.5, noise=2.0)
CONSTANTS = Constants(**TASKS.constants())
W = jnp.array([0.3, -1.2])
GRID = jnp.linspace(-np.pi, np.pi, 2001)


def _loss(client, w):
    """``L_i``, by the problem's own loss of a sample without noise."""
    return TASKS.problem.loss(w, WaveSamples(jnp.asarray(TASKS.centres[client], w.dtype)[None], jnp.zeros((1, 2))))


def _line(w, coordinate):
    """Models on a whole period along a coordinate."""
    return jnp.tile(w, (len(GRID), 1)).at[:, coordinate].set(GRID)


def test_samples_have_the_stated_mean_and_noise():
    batch = TASKS.federation().clients.sample("train", jnp.asarray(1), jax.random.key(0), 100_000)
    gradients = jax.vmap(lambda sample: jax.grad(TASKS.problem.loss)(W, sample))(
        jax.tree.map(lambda leaf: leaf[:, None], batch)
    )
    exact = jax.grad(partial(_loss, 1))(W)
    np.testing.assert_allclose(gradients.mean(0), exact, atol=5 * 2.0 / np.sqrt(2e5))
    squares = np.sum((np.asarray(gradients) - exact) ** 2, axis=1)
    np.testing.assert_allclose(squares.mean(), CONSTANTS.gradient_noise**2, rtol=0.02)
    np.testing.assert_allclose((squares**2).mean(), CONSTANTS.gradient_fourth_moment, rtol=0.05)


def test_the_meta_gradient_is_that_of_the_exact_meta_loss():
    def meta_loss(w):
        losses = [partial(_loss, client) for client in range(3)]
        return sum(loss(w - 0.4 * jax.grad(loss)(w)) for loss in losses) / 3

    np.testing.assert_allclose(TASKS.meta_gradient(W, 0.4), jax.grad(meta_loss)(W), rtol=1e-5)
    measured = jax.jit(TASKS.gradient_norm(0.4))(W)
    np.testing.assert_allclose(measured["gradient_norm"], np.linalg.norm(jax.grad(meta_loss)(W)), rtol=1e-5)


@pytest.mark.parametrize("batch", [1, 5])
def test_the_mean_of_mamls_steps(batch):
    draws = 200_000
    noise = np.random.default_rng(0).normal(size=(draws, 2)) * 2.0 / np.sqrt(2 * batch)

    def estimate(client, slope):
        adapted = W - 0.4 * (jax.grad(partial(_loss, client))(W) + slope)
        gradient = jax.grad(partial(_loss, client))(adapted)
        return gradient - 0.4 * jax.hessian(partial(_loss, client))(W) @ gradient

    estimates = np.mean([jax.vmap(partial(estimate, client))(jnp.asarray(noise)) for client in range(3)], axis=0)
    error = 5 * estimates.std(0).max() / np.sqrt(draws)
    mean = np.asarray(TASKS.meta_gradient(W, 0.4, batch))
    np.testing.assert_allclose(estimates.mean(0), mean, atol=error)
    assert np.linalg.norm(mean - TASKS.meta_gradient(W, 0.4)) > 5 * error, "the bias is seen"


def test_the_constants_of_one_client_are_attained():
    loss = partial(_loss, 0)
    centred = jnp.stack([GRID, GRID], axis=1) + TASKS.centres[0]
    gradients = jax.vmap(jax.grad(loss))(centred)
    hessians = jax.vmap(jax.hessian(loss))(centred)
    np.testing.assert_allclose(np.linalg.norm(gradients, axis=1).max(), CONSTANTS.gradient_bound, rtol=1e-4)
    np.testing.assert_allclose(np.linalg.norm(hessians, 2, axis=(1, 2)).max(), CONSTANTS.smoothness, rtol=1e-4)
    slopes = np.abs(np.diff(np.asarray(hessians)[:, 0, 0])) / float(GRID[1] - GRID[0])
    np.testing.assert_allclose(slopes.max(), CONSTANTS.hessian_lipschitz, rtol=1e-2)


def test_clients_are_no_more_unlike_than_stated():
    tasks = range(3)
    worst = {"gradient": np.zeros(2), "hessian": np.zeros(2)}
    for coordinate in range(2):
        line = _line(W, coordinate)
        gradients = np.stack([jax.vmap(jax.grad(partial(_loss, i)))(line)[:, coordinate] for i in tasks])
        bends = np.stack([jax.vmap(jax.hessian(partial(_loss, i)))(line)[:, coordinate, coordinate] for i in tasks])
        worst["gradient"][coordinate], worst["hessian"][coordinate] = gradients.var(0).max(), bends.var(0).max()
    # Coordinates are apart, so the worst of each make the worst of all: of the Hessians in the Frobenius norm.
    gradient, hessian = (np.sqrt(worst[name].sum()) for name in ("gradient", "hessian"))
    assert gradient <= CONSTANTS.gradient_dissimilarity <= 1.5 * gradient
    assert hessian <= CONSTANTS.hessian_dissimilarity <= 1.5 * hessian


def test_equal_clients_are_alike():
    constants = WaveTasks.spread_out(spread=0).constants()
    assert constants["gradient_dissimilarity"] == constants["hessian_dissimilarity"] == 0


def test_the_floor_is_a_gradient_that_fades_with_samples_and_keeps_its_bound():
    floors = {batch: TASKS.floor(0.4, batch) for batch in (1, 10, 100, 1e9)}
    assert floors[1e9] < 1e-5
    np.testing.assert_allclose(floors[10] / floors[100], 10, rtol=0.1)
    bound = (1 + 0.4 * CONSTANTS.smoothness) * CONSTANTS.hessian_lipschitz / 2 * (0.4 * CONSTANTS.gradient_noise) ** 2
    assert all(floors[batch] < bound / batch for batch in (1, 10, 100))


def test_a_run_comes_to_rest_at_its_floor():
    tasks = WaveTasks.spread_out(clients=20, dimension=2, spread=0.3, noise=2.0)
    algorithm = hs.maml(inner_lr=0.4, outer_lr=0.05, batch_size=1)
    result = hs.train(algorithm, tasks.problem, tasks.federation(), rounds=400)
    seen, rest = (np.asarray(tasks.meta_gradient(result.params, 0.4, batch)) for batch in (1e9, 1))
    assert np.linalg.norm(rest) < 0.5 * np.linalg.norm(seen)


@pytest.mark.parametrize(("field", "value"), [("clients", 0), ("dimension", 0), ("spread", -1.0), ("noise", -1.0)])
def test_what_makes_no_sense_is_refused(field, value):
    with pytest.raises(hs.UsageError, match=field):
        waves(**{field: value})


def test_the_federation_is_that_of_the_tasks():
    federation = waves(clients=3, dimension=2, spread=0.5, noise=2.0)
    assert (federation.total, federation.trained) == (3, 3)
    batch = federation.clients.sample("train", jnp.asarray(2), jax.random.key(0), 4)
    np.testing.assert_allclose(batch.centre, np.tile(TASKS.centres[2], (4, 1)), rtol=1e-6)
