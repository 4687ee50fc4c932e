"""The measured meta-gradient is the gradient of the measured meta-loss, and a run is followed at its rounds' starts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import headstart as hs
from headstart.theory.measure import MetaLoss, trace
from tests import toy

INNER_LR = 0.3


def meta_loss_by_hand(params, steps, held_out=0):
    """F as one differentiable function, from the clients' arrays."""
    total = 0.0
    clients = toy.client_arrays()[: len(toy.SIZES) - held_out]
    for (x, y), _ in clients:
        batch = hs.Examples(jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32))
        adapted = params
        for _ in range(steps):
            slope = jax.grad(toy.logistic_loss)(adapted, batch)
            adapted = jax.tree.map(lambda w, g: w - INNER_LR * g, adapted, slope)
        total = total + toy.logistic_loss(adapted, batch)
    return total / len(clients)


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_value_and_gradient_are_those_of_the_mean_over_training_clients(steps):
    params = toy.start()
    look = MetaLoss(toy.LOGISTIC, toy.federation(held_out=2), INNER_LR, steps).at(params)
    value, gradient = jax.value_and_grad(meta_loss_by_hand)(params, steps, held_out=2)
    assert look.value == pytest.approx(float(value), rel=1e-5)
    assert look.squared_gradient == pytest.approx(float(jnp.sum(ravel_pytree(gradient)[0] ** 2)), rel=1e-4)


def test_some_clients_may_stand_for_all():
    one = MetaLoss(toy.LOGISTIC, toy.federation(), INNER_LR, clients=[3]).at(toy.start())
    assert one.value != MetaLoss(toy.LOGISTIC, toy.federation(), INNER_LR).at(toy.start()).value


def test_a_run_is_followed_from_its_start():
    def simulation():
        method = hs.per_fedavg(inner_lr=INNER_LR, outer_lr=0.2, local_steps=2, batch_size=4)
        return hs.Simulation(method, toy.LOGISTIC, toy.federation(), seed=1)

    meta_loss = MetaLoss(toy.LOGISTIC, toy.federation(), INNER_LR)
    followed, seen = simulation(), []
    found = trace(followed, meta_loss, rounds=5, observer=seen.append)
    assert followed.round == 5
    assert found.rounds.tolist() == [0, 1, 2, 3, 4]
    assert seen == [1, 2, 3, 4, 5]
    alone = simulation()
    alone.advance(4)
    expected = [meta_loss.at(toy.start()).squared_gradient, meta_loss.at(alone.state.server.params).squared_gradient]
    np.testing.assert_allclose(found.squared_gradients[[0, 4]], expected, rtol=1e-5)
    moved = ravel_pytree(alone.state.server.params)[0] - ravel_pytree(toy.start())[0]
    np.testing.assert_allclose(found.distances[[0, 4]], [0, np.linalg.norm(moved)], rtol=1e-5)
    np.testing.assert_allclose(found.running_average[-1], found.squared_gradients.mean())
    fewer = trace(simulation(), meta_loss, rounds=5, looks=2)
    assert fewer.rounds.tolist() == [0, 4]
    np.testing.assert_allclose(fewer.running_average[-1], fewer.squared_gradients.mean())


def test_a_problem_without_a_plain_loss_is_refused():
    composed = hs.CompositionalProblem(
        init_fn=lambda key: jnp.zeros(2), inner_fn=lambda w, batch: w, outer_fn=lambda u, batch: jnp.sum(u**2)
    )
    with pytest.raises(hs.UsageError, match="no plain loss"):
        MetaLoss(composed, toy.federation(), INNER_LR)
