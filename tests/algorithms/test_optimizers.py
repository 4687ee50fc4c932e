"""Optimisers in the slots of every method that has them."""

import dataclasses
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import headstart as hs
from headstart.core import Shapes, WithOptimizer
from headstart.errors import UsageError
from headstart.simulate import Simulation
from headstart.simulate.rounds import draw_cohorts, run_chunk
from tests import toy
from tests.algorithms import reference
from tests.algorithms.contract import CONTRACT, setting

ROUNDS = 3


def has(name, slot):
    return any(field.name == slot for field in dataclasses.fields(CONTRACT[name]))


def run(algorithm, name="fedavg"):
    sim = Simulation(algorithm, *setting(name), cohort=1.0 if algorithm.needs_everyone else 3)
    return sim, sim.advance(ROUNDS)["loss"].to_numpy()


@cache
def run_once(name, without=None):
    """Parameters and losses of a method as it stands, or without an optimiser that it has in a slot."""
    plain = CONTRACT[name]
    sim, losses = run(dataclasses.replace(plain, **{without: None}) if without else plain, name)
    return toy.to_numpy(sim.state.server.params), losses


def assert_same(got, want):
    (sim, losses), (params, want_losses) = got, want
    np.testing.assert_allclose(losses, want_losses, rtol=1e-5)
    toy.assert_close(toy.to_numpy(sim.state.server.params), params, 1e-5)


SERVED = [name for name in CONTRACT if has(name, "server_optimizer")]
LOCAL = [name for name in CONTRACT if has(name, "client_optimizer")]
VARYING = {"moml-v2, gradient-lipschitz", "meta-fl, exact", "meta-fl, first-order"}
"""Their step size is another one in every round, which a plain optimiser's is not."""


def test_slots_are_missing_only_where_a_reason_is_given():
    for name, algorithm in CONTRACT.items():
        for slot in ("server_optimizer", "client_optimizer"):
            assert has(name, slot) != (slot in algorithm.refuses), (name, slot)


@pytest.mark.parametrize("name", [name for name in SERVED if name != "moml-v2, gradient-lipschitz"])
def test_a_server_that_takes_optax_plain_steps_is_the_papers(name):
    """SGD with the step size that the plain move has: 1 for the way travelled, the method's own along a gradient."""
    plain = CONTRACT[name]
    rate = {"reptile": plain.outer_lr, "pfedme": 0.8} if name in ("reptile", "pfedme") else {}
    one_step = {"bspiderboost", "scgd", "nasa", "moml", "moml, first-order", "moml-v2", "protonet"}
    lr = plain.outer_lr if name in one_step else rate.get(name, 1.0)
    want = run_once(name, None if plain.server_optimizer is None else "server_optimizer")
    assert_same(run(dataclasses.replace(plain, server_optimizer=optax.sgd(lr)), name), want)


@pytest.mark.parametrize("name", [name for name in LOCAL if name not in VARYING])
@pytest.mark.parametrize("keep", [True, False])
def test_a_client_that_takes_optax_plain_steps_is_the_papers(name, keep):
    plain = CONTRACT[name]
    lr = plain.inner_lr if name == "reptile" else plain.outer_lr
    lr = lr * plain.scale if name.startswith("local-scgdm") else lr
    optimizer = optax.sgd(lr, momentum=0.0)  # with a trace, so that there is something to keep
    changed = dataclasses.replace(plain, client_optimizer=optimizer, keep_client_optimizer=keep)
    sim, losses = run(changed, name)
    assert_same((sim, losses), run_once(name))
    assert isinstance(sim.state.clients, WithOptimizer) == keep


def numpy_local(w, client, steps, eta, mu, velocity):
    for _ in range(steps):
        velocity = mu * velocity + reference.gradient(w, client)
        w = w - eta * velocity
    return w, velocity


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("keep", [True, False])
def test_momentum_at_the_client_is_kept_or_restarted_as_said(keep):
    eta, mu, steps = 0.2, 0.7, 3
    algorithm = hs.fedavg(
        local_steps=steps, batch_size="full", client_optimizer={"name": "sgd", "learning_rate": eta, "momentum": mu},
        keep_client_optimizer=keep,
    )  # fmt: skip
    sim = Simulation(algorithm, toy.LOGISTIC, toy.federation(), cohort=3)
    cohorts = toy.cohorts(sim, ROUNDS).tolist()
    sim.advance(ROUNDS)
    clients = [train for train, _ in toy.client_arrays()]
    w, velocities = toy.flat(toy.start()), np.zeros((len(clients), 4))
    for cohort in cohorts:
        ends = []
        for i in cohort:
            begun = velocities[i] if keep else np.zeros(4)
            end, velocities[i] = numpy_local(w, clients[i], steps, eta, mu, begun)
            ends.append(end)
        w = np.mean(ends, axis=0)
    np.testing.assert_allclose(toy.flat(sim.state.server.params), w, rtol=1e-8)


@pytest.mark.usefixtures("x64")
def test_fedadam_is_the_papers_on_whole_rounds():
    eta, b1, b2, tau, beta, steps = 0.1, 0.8, 0.9, 0.01, 0.2, 2
    algorithm = hs.fedadam(
        server_lr=eta, momentum=b1, averaging=b2, tau=tau, outer_lr=beta, local_steps=steps, batch_size="full"
    )
    sim = Simulation(algorithm, toy.LOGISTIC, toy.federation(), cohort=3)
    cohorts = toy.cohorts(sim, ROUNDS).tolist()
    sim.advance(ROUNDS)
    clients = [train for train, _ in toy.client_arrays()]
    w, m, v = toy.flat(toy.start()), np.zeros(4), np.full(4, tau**2)
    for cohort in cohorts:
        end, _ = reference.fedavg(w, clients, [cohort], beta=lambda k: beta, tau=steps)
        delta = end - w
        m, v = b1 * m + (1 - b1) * delta, b2 * v + (1 - b2) * delta**2
        w = w + eta * m / (np.sqrt(v) + tau)
    np.testing.assert_allclose(toy.flat(sim.state.server.params), w, rtol=1e-8)


def test_a_schedule_of_optax_is_a_step_size():
    schedule = optax.linear_schedule(0.3, 0.0, ROUNDS)
    sim, _ = run(hs.fedavg(outer_lr=schedule, local_steps=1, batch_size="full"))
    downs = [float(sim.algorithm.broadcast(sim.state.server._replace(round=k), None).lr) for k in range(ROUNDS + 1)]
    np.testing.assert_allclose(downs, [0.3, 0.2, 0.1, 0.0], atol=1e-7)


def test_keeping_the_state_of_no_optimiser_is_refused():
    with pytest.raises(UsageError, match="no client_optimizer"):
        hs.fedavg(keep_client_optimizer=True)


# A model's type stays what it is, whatever that of step sizes and schedules.
def of_precision(name, precision):
    params = jax.tree.map(lambda leaf: leaf.astype(precision), toy.start())
    return Simulation(CONTRACT[name], *setting(name), cohort=1.0 if CONTRACT[name].needs_everyone else 3, params=params)


@pytest.mark.parametrize("name", [n for n in CONTRACT if n != "protonet"])
@pytest.mark.parametrize("precision", ["bfloat16", pytest.param("float16", marks=pytest.mark.slow)])
def test_models_of_any_precision_train(name, precision):
    sim = of_precision(name, precision)
    before = Shapes.of(sim.state)
    history = sim.advance(2)
    assert Shapes.of(sim.state) == before
    assert np.isfinite(history["loss"].to_numpy()).all()
    assert {leaf.dtype for leaf in jax.tree.leaves(sim.state.server.params)} == {jnp.dtype(precision)}


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", [n for n in CONTRACT if n != "protonet"])
def test_single_precision_stays_so_where_double_is_the_default(name):
    """Types are known once a round is traced, and need no compiling."""
    sim, first = of_precision(name, "float32"), jnp.asarray(0, jnp.int32)
    cohorts = draw_cohorts(sim.plan, sim.keys, first, 2)
    state, _ = run_chunk.eval_shape(
        sim.problem, sim.plan, sim.algorithm, None, sim.federation.clients, sim.state, sim.keys, cohorts, first,
        jnp.asarray(2, jnp.int32),
    )  # fmt: skip
    assert Shapes.of(state) == Shapes.of(sim.state)
    assert {leaf.dtype for leaf in jax.tree.leaves(state.server.params)} == {jnp.dtype("float32")}
