"""The memory methods at the ends of their parameters, on the same random batches where both draw alike."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from headstart.algorithms import MOML, BSpiderBoost, LocalMOML, MOMLv2, maml, per_fedavg, scgd
from headstart.core import Memory
from headstart.simulate import Simulation
from headstart.simulate.rounds import RunState
from tests import toy

pytestmark = pytest.mark.usefixtures("x64")

TASK = {"inner_lr": 0.4, "outer_lr": 0.3, "batch_size": 4}
ROUNDS = 5


def simulation(algorithm, cohort=3):
    return Simulation(algorithm, toy.LOGISTIC, toy.federation(), cohort=cohort)


def trained(algorithm, cohort=3):
    sim = simulation(algorithm, cohort)
    sim.advance(ROUNDS)
    return toy.flat(sim.state.server.params)


def assert_same(one, other):
    assert np.abs(one - toy.flat(toy.start())).max() > 1e-2
    np.testing.assert_allclose(one, other, rtol=1e-8)


@pytest.mark.parametrize("curvature", ["exact", "first-order", "hessian-free"])
def test_moml_that_remembers_nothing_is_maml(curvature):
    options = TASK | {"curvature": curvature}
    assert_same(trained(MOML(averaging=1.0, **options)), trained(maml(**options)))


@pytest.mark.parametrize("keep", [False, True])
def test_local_moml_that_remembers_nothing_is_per_fedavg(keep):
    local = LocalMOML(averaging=1.0, local_steps=3, keep_memory=keep, **TASK)
    assert_same(trained(local), trained(per_fedavg(curvature="exact", local_steps=3, **TASK)))


def test_local_moml_of_one_step_that_remembers_nothing_is_maml():
    assert_same(trained(LocalMOML(averaging=1.0, local_steps=1, **TASK)), trained(maml(**TASK)))


def test_local_moml_of_one_step_that_keeps_its_memories_is_moml():
    local = LocalMOML(averaging=0.3, local_steps=1, keep_memory=True, **TASK)
    assert_same(trained(local), trained(MOML(averaging=0.3, **TASK)))


def test_moml_on_all_tasks_is_scgd():
    assert_same(trained(MOML(averaging=0.3, **TASK), 1.0), trained(scgd(averaging=0.3, **TASK), 1.0))


def test_bspiderboost_that_always_recomputes_is_maml():
    spider = BSpiderBoost(period=1, batch_size=1, large_batch_size=4, inner_lr=0.4, outer_lr=0.3)
    assert_same(trained(spider), trained(maml(**TASK)))


@pytest.mark.parametrize("averaging", [0.3, 1.0])
def test_moml_v2_on_all_tasks_is_moml(averaging):
    """From common memories: v2 has every memory begin at w_0, v1 each with its first adapted model.

    v1 is therefore given memories that have begun at w_0. On whole data, since v2 draws for other cohorts.
    """
    options = {"averaging": averaging, **TASK, "batch_size": "full"}
    v1, v2 = simulation(MOML(**options), 1.0), simulation(MOMLv2(**options), 1.0)
    everyone = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (5, *leaf.shape)).copy(), toy.start())
    v1.state = RunState(v1.state.server, Memory(everyone, jnp.ones(5, bool)))
    v1.advance(ROUNDS)
    v2.advance(ROUNDS)
    assert_same(toy.flat(v2.state.server.params), toy.flat(v1.state.server.params))
