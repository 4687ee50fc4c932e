"""Settings on trial do what a run with them does, and their ladder of steps what an evaluation does."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import headstart as hs
from headstart.algorithms import LocalOnly
from headstart.core import FULL
from headstart.simulate.trials import Trials

PROBLEM = hs.Regression(hs.MLP(inputs=1, outputs=1, hidden=(8,)))
RATES = (0.003, 0.01, 1e4)


@pytest.fixture(scope="module")
def federation():
    return hs.data.sine(clients=6, held_out=2)


def _method(rate):
    return hs.per_fedavg(batch_size=5, local_steps=2, inner_lr=rate, outer_lr=rate)


@pytest.fixture(scope="module")
def trials(federation):
    found = Trials([_method(rate) for rate in RATES], PROBLEM, federation, seed=3, cohort=3, longest=2)
    found.advance([0, 1, 2], 2)
    found.advance([1], 3)  # the others were dropped
    return found


def test_a_trial_is_a_run(federation, trials):
    for place, rounds in ((0, 2), (1, 5)):
        run = hs.train(_method(RATES[place]), PROBLEM, federation, rounds=rounds, cohort=3, seed=3)
        own = jax.tree.map(lambda leaf, i=place: leaf[i], trials._trials.state.server.params)
        for mine, theirs in zip(jax.tree.leaves(own), jax.tree.leaves(run.params), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=1e-6)
    assert trials.rounds.tolist() == [2, 5, 2]


@pytest.mark.parametrize("batch_size", [FULL, 4])
def test_its_scores_are_those_of_an_evaluation(federation, trials, batch_size):
    ids = np.array([4, 5, 0])
    sizes = np.array([[0.01, 0.02], [0.01, 0.02]])
    found = trials.scores([1, 2], steps=(0, 1, 3), ids=ids, batch_size=batch_size, sizes=sizes)["loss"]
    assert found.shape == (2, 2, 3, 3)
    evaluation = hs.Evaluation(steps=(0, 1, 3), batch_size=batch_size, inner_lr=0.02)
    table = hs.train(_method(RATES[1]), PROBLEM, federation, rounds=5, cohort=3, seed=3, evaluation=evaluation).table
    last = [row for row in table.to_pylist() if row["round"] == 5]
    expected = {(row["steps"], row["client"]): row["loss"] for row in last}
    for i, steps in enumerate((0, 1, 3)):
        for j, client in enumerate(ids):
            assert found[0, 1, i, j] == pytest.approx(expected[steps, str(client)], rel=1e-4)
    assert not np.isfinite(found[1]).any(), "what has diverged stays so, and disturbs nobody"


def test_steps_of_those_who_train_alone_are_those_of_an_untrained_model(federation):
    untrained = Trials([hs.fedavg(batch_size=5)], PROBLEM, federation, seed=1)
    ids = np.arange(federation.total)
    found = untrained.scores([0], steps=(0, 7), ids=ids, batch_size=5, sizes=np.array([[0.05]]))["loss"][0, 0]
    alone = hs.train(
        LocalOnly(learning_rate=0.05, own_steps=7), PROBLEM, federation, rounds=1, seed=1,
        evaluation=hs.Evaluation(steps=(0, 1), batch_size=5),
    )  # fmt: skip
    for row in alone.table.to_pylist():
        assert found[row["steps"], int(row["client"])] == pytest.approx(row["loss"], rel=1e-4)


@pytest.mark.parametrize("size", [FULL, 3])
def test_a_traced_number_of_steps_is_the_same(federation, size):
    params, method = PROBLEM.init(jax.random.key(0)), hs.fedavg(inner_lr=0.1)
    down = method.broadcast(method.init_server(params), jax.random.key(1))
    support = PROBLEM.view(federation.clients.view("support", jnp.asarray(2)))

    def own(steps):
        return method.personalize(PROBLEM.objective(), down, (), support, jax.random.key(2), steps, size)

    for steps in (0, 1, 4):
        for one, other in zip(jax.tree.leaves(own(steps)), jax.tree.leaves(jax.jit(own)(steps)), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
