import jax
import jax.numpy as jnp
import numpy as np
import pytest

from headstart.core import Adaptation, Exact, FirstOrder, HessianFree
from headstart.errors import UsageError
from headstart.problems import Examples
from tests import toy

pytestmark = pytest.mark.usefixtures("x64")

DIMENSION, ALPHA, CUBIC = 4, 0.05, 0.7


def quadratics(count, seed):
    """Positive matrices ``A`` and vectors ``b`` of ``w A w / 2 + b w + c sum(w^3) / 3``."""
    rng = np.random.default_rng(seed)
    roots = rng.normal(size=(count, DIMENSION, DIMENSION))
    return roots @ roots.transpose(0, 2, 1), rng.normal(size=(count, DIMENSION))


def cubic_loss(w, batch):
    a, b = batch
    return w @ a @ w / 2 + b @ w + CUBIC / 3 * jnp.sum(w**3)


def closed_form(w, inner, curvature, outer):
    """The adapted point, and ``prod_j (I - alpha (A'_j + 2 c diag(w_j))) (A u + b + c u^2)``."""
    factors = []
    for a, b, a_curvature in zip(*inner, curvature[0], strict=True):
        factors.append(np.eye(DIMENSION) - ALPHA * (a_curvature + 2 * CUBIC * np.diag(w)))
        w = w - ALPHA * (a @ w + b + CUBIC * w**2)
    pulled = outer[0] @ w + outer[1] + CUBIC * w**2
    for factor in reversed(factors):
        pulled = factor @ pulled
    return w, pulled


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_equals_the_closed_form_of_a_quadratic_with_a_cubic_term(steps):
    inner, curvature = quadratics(steps, 1), quadratics(steps, 2)
    outer = tuple(part[0] for part in quadratics(1, 3))
    w = np.linspace(-0.4, 0.5, DIMENSION)
    adaptation = Adaptation(steps, ALPHA)
    u, trajectory = adaptation.run(cubic_loss, jnp.asarray(w), inner)
    v = jax.grad(cubic_loss)(u, outer)
    want_u, want = closed_form(w, inner, curvature, outer)
    np.testing.assert_allclose(u, want_u, rtol=1e-10)
    np.testing.assert_allclose(trajectory[0], w)
    np.testing.assert_allclose(
        adaptation.pullback(cubic_loss, Exact(), trajectory, curvature, v), want, rtol=1e-10, atol=1e-12
    )
    # A cubic's gradient is quadratic, on which a central difference of any radius is exact.
    free = adaptation.pullback(cubic_loss, HessianFree(1e-2), trajectory, curvature, v)
    np.testing.assert_allclose(free, want, rtol=1e-9, atol=1e-10)
    np.testing.assert_array_equal(adaptation.pullback(cubic_loss, FirstOrder(), trajectory, None, v), v)


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_with_equal_batches_the_pullback_is_the_gradient_through_the_inner_steps(steps):
    rng = np.random.default_rng(0)
    batches = Examples(*map(jnp.asarray, (rng.normal(size=(steps, 6, 3)), rng.normal(size=(steps, 6, 1)))))
    outer = Examples(*map(jnp.asarray, (rng.normal(size=(6, 3)), rng.normal(size=(6, 1)))))
    params, loss, adaptation = toy.MLP.init(jax.random.key(0)), toy.MLP.loss, Adaptation(steps, 0.1)

    def unrolled(w):
        for j in range(steps):
            batch = jax.tree.map(lambda a, j=j: a[j], batches)
            w = jax.tree.map(lambda p, g: p - 0.1 * g, w, jax.grad(loss)(w, batch))
        return loss(w, outer)

    u, trajectory = adaptation.run(loss, params, batches)
    pulled = adaptation.pullback(loss, Exact(), trajectory, batches, jax.grad(loss)(u, outer))
    toy.assert_close(pulled, jax.grad(unrolled)(params), 1e-10)


def test_no_steps_are_the_identity():
    adaptation = Adaptation(0, ALPHA)
    w = jnp.ones(DIMENSION)
    u, trajectory = adaptation.run(cubic_loss, w, None)
    assert u is w
    assert adaptation.pullback(cubic_loss, Exact(), trajectory, None, w) is w


def test_refusals():
    with pytest.raises(UsageError, match=r"(?s)inner_steps = -1.*0 or more"):
        Adaptation(-1, 0.1)
    with pytest.raises(UsageError, match=r"(?s)inner_lr = -0.1 is below 0"):
        Adaptation(1, -0.1)
