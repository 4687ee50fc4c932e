"""Quadratics with a cubic term on a ball: their constants are estimated, and the lemmas hold with the true ones.

A sample of client i has the loss ``sum_j (a_j w_j^2 / 2 + k w_j^3 / 6) + b'w + c |w|^2 / 2`` with a and k its client's
and b and c its own, so every Hessian is diagonal and depends on w. Suprema over the ball are those over a fine grid.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import product

import jax.numpy as jnp
import numpy as np
import pytest

import headstart as hs
from headstart.theory import Constants, multi_step, per_fedavg
from headstart.theory.estimate import Ball, estimate_constants

CLIENTS, SAMPLES, DIMENSION, RADIUS = 3, 3, 2, 1.0


@dataclass(frozen=True)
class Cubics:
    """Some clients' samples, and the ball on which they are looked at."""

    stiffness: np.ndarray
    cubic: np.ndarray
    slope: np.ndarray
    bend: np.ndarray
    radius: float

    @classmethod
    def random(cls, seed, radius):
        rng = np.random.default_rng(seed)
        return cls(
            stiffness=rng.uniform(-1, 2, (CLIENTS, DIMENSION)),
            cubic=rng.uniform(0.2, 1.5, CLIENTS),
            slope=rng.normal(0, 0.5, (CLIENTS, SAMPLES, DIMENSION)),
            bend=rng.normal(0, 0.3, (CLIENTS, SAMPLES)),
            radius=radius,
        )

    def gradients(self, w):
        """Of every client and sample, at one w or at an array of them (leading axes before clients)."""
        w = w[..., None, None, :]
        stiff = self.stiffness[:, None] * w + self.cubic[:, None, None] * w**2 / 2
        return stiff + self.slope + self.bend[..., None] * w

    def curvatures(self, w):
        """The diagonals of their Hessians."""
        w = w[..., None, None, :]
        return self.stiffness[:, None] + self.cubic[:, None, None] * w + self.bend[..., None]

    @cached_property
    def constants(self):
        angle, radius = np.meshgrid(np.linspace(0, 2 * np.pi, 720), np.linspace(0, self.radius, 12))
        points = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=-1).reshape(-1, DIMENSION)
        gradients, curvatures = self.gradients(points), self.curvatures(points)
        noise = np.linalg.norm(gradients - gradients.mean(-2, keepdims=True), axis=-1)
        bends = np.abs(self.bend - self.bend.mean(-1, keepdims=True))
        gradients, curvatures = gradients.mean(-2), curvatures.mean(-2)
        apart = gradients - gradients.mean(-2, keepdims=True)
        bent_apart = np.abs(curvatures - curvatures.mean(-2, keepdims=True)).max(-1)
        return Constants(
            smoothness=np.abs(curvatures).max(),
            hessian_lipschitz=self.cubic.max(),
            gradient_bound=np.linalg.norm(gradients, axis=-1).max(),
            gradient_noise=(noise**2).mean(-1).max() ** 0.5,
            hessian_noise=(bends**2).mean(-1).max() ** 0.5,
            gradient_dissimilarity=(apart**2).sum(-1).mean(-1).max() ** 0.5,
            hessian_dissimilarity=(bent_apart**2).mean(-1).max() ** 0.5,
            gradient_fourth_moment=(noise**4).mean(-1).max(),
            hessian_fourth_moment=(bends**4).mean(-1).max(),
        )

    def meta_gradient(self, client, w, inner_lr, draws=None, steps=None):
        """With all of a client's samples, or with those of each row of draws: inner, curvature's, and the outer one."""
        if draws is None:
            whole = Cubics(
                self.stiffness, self.cubic, self.slope.mean(1, keepdims=True), self.bend.mean(1, keepdims=True), 0
            )
            return whole.meta_gradient(client, w, inner_lr, np.zeros((1, 2 * steps + 1), int))[0]
        steps, each = draws.shape[1] // 2, np.arange(len(draws))
        u, back = np.broadcast_to(w, (len(draws), DIMENSION)), 1.0
        for step in range(steps):
            back = back * (1 - inner_lr * self.curvatures(u)[each, client, draws[:, steps + step]])
            u = u - inner_lr * self.gradients(u)[each, client, draws[:, step]]
        return back * self.gradients(u)[each, client, draws[:, -1]]


def loss(params, batch):
    stiff, cubic, slope, bend = batch
    quadratic = stiff @ params**2 / 2 + cubic * jnp.sum(params**3) / 6
    return jnp.mean(quadratic + slope @ params + bend * jnp.sum(params**2) / 2)


NAMES = [name for name in Constants.__dataclass_fields__ if not name.endswith("fourth_moment")]
PROBLEM = hs.CustomProblem(init_fn=lambda key: jnp.zeros(DIMENSION), loss_fn=loss)


@pytest.mark.parametrize("seed", range(2))
def test_estimates_are_near_the_true_constants(seed):
    cubics = Cubics.random(seed, RADIUS)
    pool = (
        np.repeat(cubics.stiffness, SAMPLES, axis=0), np.repeat(cubics.cubic, SAMPLES),
        cubics.slope.reshape(-1, DIMENSION), cubics.bend.ravel(),
    )  # fmt: skip
    rows = np.arange(CLIENTS * SAMPLES).reshape(CLIENTS, SAMPLES)
    federation = hs.Federation.from_arrays(tuple(np.float32(p) for p in pool), list(rows), list(rows))
    found = estimate_constants(PROBLEM, federation, Ball(jnp.zeros(DIMENSION), RADIUS), names=NAMES)
    for name, estimate in found.items():
        truth = getattr(cubics.constants, name)
        short = 0.1 if name in ("smoothness", "hessian_lipschitz", "gradient_bound") else 0.05
        assert truth * (1 - short) <= estimate.value <= truth * 1.01, name


def settings(seed):
    """A problem, a model and an inner step size such that all adapted models stay where the constants hold."""
    rng = np.random.default_rng(1000 + seed)
    cubics = Cubics.random(seed, 2 * RADIUS)
    steps = int(rng.integers(1, 3))
    noisy = np.linalg.norm(cubics.gradients(np.zeros(DIMENSION)), axis=-1).max() + 2 * RADIUS * (
        np.abs(cubics.stiffness).max() + cubics.cubic.max() * RADIUS + np.abs(cubics.bend).max()
    )
    inner_lr = min(rng.uniform(0.1, 1) / cubics.constants.smoothness, RADIUS / (steps * noisy))
    direction = rng.normal(size=(2, DIMENSION))
    w, v = RADIUS * rng.random((2, 1)) * direction / np.linalg.norm(direction, axis=1, keepdims=True)
    return cubics, steps, inner_lr, w, v


def test_the_lemmas_hold_on_two_hundred_problems():
    for seed in range(200):
        cubics, steps, alpha, w, v = settings(seed)
        constants = cubics.constants
        exact, elsewhere = (
            np.array([cubics.meta_gradient(i, at, alpha, steps=steps) for i in range(CLIENTS)]) for at in (w, v)
        )
        ratio = np.linalg.norm(exact - elsewhere, axis=-1).max() / np.linalg.norm(w - v)
        apart = np.sqrt((np.linalg.norm(exact - exact.mean(0), axis=-1) ** 2).mean())
        draws = np.array(list(product(range(SAMPLES), repeat=2 * steps + 1)))
        estimates = np.array([cubics.meta_gradient(i, w, alpha, draws) for i in range(CLIENTS)])
        bias = np.linalg.norm(estimates.mean(1) - exact, axis=-1).max()
        error = ((estimates - exact[:, None]) ** 2).sum(-1).mean(1).max()
        promised = multi_step.estimator_error(constants, alpha, steps, 1, 1, 1)
        assert ratio <= multi_step.meta_smoothness(constants, alpha, steps) * 1.0001
        assert apart <= multi_step.meta_dissimilarity(constants, alpha, steps) * 1.0001
        assert bias <= promised.bias * 1.0001
        assert error <= promised.mean_squared_error * 1.0001
        if steps == 1:
            promised = per_fedavg.estimator_error(constants, alpha, 1, 1, 1)
            assert ratio <= per_fedavg.meta_smoothness(constants, alpha) * 1.0001
            assert apart <= per_fedavg.meta_dissimilarity(constants, alpha) * 1.0001
            assert bias <= promised.bias * 1.0001
            assert error <= promised.mean_squared_error * 1.0001
