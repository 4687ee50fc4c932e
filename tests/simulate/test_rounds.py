import jax
import jax.numpy as jnp
import numpy as np
import pytest

import headstart as hs
from headstart.core import tree
from headstart.simulate import Evaluation, RoundPlan, Simulation, trace_count, train
from headstart.simulate.journal import Unrecorded
from headstart.simulate.rounds import draw_cohorts
from tests import toy
from tests.simulate.scribe import Scribe

CLIENTS = 5


def squares(params, batch):
    return jnp.mean((batch - params) ** 2)


PROBLEM = hs.CustomProblem(init_fn=lambda key: jnp.zeros(2), loss_fn=squares)


def noise(task, key, size):
    return task + jax.random.normal(key, (size, 2))


def scribe(rounds, cohort=1.0, **options):
    federation = hs.Federation.from_tasks(jnp.arange(float(CLIENTS)), noise, support_size=2, query_size=2)
    sim = Simulation(Scribe(), PROBLEM, federation, cohort=cohort, **options)
    cohorts = toy.cohorts(sim, rounds)
    sim.advance(rounds)
    return sim, cohorts


@pytest.fixture(scope="module")
def everyone():
    """What each client draws in round 0 when all take part."""
    return np.asarray(scribe(1)[0].state.clients["drawn"])


@pytest.mark.parametrize(
    "options",
    [
        {"cohort": 2},
        {"cohort": 3, "at_once": 2},
        {"cohort": 3, "backend": "sharded", "devices": 2},
        {"cohort": 5, "backend": "sharded", "devices": 2, "at_once": 1},
        {"cohort": 2, "backend": "loop"},
    ],
)
def test_a_draw_depends_on_seed_round_and_client_only(everyone, options):
    sim, cohorts = scribe(1, **options)
    drawn, members = np.asarray(sim.state.clients["drawn"]), cohorts[0]
    absent = np.setdiff1d(np.arange(CLIENTS), members)
    np.testing.assert_allclose(drawn[members], everyone[members], rtol=1e-6)
    np.testing.assert_array_equal(drawn[absent], 0)
    np.testing.assert_array_equal(sim.state.clients["rounds"], np.isin(np.arange(CLIENTS), members))
    np.testing.assert_allclose(sim.state.server.params, everyone[members].mean(axis=(0, 1)), rtol=1e-5)


def test_rounds_clients_and_seeds_draw_differently(everyone):
    later, other = scribe(2)[0], scribe(1, seed=1)[0]
    draws = [everyone, np.asarray(later.state.clients["drawn"]), np.asarray(other.state.clients["drawn"])]
    fresh = np.stack(draws) - np.arange(CLIENTS)[:, None, None]
    assert len(np.unique(fresh.round(4))) > 0.98 * fresh.size


def test_client_states_stay_with_their_client_over_rounds_and_chunks():
    sim, cohorts = scribe(6, cohort=2)
    counts = np.bincount(cohorts.ravel(), minlength=CLIENTS)
    np.testing.assert_array_equal(sim.state.clients["rounds"], counts)
    pieces, _ = scribe(2, cohort=2)
    pieces.advance(1, 4)
    pieces.advance(3, 4)
    toy.assert_same_bits(pieces.state, sim.state)


def test_cohorts_differ_between_rounds_and_do_not_depend_on_the_chunk():
    sim, cohorts = scribe(8, cohort=2)
    assert len({tuple(sorted(c)) for c in cohorts.tolist()}) > 2
    np.testing.assert_array_equal(toy.cohorts(sim, 3), toy.cohorts(sim, 5)[:3])
    sim.round = 5
    np.testing.assert_array_equal(toy.cohorts(sim, 3), cohorts[5:])


@pytest.mark.parametrize(
    ("plan", "group", "width"),
    [
        (RoundPlan(9, 4), 4, 4),
        (RoundPlan(9, 5, at_once=2), 2, 6),
        (RoundPlan(9, 5, devices=2), 3, 6),
        (RoundPlan(9, 5, devices=2, at_once=2), 2, 8),
        (RoundPlan(9, 1, devices=2), 1, 2),
        (RoundPlan(9, 4, at_once=100), 4, 4),
    ],
)
def test_a_cohort_is_filled_up_to_whole_groups(plan, group, width):
    assert (plan.group, plan.width) == (group, width)


@pytest.mark.parametrize("backend", ["vmap", "sharded"])
def test_a_run_traces_its_round_once_and_the_next_run_not_at_all(backend):
    problem = hs.CustomProblem(toy.start, lambda params, batch: 0.5 * toy.logistic_loss(params, batch))

    def run(seed, outer_lr):
        before = trace_count()
        train(
            hs.fedavg(batch_size=4, local_steps=2, outer_lr=outer_lr), problem, toy.federation(), rounds=7, cohort=3,
            chunk=3, seed=seed, backend=backend, evaluation=Evaluation(every=4),
        )  # fmt: skip
        return trace_count() - before

    assert run(0, 0.1) == 1
    assert run(1, 0.2) == 0


def test_resuming_with_the_same_shapes_traces_nothing():
    class Checkpoints(Unrecorded):
        last = None

        def checkpoint(self, round_, state):
            self.last = round_, jax.tree.map(lambda leaf: jnp.array(leaf, copy=True), state)

        def restore(self, template):
            return self.last

    journal = Checkpoints()
    options = {"rounds": 6, "cohort": 3, "chunk": 2, "evaluation": Evaluation(every=6)}
    setting = (hs.fedavg(batch_size=4, local_steps=2, outer_lr=0.1), toy.LOGISTIC, toy.federation())
    whole = train(*setting, **options)
    part = train(*setting, **options, journal=journal, callbacks=toy.stopping(4))
    assert part.rounds == 4
    before = trace_count()
    resumed = train(*setting, **options, journal=journal)
    assert trace_count() == before
    toy.assert_same_bits(resumed.server, whole.server)
    assert resumed.history["loss"].to_pylist() == whole.history["loss"].to_pylist()


def with_outlier(scale):
    """Five clients of which the last has inputs so large that its update is not finite."""
    federation = toy.federation()
    rows = np.asarray(federation.clients.parts["train"].rows)[-toy.SIZES[-1] :]
    pool = federation.clients.pool
    clients = hs.data.IndexedClients(
        pool._replace(x=pool.x.at[rows].mul(scale)), federation.clients.parts, federation.clients.transform
    )
    return hs.Federation(clients, None, federation.total, federation.trained, federation.counts)


def cubes(params, batch):
    return jnp.mean((batch.x @ params["weight"] + params["bias"]) ** 4)


@pytest.mark.parametrize("options", [{"at_once": 2}, {"backend": "sharded", "devices": 2}])
def test_a_client_that_was_not_drawn_cannot_harm_a_round(options):
    """Cohorts of three fill up to four with the last client's work, which counts zero whatever it is."""
    problem = hs.CustomProblem(init_fn=toy.start, loss_fn=cubes)
    algorithm = hs.fedavg(outer_lr=1e-3, local_steps=2, batch_size=4)
    for seed in range(20):
        sim = Simulation(algorithm, problem, with_outlier(1e20), cohort=3, seed=seed, **options)
        if 4 not in toy.cohorts(sim, 1):
            break
    sim.advance(1)
    loop = Simulation(algorithm, problem, with_outlier(1e20), cohort=3, seed=seed, backend="loop")
    loop.advance(1)
    toy.assert_close(toy.to_numpy(sim.state.server.params), toy.to_numpy(loop.state.server.params), 1e-6)


def test_clients_that_never_train_have_no_say_in_training():
    """Equal clients have batches without weights, whatever a held-out client has; a variance in the loss shows it."""

    def scattered(params, batch):
        out = batch.x @ params["weight"] + params["bias"]
        return jnp.mean((out - jnp.mean(out)) ** 2)

    problem = hs.CustomProblem(init_fn=toy.start, loss_fn=scattered)
    ends = []
    for held_out in (6, 7):
        federation = toy.federation((6, 6, 6, held_out), held_out=1)
        sim = Simulation(hs.fedavg(outer_lr=0.1, batch_size="full"), problem, federation)
        sim.advance(2)
        ends.append(toy.to_numpy(sim.state.server.params))
    toy.assert_same_bits(*ends)


def test_accounts_of_a_method_with_two_cohorts_count_both():
    """MOML v2 with whole batches: S_1 of the refreshed clients, S_2 and S_3 of the others; models go down to both."""
    algorithm = hs.MOMLv2(batch_size="full")
    sim = Simulation(algorithm, toy.LOGISTIC, toy.federation(), cohort=2)
    drawn = draw_cohorts(sim.plan, sim.keys, jnp.asarray(0, jnp.int32), 3)
    history = sim.advance(3)
    sizes = np.asarray(toy.SIZES)
    want = sizes[np.asarray(drawn.refresh.clients)].sum(axis=1) + 2 * sizes[np.asarray(drawn.clients)].sum(axis=1)
    assert history["samples"].to_pylist() == want.tolist()
    model = 4 * 4
    assert history["bytes_up"].to_pylist() == [2 * model] * 3
    down = tree.nbytes(sim.start.down)
    assert down > 2 * model
    assert history["bytes_down"].to_pylist() == [2 * 2 * down] * 3


def test_bytes_beyond_two_gigabytes_are_counted():
    sim = Simulation(hs.fedavg(batch_size=4), toy.LOGISTIC, toy.federation(), cohort=2)
    large = jax.ShapeDtypeStruct((2**30,), jnp.float32)
    sim.setting.start = sim.setting.start._replace(down=large, ups=(large,))
    history = sim.advance(1)
    assert history["bytes_up"].to_pylist() == history["bytes_down"].to_pylist() == [2 * 4 * 2**30]


class Counting(Scribe):
    """Reports whole numbers and truth values."""

    def client_update(self, loss, down, state, client, key):
        result = super().client_update(loss, down, state, client, key)
        number = state["rounds"] + 1
        return result._replace(metrics=result.metrics | {"rounds": number, "odd": number % 2 == 1})


@pytest.mark.parametrize("backend", ["vmap", "loop"])
def test_whole_numbers_and_truth_values_are_averaged_as_numbers(backend):
    federation = hs.Federation.from_tasks(jnp.arange(float(CLIENTS)), noise, support_size=2, query_size=2)
    sim = Simulation(Counting(), PROBLEM, federation, cohort=2, backend=backend)
    history = sim.advance(1).to_pydict()
    assert history["rounds"] == [1.0]
    assert history["odd"] == [1.0]
