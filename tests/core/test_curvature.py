import jax
import jax.numpy as jnp
import numpy as np
import pytest

from headstart.core import CURVATURES, Exact, FirstOrder, HessianFree, as_curvature
from headstart.errors import UsageError

pytestmark = pytest.mark.usefixtures("x64")

LR = 0.3


def bumpy(w):
    """A loss whose derivatives of every order vary, with the Hessian ``diag(1 / cosh(w)^2) + 0.5 * ones``."""
    return jnp.sum(jnp.log(jnp.cosh(w))) + 0.25 * jnp.sum(w) ** 2


def closed_form(w, v):
    return v - LR * (v / np.cosh(w) ** 2 + 0.5 * v.sum())


W = np.array([0.3, -0.8, 1.1, 0.0])
V = np.array([1.0, 0.5, -0.7, 2.0])


def pull(curvature):
    return np.asarray(curvature.pull(jax.grad(bumpy), jnp.asarray(W), LR, jnp.asarray(V)))


def test_exact_is_the_hessian_vector_product():
    np.testing.assert_allclose(pull(Exact()), closed_form(W, V), rtol=1e-14)


def test_first_order_leaves_the_vector_alone():
    np.testing.assert_array_equal(pull(FirstOrder()), V)


def test_hessian_free_error_falls_with_the_square_of_the_radius_until_rounding():
    error = {r: np.abs(pull(HessianFree(r)) - closed_form(W, V)).max() for r in (1e-1, 1e-2, 1e-3, 1e-4, 1e-9)}
    for coarse, fine in ((1e-1, 1e-2), (1e-2, 1e-3), (1e-3, 1e-4)):
        assert 85 < error[coarse] / error[fine] < 115
    assert error[1e-9] > error[1e-4]  # rounding, which grows as the radius shrinks, has taken over


def test_hessian_free_is_exact_on_a_cubic():
    def gradient(w):
        return w**2 + 3 * w

    got = HessianFree(0.5).pull(gradient, jnp.asarray(W), LR, jnp.asarray(V))
    np.testing.assert_allclose(got, V - LR * (2 * W + 3) * V, rtol=1e-13)


def test_names():
    assert {name: type(as_curvature(name)) for name in CURVATURES} == CURVATURES
    mine = HessianFree(0.1)
    assert as_curvature(mine) is mine
    with pytest.raises(UsageError, match=r"(?s)no curvature 'hessianfree'.*Did you mean 'hessian-free'"):
        as_curvature("hessianfree")
    with pytest.raises(UsageError, match="radius = 0 is not above 0"):
        HessianFree(0)
