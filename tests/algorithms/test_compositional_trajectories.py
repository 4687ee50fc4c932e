"""Full-batch rounds of the compositional methods on unequal clients, against the same rounds in numpy."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import headstart as hs
from headstart.algorithms import LocalSCGDM, local_bsgd, local_scgd
from headstart.core import HessianFree, StepDecay
from headstart.simulate import Simulation
from tests import toy
from tests.algorithms import composed, reference
from tests.algorithms.reference_compositional import Curved, Meta, local_scgdm

pytestmark = pytest.mark.usefixtures("x64")

ROUNDS, P, BETA, ETA, GAMMA, ALPHA, LAMBDA = 4, 3, 0.3, 0.8, 0.6, 0.9, 0.4
FULL = {"local_steps": P, "batch_size": "full", "inner_lr": LAMBDA}
GROUPS = [[0, 3], [1, 4]]


def constant(rate):
    return lambda k: rate


METHODS = {
    "local-scgdm": (
        LocalSCGDM(outer_lr=BETA, scale=ETA, averaging=GAMMA, momentum=ALPHA, **FULL),
        {"beta": constant(BETA * ETA), "gamma": GAMMA * ETA, "alpha": ALPHA * ETA},
    ),
    "local-scgdm, separate states": (
        LocalSCGDM(outer_lr=BETA, scale=ETA, averaging=GAMMA, momentum=ALPHA, separate_states=True, **FULL),
        {"beta": constant(BETA * ETA), "gamma": GAMMA * ETA, "alpha": ALPHA * ETA, "separate": True},
    ),
    "local-scgd": (
        local_scgd(outer_lr=StepDecay(BETA, (2,), factor=0.5), averaging=GAMMA, **FULL),
        {"beta": lambda k: BETA * 0.5 ** (k >= 2), "gamma": GAMMA, "alpha": 1},
    ),
    "local-bsgd": (local_bsgd(outer_lr=BETA, **FULL), {"beta": constant(BETA), "gamma": 1, "alpha": 1}),
}
PROBLEMS = {"curved": (composed.CURVED, Curved()), "meta": (toy.LOGISTIC, Meta(LAMBDA))}


def clients():
    return [train for train, _ in toy.client_arrays()]


def check(algorithm, problem, numpy_method, federation=None, cohort=3):
    """Run both; x, the losses and the state agree. Returns what numpy has left."""
    sim = Simulation(algorithm, problem, federation or toy.federation(), cohort=cohort)
    cohorts = toy.cohorts(sim, ROUNDS).tolist()
    losses = sim.advance(ROUNDS)["loss"].to_numpy()
    x, u, m, want_losses, own = numpy_method(sim)(toy.flat(toy.start()), clients(), cohorts)
    server = sim.state.server
    assert np.abs(x - toy.flat(toy.start())).max() > 1e-2
    np.testing.assert_allclose(toy.flat(server.params), x, rtol=1e-8)
    np.testing.assert_allclose(losses, want_losses, rtol=1e-8)
    for kept, want in ((server.inner, u), (server.gradient, m)):
        if kept is not None:
            np.testing.assert_allclose(composed.flat(kept), want, rtol=1e-8)
    assert int(server.round) == ROUNDS
    return sim, own


def test_the_reference_differentiates_itself():
    x, client, h = toy.flat(toy.start()), clients()[0], 1e-5
    curved = Curved()
    u = curved.inner(x, client)
    numeric = [(curved.inner(x + h * e, client) - curved.inner(x - h * e, client)) / (2 * h) for e in np.eye(len(x))]
    np.testing.assert_allclose(curved.jacobian(x, client).T, numeric, rtol=1e-7, atol=1e-9)
    slopes = [(curved.outer(u + h * e, client)[0] - curved.outer(u - h * e, client)[0]) / (2 * h) for e in np.eye(3)]
    np.testing.assert_allclose(curved.outer(u, client)[1], slopes, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("name", METHODS)
def test_one_task_a_client(name, problem):
    (algorithm, symbols), (given, composition) = METHODS[name], PROBLEMS[problem]
    sim, own = check(algorithm, given, lambda sim: partial(local_scgdm, composition=composition, p=P, **symbols))
    check_memories(sim, own, [[i] for i in range(len(clients()))])


def check_memories(sim, own, groups):
    """The clients' own memories are numpy's, and those that were never drawn have not begun."""
    if not own:
        assert sim.state.clients == ()
        return
    states = toy.to_numpy(sim.state.clients)
    values, begun = composed.flat(states.value), states.started
    if sim.algorithm.tasks_per_client == 1:
        values, begun = values[:, None], begun[:, None]
    for client, group in enumerate(groups):
        for slot, task in enumerate(group):
            assert begun[client, slot] == (task in own)
            if task in own:
                np.testing.assert_allclose(values[client, slot], own[task], rtol=1e-8)


@pytest.mark.parametrize(
    ("curvature", "product"),
    [("first-order", reference.first_order), (HessianFree(1e-2), reference.hessian_free(1e-2))],
)
def test_other_curvatures(curvature, product):
    algorithm = LocalSCGDM(outer_lr=BETA, averaging=GAMMA, momentum=ALPHA, curvature=curvature, **FULL)
    symbols = {"beta": constant(BETA), "gamma": GAMMA, "alpha": ALPHA, "p": P}
    check(algorithm, toy.LOGISTIC, lambda sim: partial(local_scgdm, composition=Meta(LAMBDA, product), **symbols))


@pytest.mark.parametrize("tasks_per_step", [1, 2])
@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("problem", PROBLEMS)
def test_several_tasks_a_client(problem, separate, tasks_per_step):
    given, composition = PROBLEMS[problem]
    algorithm = LocalSCGDM(
        outer_lr=BETA, averaging=GAMMA, momentum=ALPHA, separate_states=separate,
        tasks_per_client=2, tasks_per_step=tasks_per_step, **FULL,
    )  # fmt: skip
    symbols = {"beta": constant(BETA), "gamma": GAMMA, "alpha": ALPHA, "separate": separate, "p": P}
    sim, own = check(
        algorithm,
        given,
        lambda sim: partial(local_scgdm, composition=composition, drawn=composed.drawn_tasks(sim, GROUPS), **symbols),
        federation=toy.federation().grouped(GROUPS),
        cohort=2,
    )
    check_memories(sim, own, GROUPS)


def test_several_tasks_without_memory_are_maml_on_each():
    algorithm = local_bsgd(outer_lr=BETA, tasks_per_client=2, tasks_per_step=2, **FULL)
    symbols = {"beta": constant(BETA), "gamma": 1, "alpha": 1, "separate": True, "p": P}
    method = partial(local_scgdm, composition=Meta(LAMBDA), drawn=lambda k, i, t: GROUPS[i], **symbols)
    check(algorithm, toy.LOGISTIC, lambda sim: method, federation=toy.federation().grouped(GROUPS), cohort=2)


def test_with_one_memory_for_all_tasks_a_step_is_the_gradient_of_f_of_the_mean_of_g():
    """What the shared u minimises, by automatic differentiation of the function itself."""
    federation = toy.federation().grouped([[0, 1, 2, 3, 4]])
    algorithm = LocalSCGDM(outer_lr=1.0, averaging=1.0, momentum=1.0, tasks_per_client=5, tasks_per_step=5,
                           **(FULL | {"local_steps": 1}))  # fmt: skip
    sim = Simulation(algorithm, composed.CURVED, federation)
    sim.advance(1)

    def objective(params):
        data = [hs.Examples(*map(jnp.asarray, client)) for client in clients()]
        g = jax.tree.map(lambda *values: sum(values) / 5, *(composed.inner(params, batch) for batch in data))
        return sum(composed.outer(g, batch) for batch in data) / 5

    step = toy.flat(toy.start()) - toy.flat(jax.grad(objective)(toy.start()))
    np.testing.assert_allclose(toy.flat(sim.state.server.params), step, rtol=1e-10)


def test_a_plain_loss_is_personalized_by_fine_tuning_and_a_composition_not_at_all():
    view = toy.federation().clients.view("support", jnp.asarray(1))
    for problem in (toy.LOGISTIC, composed.CURVED):
        algorithm = METHODS["local-scgdm"][0]
        down = algorithm.broadcast(algorithm.init_server(toy.start()), jax.random.key(0))
        own = algorithm.personalize(problem.objective(), down, (), view, jax.random.key(1), 2, "full")
        steps = 2 if problem is toy.LOGISTIC else 0
        want = reference.fine_tuned(toy.flat(toy.start()), clients()[1], lr=LAMBDA, steps=steps)
        np.testing.assert_allclose(toy.flat(own), want, rtol=1e-8)
