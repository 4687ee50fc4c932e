"""Compositional methods that become one another at the ends of their parameters, and what they never compute."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params

import headstart as hs
from headstart.algorithms import LocalSCGDM, local_bsgd, local_scgd, per_fedavg
from headstart.errors import UsageError
from headstart.simulate import Simulation
from tests import toy
from tests.algorithms import composed

pytestmark = pytest.mark.usefixtures("x64")

LOCAL = {"outer_lr": 0.3, "inner_lr": 0.4, "local_steps": 3}
SMALL = LOCAL | {"batch_size": 4, "inner_batch_size": 3}
FULL = LOCAL | {"batch_size": "full"}
PROBLEMS = pytest.mark.parametrize("problem", [toy.LOGISTIC, composed.CURVED], ids=["meta", "curved"])


def trained(algorithm, problem, rounds=3, federation=None, **options):
    sim = Simulation(algorithm, problem, federation or toy.federation(), **options)
    sim.advance(rounds)
    return toy.flat(sim.state.server.params)


def same(one, other):
    np.testing.assert_allclose(one, other, rtol=1e-8)


def differ(one, other):
    assert np.abs(one - other).max() > 1e-6


@PROBLEMS
def test_without_momentum_local_scgdm_is_local_scgd(problem):
    """On the same random batches; alpha eta = 1 and gamma eta = 0.6."""
    limit = LocalSCGDM(**(SMALL | {"outer_lr": 0.6}), scale=0.5, averaging=1.2, momentum=2.0)
    same(trained(limit, problem, cohort=3), trained(local_scgd(averaging=0.6, **SMALL), problem, cohort=3))


@PROBLEMS
@pytest.mark.parametrize("separate", [False, True])
def test_without_memory_too_it_is_local_bsgd(problem, separate):
    limit = LocalSCGDM(**SMALL, averaging=1.0, momentum=1.0, separate_states=separate)
    same(trained(limit, problem, cohort=3), trained(local_bsgd(**SMALL), problem, cohort=3))


@pytest.mark.parametrize("curvature", ["exact", "hessian-free", "first-order"])
def test_local_bsgd_on_a_loss_is_per_fedavg(curvature):
    """On whole client data, since a curvature batch of its own is all that sets Per-FedAvg apart."""
    options = FULL | {"curvature": curvature}
    same(trained(local_bsgd(**options), toy.LOGISTIC), trained(per_fedavg(**options), toy.LOGISTIC))


def test_where_curvature_needs_no_batch_local_bsgd_is_per_fedavg_on_the_same_batches():
    options = SMALL | {"curvature": "first-order"}
    same(trained(local_bsgd(**options), toy.LOGISTIC), trained(per_fedavg(**options), toy.LOGISTIC))


MEMORY = {"averaging": 0.3, "momentum": 0.8}


@PROBLEMS
def test_separate_states_are_the_shared_one_where_there_is_one_client(problem):
    alone = toy.federation(sizes=(5,))
    one, own = (
        trained(LocalSCGDM(**SMALL, **MEMORY, separate_states=separate), problem, federation=alone)
        for separate in (False, True)
    )
    same(own, one)


@PROBLEMS
def test_separate_states_are_the_shared_one_until_it_is_first_averaged_over_clients(problem):
    """One task a client: the first round is the same. In the second, the shared memory starts from the average."""
    shared, separate = (
        Simulation(LocalSCGDM(**SMALL, **MEMORY, separate_states=s), problem, toy.federation()) for s in (False, True)
    )
    for after in (same, differ):
        shared.advance(1)
        separate.advance(1)
        after(toy.flat(separate.state.server.params), toy.flat(shared.state.server.params))


def largest_array(jaxpr):
    """Elements of the largest array anywhere in a program."""
    sizes = [0]
    for equation in jaxpr.eqns:
        sizes += [np.prod(v.aval.shape) for v in equation.outvars if hasattr(v.aval, "shape")]
        sizes += [largest_array(inner) for inner in jaxprs_in_params(equation.params)]
    return max(sizes)


@pytest.mark.parametrize(
    "algorithm",
    [
        LocalSCGDM(batch_size=2),
        LocalSCGDM(batch_size=2, separate_states=True),
        local_scgd(batch_size=2),
        local_bsgd(batch_size=2),
    ],
    ids=["local-scgdm", "separate states", "local-scgd", "local-bsgd"],
)
def test_no_jacobian_is_ever_formed(algorithm):
    """A g from 1000 to 1000 numbers: its Jacobian would be a million, and nothing is nearly as large."""
    size = 1000
    problem = hs.CompositionalProblem(
        lambda key: jnp.zeros(size),
        lambda x, batch: jnp.sin(x) * jnp.mean(batch) + jnp.roll(x, 1) ** 2,
        lambda u, batch: jnp.sum(jnp.cosh(u)) * jnp.mean(batch),
    )
    federation = hs.Federation.from_tasks(jnp.ones(2), lambda task, key, n: jnp.full(n, task), query_size=1)
    sim = Simulation(algorithm, problem, federation)
    state = sim.algorithm.init_client(jnp.zeros(size))
    down = sim.algorithm.broadcast(sim.state.server, jax.random.key(0))
    view = federation.clients.view("train", jnp.asarray(0))
    program = jax.make_jaxpr(
        lambda down: sim.algorithm.client_update(problem.objective(), down, state, view, jax.random.key(1))
    )(down)
    assert size <= largest_array(program.jaxpr) <= 10 * size


def test_a_jacobian_would_be_noticed():
    program = jax.make_jaxpr(jax.jacobian(lambda x: jnp.roll(x, 1) ** 2))(jnp.ones(1000))
    assert largest_array(program.jaxpr) >= 1000**2


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: LocalSCGDM(averaging=2.0), r"averaging \* scale = 2.0 lies outside \(0, 1\]"),
        (lambda: LocalSCGDM(scale=0.5, momentum=2.5), r"momentum \* scale = 1.25 lies outside \(0, 1\]"),
        (lambda: LocalSCGDM(averaging=0.0), "averaging = 0.0 is not above 0"),
        (lambda: LocalSCGDM(scale=0), "scale = 0 is not above 0"),
        (lambda: LocalSCGDM(momentum="0.5"), "momentum = '0.5' is not a number"),
        (lambda: LocalSCGDM(inner_batch_size=0), "inner_batch_size = 0 is not a batch size"),
        (lambda: LocalSCGDM(tasks_per_step=2), "tasks_per_step = 2 exceeds tasks_per_client = 1"),
        (lambda: local_scgd(averaging=1.5), r"averaging \* scale = 1.5"),
        (lambda: local_bsgd(local_steps=0), "local_steps = 0"),
    ],
)
def test_refusals(build, words):
    with pytest.raises(UsageError, match=words):
        build()


def test_averages_may_have_weight_one():
    LocalSCGDM(scale=0.1, averaging=10.0, momentum=10.0)


def test_more_tasks_than_clients_have_are_refused():
    algorithm = LocalSCGDM(batch_size=2, tasks_per_client=3, tasks_per_step=3)
    with pytest.raises(UsageError, match="clients have 2 to 3 tasks"):
        Simulation(algorithm, toy.LOGISTIC, toy.federation().grouped([[0, 1], [2, 3, 4]]))
