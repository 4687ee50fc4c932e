from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import headstart as hs
from headstart.errors import Diverged, UsageError
from headstart.simulate import Evaluation, FolderJournal, Simulation, train
from tests import toy

LABELLED = hs.CustomProblem(
    toy.start,
    toy.logistic_loss,
    lambda params, batch: (batch.x @ params["weight"] + params["bias"], (batch.y > 0).astype(int)),
    metrics=("accuracy",),
)
ALGORITHM = hs.per_fedavg(batch_size=4, local_steps=2, inner_lr=0.3, outer_lr=0.2)
NAMES = ["ann", "ben", "cat", "dan", "eve"]


@pytest.fixture(scope="module")
def result():
    return train(
        ALGORITHM, LABELLED, toy.federation(held_out=1, names=NAMES), rounds=5, cohort=3,
        evaluation=Evaluation(every=2, steps=(0, 1, 3)),
    )  # fmt: skip


def test_what_training_returns(result):
    assert result.rounds == 5
    assert result.history["round"].to_pylist() == list(range(5))
    assert sorted(set(result.table["round"].to_pylist())) == [0, 2, 4, 5]
    assert result.table.num_rows == 4 * 3 * 5
    assert result.clients == ()
    toy.assert_same_bits(result.params, result.server.params)
    assert set(result.summary["group"].to_pylist()) == {"all", "held-out"}


def test_accounting_of_a_round(result):
    cost, wire = ALGORITHM.cost(), 4 * (toy.FEATURES + 1)
    for column, each in {
        "gradients": cost.gradients, "products": cost.products, "samples": 3 * 2 * 4,
        "bytes_up": wire, "bytes_down": wire + 4,
    }.items():  # fmt: skip
        assert result.history[column].to_pylist() == [3 * each] * 5
    assert min(result.history["seconds"].to_pylist()) > 0


def test_accounting_of_full_batches_counts_each_clients_samples():
    algorithm = hs.fedavg(batch_size="full", local_steps=2)
    sim = Simulation(algorithm, toy.LOGISTIC, toy.federation(), cohort=2)
    cohorts = toy.cohorts(sim, 4)
    sizes = np.array(toy.SIZES)
    assert sim.advance(4)["samples"].to_pylist() == (2 * sizes[cohorts].sum(axis=1)).tolist()


def rows_of(result, *wanted):
    return [row for row in result.summary.to_pylist() if (row["metric"], row["steps"], row["group"]) == wanted]


def test_final_and_best(result):
    rows = rows_of(result, "accuracy", 1, "held-out")
    assert result.final("accuracy", 1, "held-out") == rows[-1]
    assert result.best("accuracy", 1, "held-out")["mean"] == max(r["mean"] for r in rows)
    losses = [row["mean"] for row in rows_of(result, "loss", 0, "all")]
    assert result.best("loss", 0)["mean"] == min(losses)
    assert losses[-1] < losses[0]
    with pytest.raises(UsageError, match=r"(?s)Nothing was evaluated for metric 'loss', 9 steps.*result.summary"):
        result.final("loss", 9)


@pytest.mark.parametrize("client", [0, "cat", "eve"])
@pytest.mark.parametrize("steps", [0, 3])
def test_personalize_is_what_evaluation_scored(result, client, steps):
    index = client if isinstance(client, int) else NAMES.index(client)
    _, query = toy.client_arrays()[index]
    batch = hs.Examples(*(jnp.asarray(a, jnp.float32) for a in query))
    scores = LABELLED.scores(result.personalize(client, steps), batch)
    row = next(
        row
        for row in result.table.to_pylist()
        if (row["round"], row["client"], row["steps"]) == (5, NAMES[index], steps)
    )
    for metric, value in scores.items():
        np.testing.assert_allclose(row[metric], value, rtol=1e-5)


def test_personalize_adapts_with_the_evaluations_settings():
    evaluation = Evaluation(every=2, steps=(2,), inner_lr=0.9, batch_size=3)
    other = train(ALGORITHM, LABELLED, toy.federation(), rounds=2, cohort=3, evaluation=evaluation)
    batch = hs.Examples(*(jnp.asarray(a, jnp.float32) for a in toy.client_arrays()[1][1]))
    row = next(row for row in other.table.to_pylist() if (row["round"], row["client"]) == (2, "1"))
    np.testing.assert_allclose(LABELLED.scores(other.personalize(1, 2), batch)["loss"], row["loss"], rtol=1e-5)
    own_lr = replace(other, _evaluation=Evaluation(steps=(2,), batch_size=3)).personalize(1, 2)
    assert not np.allclose(other.personalize(1, 2)["weight"], own_lr["weight"])


@pytest.mark.parametrize(("client", "words"), [("zoe", "no client 'zoe'.*client column"), (5, "no client 5.*0 to 4")])
def test_an_unknown_client(result, client, words):
    with pytest.raises(UsageError, match=f"(?s){words}"):
        result.personalize(client)


def test_held_out_clients_never_train(result):
    federation = toy.federation(held_out=1)
    last = federation.clients.parts["train"].rows[-toy.SIZES[-1] :]
    spoilt = eqx.tree_at(lambda f: f.pool.x, federation.clients, federation.clients.pool.x.at[last].set(1e6))
    evaluation = Evaluation(every=5, steps=(0,))
    again = train(ALGORITHM, LABELLED, replace(federation, clients=spoilt), rounds=5, cohort=3, evaluation=evaluation)
    toy.assert_same_bits(again.params, result.params)


def test_given_parameters_are_the_start_and_are_left_alone(result):
    options = {"rounds": 1, "cohort": 3, "evaluation": Evaluation(steps=(0,))}
    given = {"weight": jnp.ones(3), "bias": jnp.zeros(())}
    federation = toy.federation(held_out=1)
    first = train(ALGORITHM, LABELLED, federation, params=given, **options)
    second = train(ALGORITHM, LABELLED, federation, params=given, **options)
    toy.assert_same_bits(first.params, second.params)
    np.testing.assert_array_equal(given["weight"], 1)
    assert not np.array_equal(first.params["weight"], result.params["weight"])


def test_chunks_do_not_change_a_run(result):
    again = train(
        ALGORITHM, LABELLED, toy.federation(held_out=1, names=NAMES), rounds=5, cohort=3, chunk=5,
        evaluation=Evaluation(every=2, steps=(0, 1, 3)),
    )  # fmt: skip
    toy.assert_same_bits(again.params, result.params)
    assert again.table.equals(result.table)


def test_divergence_is_an_error_that_says_when():
    problem = hs.CustomProblem(toy.start, lambda params, batch: jnp.mean((batch.x @ params["weight"]) ** 2))
    wild = hs.fedavg(batch_size=4, local_steps=4, outer_lr=1e9)
    with pytest.raises(Diverged, match=r"(?s)not finite from round [0-9] on.*Lower outer_lr or inner_lr.*'loop'"):
        train(wild, problem, toy.federation(), rounds=4, chunk=4, evaluation=Evaluation(steps=(0,)))


def test_parameters_that_the_last_round_spoils_are_an_error_too():
    # The loss of a round is taken before its step, so that of the only round is finite.
    problem = hs.CustomProblem(toy.start, lambda params, batch: jnp.mean(batch.x @ params["weight"]) * 1e30)
    wild = hs.fedavg(batch_size=4, local_steps=1, outer_lr=1e30)
    with pytest.raises(Diverged, match=r"(?s)parameters are not finite after round 0.*Lower outer_lr"):
        train(wild, problem, toy.federation(), rounds=1, evaluation=Evaluation(steps=(0,)))


SINE = {"federation": hs.data.sine(clients=2, held_out=0)}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rounds": 0}, "rounds = 0"),
        ({"rounds": 1.5}, "rounds = 1.5"),
        ({"cohort": 0.0}, r"cohort = 0.0 lies outside \(0, 1\]"),
        ({"cohort": 9}, "cohort = 9 clients of 5"),
        ({"seed": -1}, "seed = -1"),
        ({"chunk": 0}, "chunk = 0"),
        ({"at_once": 0}, "at_once = 0"),
        ({"weighting": "sample"}, "no weighting 'sample'.*Did you mean 'samples'"),
        ({"backend": "pmap"}, "no backend 'pmap'.*loop, vmap, sharded"),
        ({"backend": "vmap", "devices": 2}, "'vmap' runs on one device, not 2.*sharded"),
        ({"backend": "sharded", "devices": 3}, "3 devices are asked for, but JAX sees 2"),
        ({"algorithm": hs.fedavg(batch_size=6)}, "Client 0 has 5 training samples, fewer than a batch of 6"),
        (SINE | {"algorithm": hs.fedavg(batch_size="full")}, "generate their samples.*batch sizes as numbers"),
        (SINE | {"weighting": "samples"}, "no sample count.*'uniform'"),
    ],
)
def test_refusals(changes, words):
    setting = {"algorithm": ALGORITHM, "problem": LABELLED, "federation": toy.federation(), "rounds": 1}
    with pytest.raises(UsageError, match=f"(?s){words}"):
        train(**(setting | changes))


def test_every_kind_of_server_state_survives_many_chunks():
    algorithm = hs.Aruba(batch_size=4, local_steps=1)
    sims = [Simulation(algorithm, toy.LOGISTIC, toy.federation(), cohort=2) for _ in range(2)]
    sims[0].advance(3)
    for _ in range(3):
        sims[1].advance(1, 3)
    toy.assert_same_bits(sims[1].state, sims[0].state)
    assert jax.tree.leaves(sims[0].state.server.distance)


@pytest.mark.parametrize("name", ["algorithm", "problem", "data", "seed", "cohort", "weighting", "params"])
def test_another_run_of_the_same_shapes_does_not_go_on_from_a_checkpoint(tmp_path, name):
    federation = toy.federation(held_out=1)
    setting = {"algorithm": ALGORITHM, "problem": LABELLED, "federation": federation, "seed": 0, "cohort": 2}
    options = {"rounds": 4, "evaluation": Evaluation(every=4, steps=(0,)), "journal": FolderJournal(tmp_path, 1)}
    train(**setting, **options, callbacks=toy.stopping(1))
    spoilt = eqx.tree_at(lambda clients: clients.pool.x, federation.clients, federation.clients.pool.x.at[0, 0].add(1))
    other = {
        "algorithm": hs.per_fedavg(batch_size=4, local_steps=2, inner_lr=0.3, outer_lr=0.1), "problem": toy.LOGISTIC,
        "data": replace(federation, clients=spoilt), "seed": 1, "cohort": 3, "weighting": "samples",
        "params": {"weight": jnp.ones(3), "bias": jnp.zeros(())},
    }  # fmt: skip
    with pytest.raises(UsageError, match=rf"was left by another run: it differs in {name}\."):
        train(**(setting | {"federation" if name == "data" else name: other[name]}), **options)
    longer = train(**setting, **(options | {"rounds": 5}), backend="loop")
    assert longer.rounds == 5, "but the same may be made longer, and go on with another backend"
