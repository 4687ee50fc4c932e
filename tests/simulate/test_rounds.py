import jax
import jax.numpy as jnp
import numpy as np
import pytest

import headstart as hs
from headstart.simulate import Evaluation, RoundPlan, Simulation, trace_count, train
from headstart.simulate.train import Memory
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
    class Checkpoints(Memory):
        last = None

        def checkpoint(self, round_, state):
            self.last = round_, jax.tree.map(lambda leaf: jnp.array(leaf, copy=True), state)

        def restore(self, template):
            return self.last

    journal = Checkpoints()
    options = {"rounds": 6, "cohort": 3, "chunk": 2, "evaluation": Evaluation(every=6)}
    setting = (hs.fedavg(batch_size=4, local_steps=2, outer_lr=0.1), toy.LOGISTIC, toy.federation())
    whole = train(*setting, **options)
    part = train(*setting, **options, journal=journal, observer=lambda progress: progress.round < 4)
    assert part.rounds == 4
    before = trace_count()
    resumed = train(*setting, **options, journal=journal)
    assert trace_count() == before
    toy.assert_same_bits(resumed.server, whole.server)
    assert resumed.history["loss"].to_pylist() == whole.history["loss"].to_pylist()
