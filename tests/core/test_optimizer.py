"""Optax in the slots: names, objects, schedules, and the papers' server optimisers against numpy."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from headstart.core import OPTIMIZERS, SCHEDULES, Diminishing, as_optimizer, as_step_size, step_size_at
from headstart.core.fedopt import fedopt
from headstart.errors import UsageError

ROUNDS, ETA, B1, B2, TAU = 5, 0.1, 0.8, 0.9, 0.05
MOVES = np.random.default_rng(0).normal(size=(ROUNDS, 4)) * [1, 0.1, 3, 0]


def adaptive(kind):
    """Reddi et al. 2021, Algorithm 2, on given moves of the clients."""
    x, m, v, path = np.zeros(4), np.zeros(4), np.full(4, TAU**2), []
    for delta in MOVES:
        m = B1 * m + (1 - B1) * delta
        square = delta**2
        if kind == "adagrad":
            v = v + square
        elif kind == "yogi":
            v = v - (1 - B2) * square * np.sign(v - square)
        else:
            v = B2 * v + (1 - B2) * square
        x = x + ETA * m / (np.sqrt(v) + TAU)
        path.append(x)
    return np.stack(path)


def momentum():
    x, velocity, path = np.zeros(4), np.zeros(4), []
    for delta in MOVES:
        velocity = B1 * velocity + delta
        x = x + ETA * velocity
        path.append(x)
    return np.stack(path)


def walked(optimizer):
    """Where an optimiser goes that is given minus the moves as gradients."""

    def step(carry, delta):
        carry = optimizer.step(*carry[:1], -delta, carry[1])
        return carry, carry[0]

    start = jnp.zeros(4)
    return np.asarray(jax.lax.scan(step, (start, optimizer.init(start)), jnp.asarray(MOVES))[1])


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("kind", ["adagrad", "adam", "yogi"])
def test_the_adaptive_server_optimisers_are_the_papers(kind):
    named = as_optimizer({"name": f"fed{kind}", "learning_rate": ETA, "b1": B1, "b2": B2, "tau": TAU})
    np.testing.assert_allclose(walked(named), adaptive(kind), rtol=1e-12)
    given = as_optimizer(fedopt(kind)(ETA, B1, B2, TAU))
    np.testing.assert_allclose(walked(given), adaptive(kind), rtol=1e-12)


@pytest.mark.usefixtures("x64")
def test_momentum_at_the_server():
    named = as_optimizer({"name": "sgd", "learning_rate": ETA, "momentum": B1})
    np.testing.assert_allclose(walked(named), momentum(), rtol=1e-12)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_name_is_what_optax_builds_and_its_numbers_may_be_swept(name):
    optimizers = jax.tree.map(
        lambda *rates: jnp.stack(rates), *(as_optimizer({"name": name, "learning_rate": lr}) for lr in (0.1, 0.2))
    )
    assert jax.tree.leaves(optimizers)[0].shape == (2,)

    def end(optimizer):
        params = jnp.ones(3)
        return optimizer.step(params, jnp.asarray([1.0, -2.0, 0.5]), optimizer.init(params))[0]

    together = jax.vmap(end)(optimizers)
    np.testing.assert_allclose(together[1], end(as_optimizer({"name": name, "learning_rate": 0.2})), rtol=1e-5)
    if hasattr(optax, name):
        np.testing.assert_allclose(together[1], end(as_optimizer(getattr(optax, name)(0.2))), rtol=1e-5)


def test_flags_stay_flags():
    nesterov = as_optimizer({"name": "sgd", "learning_rate": 0.1, "momentum": 0.9, "nesterov": True})
    params = jnp.ones(2)
    new, _ = jax.jit(lambda opt, p: opt.step(p, p, opt.init(p)))(nesterov, params)
    want, _ = as_optimizer(optax.sgd(0.1, momentum=0.9, nesterov=True)).step(params, params, nesterov.init(params))
    np.testing.assert_allclose(new, want)


def test_a_learning_rate_may_be_a_schedule():
    schedule = optax.linear_schedule(1.0, 0.0, 4)
    for rate in (schedule, as_step_size(schedule)):
        path = walked(as_optimizer({"name": "sgd", "learning_rate": rate}))
        np.testing.assert_allclose(path[1] - path[0], 0.75 * MOVES[1], rtol=1e-5, atol=1e-7)


def test_schedules_by_name_are_optax_and_ours():
    cosine = SCHEDULES["cosine-decay"](init_value=0.5, decay_steps=10)
    for k in (0, 3, 10):
        np.testing.assert_allclose(step_size_at(cosine, k), optax.cosine_decay_schedule(0.5, 10)(k))
    assert as_step_size(0.3) == 0.3
    assert isinstance(as_step_size(Diminishing(0.1, local_steps=2)), Diminishing)
    with pytest.raises(UsageError, match="decay_steps"):
        SCHEDULES["cosine-decay"](init_value=0.5, decay_steps=0)


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ("adm", "adam"),
        ({"name": "adam"}, "learning_rate"),
        ({"name": "adam", "learning_rate": 0.1, "beta": 0.9}, "no setting 'beta'"),
        ({"name": "adam", "learning_rate": "fast"}, "not a number"),
        (3, "is no optimiser"),
    ],
)
def test_refusals_name_the_offender(choice, words):
    with pytest.raises(UsageError, match=words):
        as_optimizer(choice)
