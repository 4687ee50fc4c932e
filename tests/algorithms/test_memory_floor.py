"""Why the memory methods exist: with a few samples a step MAML stalls at a floor, and they go below it.

Tasks ``L_i(w) = sum |w - c_i|^2 / 2 + kappa (w - c_i)^3 / 6`` with gradients ``grad L_i(w) + noise``, so that all
constants are known. A quadratic gradient at ``w - alpha g`` with a noisy ``g`` is off by
``kappa alpha^2 sigma^2 / (2 K)`` on average, in every coordinate: that is what MAML converges with.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

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
    local = getattr(algorithm, "local_steps", 1)
    every = EVERY // local
    for _ in range(BURN_IN // EVERY):
        sim.advance(every)
    points = []
    for _ in range(TAIL // EVERY):
        sim.advance(every)
        points.append(np.asarray(sim.state.server.params, np.float64))
    return np.linalg.norm(meta_gradient(np.mean(points, axis=0)))


def mean(algorithm):
    return np.mean([stalled(algorithm, seed) for seed in SEEDS])


STEP = {"inner_lr": ALPHA, "outer_lr": 0.01}
