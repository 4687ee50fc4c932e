"""The parts of the estimators: Lanczos and regions."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headstart as hs
from headstart.theory.estimate import Ball, Effort, Hull
from headstart.theory.estimate.lanczos import top_eigenvector


@partial(jax.jit, static_argnames="products")
def top(matrix, start, products):
    return top_eigenvector(lambda u: matrix @ u, start, products)


def rayleigh(matrix, products, seed=0):
    start = jax.random.normal(jax.random.key(seed), (len(matrix),))
    v = top(jnp.asarray(matrix, jnp.float32), start, products)
    assert float(jnp.linalg.norm(v)) == pytest.approx(1, abs=1e-5)
    return float(v @ matrix @ v)


@given(seed=st.integers(0, 10**6))
def test_the_eigenvalue_of_largest_magnitude(seed):
    rng = np.random.default_rng(seed)
    basis, _ = np.linalg.qr(rng.normal(size=(6, 6)))
    values = rng.normal(size=6) * 10.0 ** rng.uniform(-3, 3)
    found = rayleigh((basis * values) @ basis.T, products=8, seed=seed)
    assert found == pytest.approx(values[np.abs(values).argmax()], rel=1e-3)


@pytest.mark.parametrize("matrix", [np.zeros((3, 3)), -2 * np.eye(5), np.diag([0.0, 0.0, 7.0]), np.array([[4.0]])])
def test_matrices_with_few_eigenvalues(matrix):
    assert rayleigh(matrix, products=4) == pytest.approx(matrix.sum() / max(1, np.count_nonzero(matrix)), abs=1e-5)


def test_few_products_of_a_large_matrix():
    """Some separated eigenvalues above many small ones, as Hessians of networks have."""
    values = np.concatenate([np.linspace(-1, 1, 300), [-6.0, 5.0]])
    assert rayleigh(np.diag(values), products=12) == pytest.approx(-6, rel=1e-3)


PARAMS = {"a": jnp.asarray([1.0, 2.0]), "b": jnp.asarray(3.0)}
CENTER = np.array([1.0, 2.0, 3.0])


def test_a_ball_is_never_left():
    ball = Ball(PARAMS, 0.5)
    starts = np.asarray(ball.starts(50, jax.random.key(0)))
    distances = np.linalg.norm(starts - CENTER, axis=1)
    assert distances[0] == 0
    assert 0.3 < distances[1:].mean() < distances.max() <= 0.5001
    far = ball.move(jnp.asarray(starts[1]), jnp.asarray([1.0, 0.0, 0.0]), jnp.asarray(1.0))
    assert np.linalg.norm(far - CENTER) == pytest.approx(0.5, abs=1e-5)
    assert far[0] > 1.45  # nearly the farthest point in that direction
    near = ball.move(jnp.asarray(CENTER), jnp.asarray([0.0, 2.0, 0.0]), jnp.asarray(0.01))
    np.testing.assert_allclose(near, CENTER + np.array([0, 0.02, 0]), atol=1e-6)
    np.testing.assert_allclose(ball.move(near, 0 * near, jnp.asarray(1.0)), near, atol=1e-6)


def test_a_hull_starts_at_its_points_and_moves_between_them():
    points = [jax.tree.map(lambda leaf, t=t: t * leaf, PARAMS) for t in (-1.0, 0.0, 1.0)]
    hull = Hull(points)
    np.testing.assert_allclose(hull.starts(2, jax.random.key(0)), [-CENTER, CENTER])
    five = np.asarray(hull.starts(5, jax.random.key(0)))
    np.testing.assert_allclose(five[:3], [-CENTER, 0 * CENTER, CENTER])
    assert (np.abs(five[:, 0]) <= 1).all()
    np.testing.assert_allclose(hull.move(0 * five[0], jnp.ones(3), jnp.asarray(0.5)), CENTER / 2)
    np.testing.assert_allclose(hull.move(five[2], jnp.zeros(3), jnp.asarray(0.5)), five[2])


def test_mistakes():
    with pytest.raises(hs.UsageError, match="radius"):
        Ball(PARAMS, -1.0)
    with pytest.raises(hs.UsageError, match="not of floating point"):
        Ball({"count": jnp.asarray(3)}, 1.0)
    with pytest.raises(hs.UsageError, match="no points"):
        Hull([])
    with pytest.raises(hs.UsageError, match="starts"):
        Effort(starts=1)
