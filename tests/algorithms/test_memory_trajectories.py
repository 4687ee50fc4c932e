"""Full-batch rounds of the memory methods on unequal clients, against the same rounds in numpy."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from headstart.algorithms import MOML, NASA, BSpiderBoost, LocalMOML, MOMLv2, maml, scgd
from headstart.core import HessianFree, StepDecay, client_key, draw_tasks, recall, round_key
from headstart.errors import UsageError
from headstart.simulate import Simulation
from headstart.simulate.rounds import draw_cohorts
from tests import toy
from tests.algorithms import reference, reference_memory
from tests.algorithms.test_trajectories import check_personal

pytestmark = pytest.mark.usefixtures("x64")

ROUNDS, ALPHA, BETA, ETA, RADIUS = 7, 0.4, 0.3, 0.5, 1e-2
TASK = {"inner_lr": ALPHA, "outer_lr": StepDecay(ETA, (4,), factor=0.5), "batch_size": "full"}
CLIENTS = [train for train, _ in toy.client_arrays()]
EVERYONE = [range(len(CLIENTS))] * ROUNDS

CURVATURES = {
    "exact": ("exact", reference.exact),
    "first-order": ("first-order", reference.first_order),
    "hessian-free": (HessianFree(RADIUS), reference.hessian_free(RADIUS)),
}
curvatures = pytest.mark.parametrize("name", CURVATURES)


def eta(k):
    return ETA * 0.5 ** (k >= 4)


def run(algorithm, cohort=3):
    """The simulation after its rounds, its losses, and who took part in either capacity."""
    sim = Simulation(algorithm, toy.LOGISTIC, toy.federation(), cohort=cohort)
    drawn = draw_cohorts(sim.plan, sim.keys, jnp.asarray(0, jnp.int32), ROUNDS)
    others = None if drawn.refresh is None else np.asarray(drawn.refresh.clients).tolist()
    history = sim.advance(ROUNDS)
    return sim, history["loss"].to_numpy(), np.asarray(drawn.clients).tolist(), others


def check(sim, losses, want, want_losses):
    assert np.abs(want - toy.flat(toy.start())).max() > 1e-2
    np.testing.assert_allclose(toy.flat(sim.state.server.params), want, rtol=1e-8)
    np.testing.assert_allclose(losses, want_losses, rtol=1e-8)
    assert int(sim.state.server.round) == ROUNDS


def check_memories(memories, want):
    """The clients' memories, of which those that never began are ``None`` in ``want``."""
    assert memories.started.tolist() == [u is not None for u in want]
    for i, u in enumerate(want):
        if u is not None:
            value = jax.tree.map(lambda leaf, i=i: leaf[i], memories.value)
            np.testing.assert_allclose(toy.flat(value), u, rtol=1e-8)


@curvatures
def test_moml(name):
    curvature, product = CURVATURES[name]
    sim, losses, cohorts, _ = run(MOML(averaging=BETA, curvature=curvature, **TASK))
    w, want_losses, memories = reference_memory.moml(
        toy.flat(toy.start()), CLIENTS, cohorts, alpha=ALPHA, eta=eta, beta=BETA, product=product
    )
    check(sim, losses, w, want_losses)
    check_memories(sim.state.clients, memories)


def test_a_task_that_has_not_come_has_no_memory():
    sim = Simulation(MOML(averaging=BETA, **TASK), toy.LOGISTIC, toy.federation(), cohort=2)
    first = toy.cohorts(sim, 1)[0].tolist()
    sim.advance(1)
    assert np.flatnonzero(sim.state.clients.started).tolist() == sorted(first)


@pytest.mark.parametrize(
    ("options", "lipschitz"),
    [
        ({"averaging": BETA}, None),
        ({"averaging": 1.0}, None),
        ({"smoothness": 0.6, "hessian_lipschitz": 0.9}, (0.6, 0.9)),
        ({"smoothness": 3.0, "hessian_lipschitz": 0.9}, (3.0, 0.9)),
    ],
)
@curvatures
def test_moml_v2(name, options, lipschitz):
    curvature, product = CURVATURES[name]
    sim, losses, cohorts, others = run(MOMLv2(curvature=curvature, **options, **TASK))
    assert any(set(cohort) != set(drawn) for cohort, drawn in zip(cohorts, others, strict=True))
    w, want_losses, memories, betas = reference_memory.moml_v2(
        toy.flat(toy.start()), CLIENTS, cohorts, others, alpha=ALPHA, eta=eta, product=product,
        beta=options.get("averaging"), lipschitz=lipschitz,
    )  # fmt: skip
    check(sim, losses, w, want_losses)
    if lipschitz is not None:
        assert (max(betas) == 1) == (lipschitz[0] > 1)
        assert max(betas) == 1 or max(betas) - min(betas) > 1e-3
    server = sim.state.server
    average = jax.tree.map(jnp.add, server.params, server.trail.lag)
    for i, u in enumerate(memories):
        own = jax.tree.map(lambda leaf, i=i: leaf[i], sim.state.clients)
        np.testing.assert_allclose(toy.flat(recall(own, average, server.decay)), u, rtol=1e-8)


@pytest.mark.parametrize("keep", [False, True])
@curvatures
def test_local_moml(name, keep):
    curvature, product = CURVATURES[name]
    sim, losses, cohorts, _ = run(
        LocalMOML(averaging=BETA, curvature=curvature, local_steps=3, keep_memory=keep, **TASK)
    )
    w, want_losses, memories = reference_memory.local_moml(
        toy.flat(toy.start()), CLIENTS, cohorts, alpha=ALPHA, eta=eta, beta=BETA, steps=3, product=product, keep=keep
    )
    check(sim, losses, w, want_losses)
    if keep:
        check_memories(sim.state.clients, memories)
    else:
        assert jax.tree.leaves(sim.state.clients) == []


@pytest.mark.parametrize("keep", [False, True])
def test_local_moml_on_several_tasks(keep):
    """Clients of three and of two tasks, two of which are drawn in a step."""
    groups, rounds, steps = [[4, 0, 2], [1, 3]], 3, 2
    algorithm = LocalMOML(
        averaging=BETA, local_steps=steps, keep_memory=keep, tasks_per_client=3, tasks_per_step=2,
        **(TASK | {"outer_lr": ETA}),
    )  # fmt: skip
    sim = Simulation(algorithm, toy.LOGISTIC, toy.federation().grouped(groups))

    def drawn(k, i, h):
        key = jax.random.fold_in(client_key(round_key(sim.keys.client, k), i), h)
        view = sim.federation.clients.view("train", jnp.asarray(i))
        return draw_tasks(view, jax.random.split(key)[0], 3, 2).tolist()

    tasks = [[[drawn(k, i, h) for h in range(steps)] for i in range(2)] for k in range(rounds)]
    assert len({tuple(step) for round_ in tasks for step in round_[0]}) > 1
    w, losses, memories = reference_memory.local_moml_on_tasks(
        toy.flat(toy.start()), [[CLIENTS[j] for j in group] for group in groups], tasks,
        alpha=ALPHA, eta=ETA, beta=BETA, product=reference.exact, keep=keep,
    )  # fmt: skip
    history = sim.advance(rounds)
    np.testing.assert_allclose(toy.flat(sim.state.server.params), w, rtol=1e-8)
    np.testing.assert_allclose(history["loss"].to_numpy(), losses, rtol=1e-8)
    if keep:
        for i, want in enumerate(memories):
            check_memories(jax.tree.map(lambda leaf, i=i: leaf[i], sim.state.clients), want + [None] * (3 - len(want)))


def test_scgd():
    sim, losses, *_ = run(scgd(averaging=BETA, **TASK), cohort=1.0)
    w, want_losses, memories = reference_memory.moml(
        toy.flat(toy.start()), CLIENTS, EVERYONE, alpha=ALPHA, eta=eta, beta=BETA, product=reference.exact
    )
    check(sim, losses, w, want_losses)
    check_memories(sim.state.clients, memories)


@curvatures
def test_nasa(name):
    curvature, product = CURVATURES[name]
    sim, losses, *_ = run(NASA(averaging=BETA, momentum=0.6, curvature=curvature, **TASK), cohort=1.0)
    w, want_losses, z, u = reference_memory.nasa(
        toy.flat(toy.start()), CLIENTS, ROUNDS, alpha=ALPHA, gamma=eta, averaging=BETA, momentum=0.6, product=product
    )
    check(sim, losses, w, want_losses)
    np.testing.assert_allclose(toy.flat(sim.state.server.gradient), z, rtol=1e-8)
    check_memories(sim.state.clients, u)


@pytest.mark.parametrize("algorithm", [scgd(), NASA()])
def test_methods_for_everyone_refuse_a_cohort(algorithm):
    with pytest.raises(UsageError, match="cohort"):
        Simulation(algorithm, toy.LOGISTIC, toy.federation(), cohort=3)


@pytest.mark.parametrize(
    ("name", "period", "large"), [*((name, period, 1) for period in (1, 3) for name in CURVATURES), ("exact", 2, 3)]
)
def test_bspiderboost(name, period, large):
    curvature, product = CURVATURES[name]
    options = {"period": period, "large_batch_size": "full", "large_cohorts": large, "curvature": curvature}
    sim, losses, cohorts, _ = run(BSpiderBoost(**options, **TASK))
    w, want_losses, v = reference_memory.bspiderboost(
        toy.flat(toy.start()), CLIENTS, cohorts, alpha=ALPHA, eta=eta, period=period, product=product,
        large_cohorts=large,
    )  # fmt: skip
    check(sim, losses, w, want_losses)
    np.testing.assert_allclose(toy.flat(sim.state.server.gradient), v, rtol=1e-8)


def test_both_gradients_of_a_difference_see_the_same_samples():
    algorithm = BSpiderBoost(inner_lr=ALPHA, outer_lr=0.0, period=3, batch_size=2, large_batch_size=4)
    sim = Simulation(algorithm, toy.LOGISTIC, toy.federation())
    sim.advance(1)
    kept = toy.to_numpy(sim.state.server.gradient)
    sim.advance(2)
    toy.assert_same_bits(toy.to_numpy(sim.state.server.gradient), kept)
    sim.advance(1)
    assert np.abs(toy.flat(sim.state.server.gradient) - toy.flat(kept)).max() > 1e-3


@pytest.mark.parametrize("nu", [1, 2])
def test_maml(nu):
    sim, losses, cohorts, _ = run(maml(inner_steps=nu, **TASK))
    w, want_losses, _ = reference.meta_fl(
        toy.flat(toy.start()), CLIENTS, cohorts, alpha=ALPHA, beta=eta, tau=1, nu=nu, product=reference.exact
    )
    check(sim, losses, w, want_losses)


@pytest.mark.parametrize("build", [MOML, MOMLv2, LocalMOML, NASA, scgd, partial(BSpiderBoost, large_batch_size=4)])
def test_clients_personalize_by_fine_tuning(build):
    sim = Simulation(build(inner_lr=ALPHA, batch_size=4), toy.LOGISTIC, toy.federation())
    check_personal(sim, partial(reference.fine_tuned, lr=ALPHA))


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: MOML(averaging=0.0), "averaging = 0.0 lies outside"),
        (lambda: MOML(averaging=1.5), "averaging = 1.5 lies outside"),
        (lambda: MOML(inner_lr=-1.0), "inner_lr = -1.0"),
        (lambda: MOML(batch_size=0), "batch_size = 0"),
        (lambda: NASA(momentum=0), "momentum = 0 lies outside"),
        (lambda: NASA(averaging=2), "averaging = 2 lies outside"),
        (lambda: MOMLv2(averaging=-0.1), "averaging = -0.1 lies outside"),
        (lambda: MOMLv2(inner_batch_size=0), "inner_batch_size = 0"),
        (lambda: MOMLv2(smoothness=1.0), "only one is set"),
        (lambda: MOMLv2(smoothness=0.0, hessian_lipschitz=1.0), "smoothness = 0.0 is not above 0"),
        (lambda: MOMLv2(smoothness=1.0, hessian_lipschitz=-1.0), "hessian_lipschitz = -1.0"),
        (lambda: MOMLv2(smoothness=1.0, hessian_lipschitz=1.0, outer_lr=0.0), "outer_lr = 0.0 is not above 0"),
        (lambda: LocalMOML(local_steps=0), "local_steps = 0"),
        (lambda: LocalMOML(memory_batch_size=0), "memory_batch_size = 0"),
        (lambda: LocalMOML(memory_batch_size=3, keep_memory=True), "never restarts"),
        (lambda: LocalMOML(tasks_per_step=3, tasks_per_client=2), "tasks_per_step = 3"),
        (lambda: BSpiderBoost(period=0), "period = 0"),
        (lambda: BSpiderBoost(large_batch_size=0), "large_batch_size = 0"),
        (lambda: BSpiderBoost(large_cohorts=0), "large_cohorts = 0"),
    ],
)
def test_refusals(build, words):
    with pytest.raises(UsageError, match=f"(?s){words}"):
        build()
