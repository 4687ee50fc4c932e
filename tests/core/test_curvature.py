import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from headstart.algorithms import MOML, NASA, BSpiderBoost, LocalMOML, LocalSCGDM, MetaFL, MOMLv2
from headstart.core import (
    CURVATURES,
    Adaptation,
    Automatic,
    BatchSizes,
    Exact,
    FirstOrder,
    HessianFree,
    Sides,
    as_curvature,
    tree,
)
from headstart.errors import UsageError
from headstart.models import MLP

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


@pytest.fixture(scope="module")
def network():
    """A network with two hidden layers in single precision, its loss's gradient and exact products."""
    model = MLP(inputs=(20,), outputs=5, hidden=(16, 12), activation="elu")
    rng = np.random.default_rng(0)
    x, y = jnp.asarray(rng.random((40, 20)), jnp.float32), jnp.asarray(rng.integers(0, 5, 40))

    def loss(params):
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(model.apply(params, x)), y[:, None], axis=1))

    params = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), model.init(jax.random.key(0)))
    return params, jax.jit(jax.grad(loss))


MAGNITUDES = (10.0, 1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-6)


def relative_errors(curvature, network):
    """Of ``H v`` against the exact product, for vectors of several lengths."""
    params, gradient = network
    direction = gradient(params)
    length = tree.norm(direction)
    errors = []
    for magnitude in MAGNITUDES:
        v = jax.tree.map(lambda leaf, m=magnitude: (m / length * leaf).astype(jnp.float32), direction)
        _, exact = jax.jvp(gradient, (params,), (v,))
        # With lr = -1 the pullback is v + H v; far from v in size, so that taking v off loses nothing that matters.
        found = tree.sub(curvature.pull(gradient, params, -1e6, v), v)
        errors.append(float(tree.norm(tree.sub(tree.scale(1e-6, found), exact)) / tree.norm(exact)))
    return errors


def test_the_relative_radius_is_right_at_all_magnitudes_and_the_papers_is_not(network):
    relative, fixed = relative_errors(HessianFree(), network), relative_errors(HessianFree(1e-3), network)
    assert max(relative) < 0.02, relative
    assert fixed[1] < 0.02, fixed
    assert fixed[4] > 0.02, fixed  # at |v| = 0.001 rounding is taking over
    assert fixed[5] > 0.2, fixed
    assert fixed[6] > 0.99, fixed  # and at 0.000001 no digit is left


def test_a_vector_of_zeros_is_pulled_back_to_zeros():
    zeros = jnp.zeros(4)
    np.testing.assert_array_equal(HessianFree().pull(jax.grad(bumpy), jnp.asarray(W), LR, zeros), zeros)


def test_in_double_precision_the_relative_radius_gives_nine_digits():
    np.testing.assert_allclose(pull(HessianFree()), closed_form(W, V), atol=1e-9 * np.linalg.norm(V))


def automatic_parts():
    """A loss that is not quadratic, two batches, and a model."""
    rng = np.random.default_rng(1)
    inner, outer = jnp.asarray(rng.normal(size=(2, 3, 4))), jnp.asarray(rng.normal(size=(3, 4)))

    def loss(w, batch):
        return jnp.mean(jnp.log(jnp.cosh(batch @ w - 0.5))) + 0.05 * jnp.sum(w**4)

    return loss, inner, outer, jnp.asarray(W)


def test_automatic_is_the_gradient_through_the_inner_steps():
    loss, inner, outer, w = automatic_parts()
    adaptation = Adaptation(2, LR)

    def after(w):
        for batch in inner:
            w = w - LR * jax.grad(loss)(w, batch)
        return loss(w, outer)

    adapted = adaptation.run(loss, w, inner)
    v = jax.grad(loss)(adapted.params, outer)
    found = adaptation.pullback(loss, Automatic(), adapted.trajectory, inner, v)
    np.testing.assert_allclose(found, jax.grad(after)(w), rtol=1e-13)
    step = 1e-6
    for i in range(len(w)):
        ahead, behind = w.at[i].add(step), w.at[i].add(-step)
        assert float(found[i]) == pytest.approx(float(after(ahead) - after(behind)) / (2 * step), rel=1e-7)


ALL = {
    "meta-fl": MetaFL(inner_steps=2, local_steps=1, inner_lr=LR, outer_lr=1.0, curvature="automatic", batch_size=3),
    "moml": MOML(inner_lr=LR, outer_lr=1.0, averaging=1.0, curvature="automatic", batch_size=3),
    "nasa": NASA(inner_lr=LR, outer_lr=1.0, averaging=1.0, momentum=1.0, curvature="automatic", batch_size=3),
    "bspiderboost": BSpiderBoost(inner_lr=LR, outer_lr=1.0, curvature="automatic", large_batch_size=3),
    "local-moml": LocalMOML(
        inner_lr=LR, outer_lr=1.0, averaging=1.0, local_steps=1, curvature="automatic", batch_size=3
    ),
    "local-scgdm": LocalSCGDM(
        inner_lr=LR, outer_lr=1.0, averaging=1.0, momentum=1.0, local_steps=1, curvature="automatic", batch_size=3
    ),
}


class Recording:
    """A client that gives out batches of its own and remembers them, in the order in which they were drawn."""

    def __init__(self):
        self.drawn = {}

    def sample(self, key, size):
        return jax.random.normal(key, (size, 4))

    def episode(self, key):
        return Sides(self, self)


@pytest.mark.parametrize("name", ALL)
def test_every_method_steps_along_the_gradient_through_its_inner_steps(name):
    """Without memories, a first round's direction is that of ``jax.grad`` on the same batches."""
    algorithm, client, key = ALL[name], Recording(), jax.random.key(3)
    loss, _, _, w = automatic_parts()
    nu = 2 if name == "meta-fl" else 1
    server = algorithm.init_server(w)
    down = algorithm.broadcast(server, key)
    done = algorithm.client_update(loss, down, algorithm.init_client(w), client, key)
    moved = algorithm.server_update(server, done.up).params - w
    episode = BatchSizes(3).draw(client, jax.random.fold_in(key, 0), nu, "inner")
    np.testing.assert_array_equal(episode.curvature, episode.inner)

    def after(w):
        for batch in episode.inner:
            w = w - LR * jax.grad(loss)(w, batch)
        return loss(w, episode.outer)

    np.testing.assert_allclose(moved, -jax.grad(after)(w), rtol=1e-6)
    own = sum(dataclasses.replace(algorithm, curvature=Exact()).cost().batches.values())
    assert sum(algorithm.cost().batches.values()) <= own


def test_automatic_has_no_batch_of_its_own_to_be_sized():
    with pytest.raises(UsageError, match="curvature_batch_size = 5 is set"):
        MOML(curvature="automatic", curvature_batch_size=5)
    with pytest.raises(UsageError, match="curvature_batch_size = 5 is set"):
        MetaFL(curvature="automatic", curvature_batch_size=5)
    with pytest.raises(UsageError, match="MOML v2 has no inner step"):
        MOMLv2(curvature="automatic")


def test_automatic_is_biased_for_the_papers_objective_and_unbiased_for_the_sampled_one():
    """On a quadratic with random curvature both expectations are sums over the few samples there are."""
    curvatures, alpha, w = np.array([0.5, 3.0]), 0.4, 1.3
    # One sample has the loss c w^2 / 2; the mean loss has curvature m.
    m = curvatures.mean()
    independent = np.mean([[(1 - alpha * a) * m * (1 - alpha * b) * w for a in curvatures] for b in curvatures])
    automatic = np.mean([(1 - alpha * a) * m * (1 - alpha * a) * w for a in curvatures])
    meant = (1 - alpha * m) ** 2 * m * w
    assert independent == pytest.approx(meant)  # on a quadratic the independent estimator has no bias
    sampled = jax.grad(lambda v: jnp.mean(m * ((1 - alpha * curvatures) * v) ** 2 / 2))(w)
    assert automatic == pytest.approx(float(sampled))
    covariance = alpha**2 * m * curvatures.var() * w
    assert automatic - meant == pytest.approx(covariance)  # alpha^2 L sigma_H sigma_G, with sigma_G = sigma_H |w|
