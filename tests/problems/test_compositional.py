import jax
import jax.numpy as jnp
import numpy as np
import pytest

import headstart as hs
from headstart.core import Weighted
from headstart.errors import UsageError
from headstart.metrics import Metric
from tests import toy

VALUES = np.array([[1.0, 4.0, 2.0], [0.5, 3.0, 7.0]])


def moments(x, batch):
    return {"first": jnp.mean(x * batch), "second": jnp.mean((x * batch) ** 2)}


def variance(u, batch):
    return u["second"] - u["first"] ** 2


VARIANCE = hs.CompositionalProblem(lambda key: jnp.ones(()), moments, variance)


def test_the_loss_of_a_batch_is_f_of_g_and_not_the_mean_of_the_samples():
    np.testing.assert_allclose(VARIANCE.loss(2.0, jnp.asarray(VALUES[0])), 4 * VALUES[0].var(), rtol=1e-6)
    assert set(VARIANCE.scores(2.0, jnp.asarray(VALUES[0]))) == {"loss"}


def test_weights_enter_each_level_on_its_own():
    """A filled-up batch scores as the batch itself: the variance of two samples, where one sample has none."""
    filled = Weighted(jnp.asarray(VALUES[0]), jnp.asarray([1.0, 1.0, 0.0]))
    np.testing.assert_allclose(VARIANCE.scores(1.0, filled)["loss"], VALUES[0, :2].var(), rtol=1e-6)
    objective = VARIANCE.objective()
    u = objective.inner(1.0, filled)
    np.testing.assert_allclose(u["first"], VALUES[0, :2].mean(), rtol=1e-6)
    np.testing.assert_allclose(objective.outer(u, filled), VALUES[0, :2].var(), rtol=1e-6)
    spoilt = Weighted(filled.samples.at[2].set(jnp.nan), filled.weight)
    np.testing.assert_allclose(VARIANCE.scores(1.0, spoilt)["loss"], VALUES[0, :2].var(), rtol=1e-6)


def test_unequal_clients_are_evaluated_on_their_own_samples():
    rows = [np.arange(3), np.arange(3, 5)]
    pool = np.array([1.0, 4.0, 2.0, 10.0, 30.0])
    mean = Metric.from_function("mean", lambda outputs, targets: outputs)
    problem = hs.CompositionalProblem(
        lambda key: jnp.ones(()), moments, variance, lambda x, batch: (x * batch, batch), metrics=(mean,)
    )
    sim = hs.Simulation(hs.local_bsgd(batch_size=2), problem, hs.Federation.from_arrays(pool, rows, rows))
    table = sim.evaluate(hs.Evaluation())
    np.testing.assert_allclose(table["loss"].to_numpy(), [pool[:3].var(), pool[3:].var()] * 2, rtol=1e-6)
    np.testing.assert_allclose(table["mean"].to_numpy(), [pool[:3].mean(), pool[3:].mean()] * 2, rtol=1e-6)


def test_the_pullback_is_the_transposed_jacobian():
    x, batch, v = jnp.asarray(1.5), jnp.asarray(VALUES[0]), {"first": jnp.asarray(2.0), "second": jnp.asarray(-1.0)}
    want = 2 * VALUES[0].mean() - 2 * 1.5 * (VALUES[0] ** 2).mean()
    np.testing.assert_allclose(VARIANCE.objective().pull(x, batch, v), want, rtol=1e-6)


def simulate(inner, outer, algorithm=None):
    problem = hs.CompositionalProblem(lambda key: jnp.ones(3), inner, outer)
    return hs.Simulation(algorithm or hs.LocalSCGDM(batch_size=2), problem, toy.federation())


@pytest.mark.parametrize(
    ("inner", "outer", "words"),
    [
        (
            lambda x, b: {"a": b.x @ x, "b": x},
            lambda u, b: jnp.sum(u["a"] + u["b"]),
            r"outer_fn failed on what inner_fn returns, \{'a': float32\[2\], 'b': float32\[3\]\}.*incompatible shapes",
        ),
        (lambda x, b: jnp.outer(x, x), lambda u, b: u @ b.x[0], r"outer_fn makes float32\[3\] of .* float32\[3, 3\]"),
        (lambda x, b: (x, x), lambda u, b: u["a"], r"outer_fn failed on .*\(float32\[3\], float32\[3\]\).*TypeError"),
        (lambda x, b: jnp.ones((4, 2)) @ x, lambda u, b: u[0], r"inner_fn failed on parameters float32\[3\]"),
        (lambda x, b: b.z, lambda u, b: u, "inner_fn failed on .*AttributeError"),
        (lambda x, b: {"n": jnp.arange(3)}, lambda u, b: 1.0, r"leaf \['n'\] is not of floating point"),
        (lambda x, b: x, lambda u, b: (u[0], u[1]), r"outer_fn makes \(float32\[\], float32\[\]\)"),
    ],
)
def test_levels_that_do_not_fit_are_named_before_anything_is_compiled(inner, outer, words):
    with pytest.raises(UsageError, match=f"(?s){words}"):
        simulate(inner, outer)


def test_methods_that_minimise_a_loss_refuse_it():
    with pytest.raises(UsageError, match="MetaFL minimises a loss; it cannot work on a CompositionalProblem"):
        simulate(lambda x, b: x, lambda u, b: jnp.sum(u), hs.per_fedavg(batch_size=2))


def test_everyone_keeps_the_shared_model():
    sim = simulate(lambda x, b: x, lambda u, b: jnp.sum(u**2) + jnp.mean(b.x), hs.local_scgd(batch_size=2))
    sim.advance(1)
    down = sim.algorithm.broadcast(sim.state.server, jax.random.key(0))
    view = sim.federation.clients.view("support", jnp.asarray(0))
    own = sim.algorithm.personalize(sim.problem.objective(), down, (), view, jax.random.key(0), 3, 2)
    np.testing.assert_array_equal(own, sim.state.server.params)
