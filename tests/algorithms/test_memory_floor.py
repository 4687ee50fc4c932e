"""Why the memory methods exist: with a few samples a step MAML stalls at a floor, and they go below it.

Tasks ``L_i(w) = sum |w - c_i|^2 / 2 + kappa (w - c_i)^3 / 6`` with gradients ``grad L_i(w) + noise``, so that all
constants are known. A quadratic gradient at ``w - alpha g`` with a noisy ``g`` is off by
``kappa alpha^2 sigma^2 / (2 K)`` on average, in every coordinate: that is what MAML converges with.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import headstart as hs

TASKS, DRAWN, SIZE, ALPHA, KAPPA, SIGMA = 10, 5, 2, 0.4, 0.4, 3.0
BURN_IN, TAIL, EVERY = 1500, 12000, 100
SEEDS = (0, 1, 2)
CENTERS = np.random.default_rng(0).uniform(-0.5, 0.5, (TASKS, SIZE))


def loss(w, batch):
    away = w - batch["center"]
    return jnp.mean(jnp.sum(away**2 / 2 + KAPPA * away**3 / 6 + batch["noise"] * w, axis=-1))


def draw(center, key, size):
    noise = SIGMA * jax.random.normal(key, (size, SIZE))
    return {"center": jnp.broadcast_to(center, (size, SIZE)), "noise": noise}


PROBLEM = hs.CustomProblem(init_fn=lambda key: jnp.ones(SIZE), loss_fn=loss)
FEDERATION = hs.Federation.from_tasks(CENTERS, draw, query_size=1)


def meta_gradient(w, bias=0.0):
    """``grad F(w)`` in closed form; with ``bias`` added to every ``grad L_i`` of an adapted model."""

    def slope(w):
        return (w - CENTERS) + KAPPA * (w - CENTERS) ** 2 / 2

    curvature = 1 + KAPPA * (w - CENTERS)
    return np.mean((1 - ALPHA * curvature) * (slope(w - ALPHA * slope(w)) + bias), axis=0)


def floor(samples):
    """``|grad F|`` where MAML's expected step vanishes, by Newton's method."""
    bias, w, h = KAPPA * ALPHA**2 * SIGMA**2 / (2 * samples), np.zeros(SIZE), 1e-6
    for _ in range(50):
        slope = (meta_gradient(w + h, bias) - meta_gradient(w - h, bias)) / (2 * h)
        w = w - meta_gradient(w, bias) / slope
    assert np.abs(meta_gradient(w, bias)).max() < 1e-9
    return np.linalg.norm(meta_gradient(w))


@functools.cache
def stalled(algorithm, seed):
    """``|grad F|`` at the mean of the iterates after burn-in, which takes the steps' own noise out."""
    sim = hs.Simulation(algorithm, PROBLEM, FEDERATION, cohort=DRAWN, seed=seed)
    every = EVERY // algorithm.local_steps if isinstance(algorithm, hs.LocalMOML) else EVERY
    for _ in range(BURN_IN // EVERY):
        sim.advance(every)
    points = []
    for _ in range(TAIL // EVERY):
        sim.advance(every)
        points.append(np.asarray(sim.state.server.params, np.float64))
    return np.linalg.norm(meta_gradient(np.mean(points, axis=0)))


STEP = {"inner_lr": ALPHA, "outer_lr": 0.01}
MAML = {samples: hs.maml(batch_size=samples, **STEP) for samples in (1, 2, 4)}
MEMORY = {
    "moml": hs.MOML(averaging=0.05, batch_size=1, **STEP),
    "moml-v2": hs.MOMLv2(averaging=0.05, batch_size=1, **STEP),
    "local-moml, cross-device": hs.LocalMOML(averaging=0.1, batch_size=1, local_steps=20, memory_batch_size=20, **STEP),
    "local-moml, cross-silo": hs.LocalMOML(averaging=0.05, batch_size=1, local_steps=4, keep_memory=True, **STEP),
}


@pytest.mark.parametrize("samples", MAML)
def test_maml_stalls_at_the_floor_of_its_bias(samples):
    for seed in SEEDS:
        assert 0.85 < stalled(MAML[samples], seed) / floor(samples) < 1.15


def test_the_floor_shrinks_as_samples_grow():
    floors = [np.mean([stalled(MAML[samples], seed) for seed in SEEDS]) for samples in (1, 2, 4)]
    assert 1.8 < floors[0] / floors[1] < 2.5
    assert 1.8 < floors[1] / floors[2] < 2.5


@pytest.mark.parametrize("name", MEMORY)
def test_memory_methods_go_below_it_with_one_sample(name):
    for seed in SEEDS:
        assert stalled(MEMORY[name], seed) < 0.15 * stalled(MAML[1], seed)
