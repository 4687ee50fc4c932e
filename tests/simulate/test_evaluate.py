from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headstart as hs
from headstart.core import client_key
from headstart.errors import UsageError
from headstart.metrics import ACCURACY, LOSS, Metric
from headstart.simulate import Evaluation, Simulation, score_client, summarize, summarized_metrics
from headstart.simulate.callbacks import Evaluated
from tests import toy
from tests.algorithms import reference
from tests.metrics import reference as metrics_reference
from tests.simulate.scribe import Scribe


@pytest.mark.usefixtures("x64")
def test_each_client_adapts_on_support_and_is_scored_on_query():
    algorithm = hs.fedavg(batch_size=4, inner_lr=0.3)
    federation = toy.federation(held_out=2, names=list("abcde"))
    sim = Simulation(algorithm, toy.LOGISTIC, federation)
    table = sim.evaluate(Evaluation(steps=(0, 2)))
    assert table["client"].to_pylist() == list("abcde") * 2
    assert table["steps"].to_pylist() == [0] * 5 + [2] * 5
    assert table["held_out"].to_pylist() == [False, False, False, True, True] * 2
    w = toy.flat(toy.start())
    want = [
        reference.loss(reference.fine_tuned(w, support, lr=0.3, steps=steps), query)
        for steps in (0, 2)
        for support, query in toy.client_arrays()
    ]
    np.testing.assert_allclose(table["loss"].to_numpy(), want, rtol=1e-10)
    other = sim.evaluate(Evaluation(steps=[2], inner_lr=0.05, max_clients=1))
    assert other["client"].to_pylist() == ["a", "d"]
    (support, query), *_ = toy.client_arrays()
    want = reference.loss(reference.fine_tuned(w, support, lr=0.05, steps=2), query)
    np.testing.assert_allclose(other["loss"][0].as_py(), want, rtol=1e-10)


def test_more_clients_than_are_computed_at_once():
    rows = np.arange(20)[:, None]
    federation = hs.Federation.from_arrays(np.arange(20.0), rows, rows)
    problem = hs.CustomProblem(lambda key: jnp.zeros(()), lambda params, batch: jnp.mean(batch + params))
    sim = Simulation(hs.fedavg(batch_size=1), problem, federation)
    assert sim.evaluate(Evaluation(steps=(0,)))["loss"].to_pylist() == list(range(20))


def test_clients_bring_their_own_state_and_newcomers_a_fresh_one():
    rows = np.arange(8).reshape(4, 2)
    federation = hs.Federation.from_arrays(np.zeros((8, 1)), rows, rows, held_out=1)
    problem = hs.CustomProblem(lambda key: jnp.zeros(1), lambda params, batch: jnp.mean(batch + params))
    sim = Simulation(Scribe(2), problem, federation)
    sim.advance(2)
    table = sim.evaluate(Evaluation(steps=(0, 1)))
    assert table["loss"].to_pylist() == [0, 0, 0, 0, 2, 2, 2, 0]


SCORED = (LOSS, ACCURACY)


def scores(count, seed=0):
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "round": np.repeat([0, 5], count),
            "client": [str(i) for i in range(count)] * 2,
            "held_out": np.tile(np.arange(count) >= count - 12, 2),
            "steps": np.full(2 * count, 1),
            "loss": rng.random(2 * count),
            "accuracy": rng.random(2 * count),
        }
    )


@pytest.mark.parametrize(("group", "first"), [("all", 0), ("held-out", 18)])
@pytest.mark.parametrize("metric", ["loss", "accuracy"])
def test_summary_of_a_group(metric, group, first):
    table = scores(30)
    row = next(
        row
        for row in summarize(table, SCORED).to_pylist()
        if (row["round"], row["metric"], row["group"]) == (5, metric, group)
    )
    values = table[metric].to_numpy()[30 + first :]
    tenth = len(values) // 10
    worst = np.sort(values)[:tenth] if metric == "accuracy" else np.sort(values)[-tenth:]
    want = {
        "mean": values.mean(), "std": values.std(), "worst10": worst.mean(), "min": values.min(), "max": values.max(),
    }  # fmt: skip
    assert row["clients"] == len(values)
    for name, value in want.items():
        np.testing.assert_allclose(row[name], value, rtol=1e-12)


def test_summary_of_few_clients_and_none_held_out():
    table = scores(12).set_column(2, "held_out", [[False] * 24])
    rows = summarize(table, SCORED).to_pylist()
    assert {row["group"] for row in rows} == {"all"}
    tiny = summarize(table.slice(0, 3), SCORED).to_pylist()
    assert [row["worst10"] for row in tiny] == [tiny[0]["max"], tiny[1]["min"]]


def test_clients_without_a_value_are_left_out_and_counted():
    table = scores(30)
    accuracy = table["accuracy"].to_numpy().copy()
    accuracy[[30, 33, 59]] = np.nan  # two trained and one held-out client of the last round
    table = table.set_column(5, "accuracy", [accuracy])
    rows = {(r["round"], r["metric"], r["group"]): r for r in summarize(table, SCORED).to_pylist()}
    counted = np.delete(accuracy[30:], [0, 3, 29])
    row = rows[5, "accuracy", "all"]
    assert (row["clients"], row["left_out"]) == (27, 3)
    np.testing.assert_allclose([row["mean"], row["max"]], [counted.mean(), counted.max()])
    np.testing.assert_allclose(row["worst10"], np.sort(counted)[:2].mean())
    assert (rows[5, "accuracy", "held-out"]["clients"], rows[5, "accuracy", "held-out"]["left_out"]) == (11, 1)
    assert (rows[5, "loss", "all"]["clients"], rows[5, "loss", "all"]["left_out"]) == (30, 0)
    table = table.set_column(5, "accuracy", [np.full(60, np.nan)])
    row = next(r for r in summarize(table, SCORED).to_pylist() if r["metric"] == "accuracy")
    assert (row["clients"], row["left_out"]) == (0, 30)
    assert np.isnan([row["mean"], row["std"], row["worst10"], row["min"], row["max"]]).all()


def test_a_summary_says_what_its_metrics_are(tmp_path):
    own = Metric.from_function("error", lambda outputs, targets: outputs, unit="cm", decimals=2)
    table = scores(12).append_column("error", pa.array(np.ones(24)))
    summary = summarize(table, (*SCORED, own))
    pq.write_table(summary, tmp_path / "summary.parquet")
    read = summarized_metrics(pq.read_table(tmp_path / "summary.parquet"))
    assert list(read) == ["loss", "accuracy", "error"]
    assert {name: metric.description() for name, metric in read.items()} == {
        metric.name: metric.description() for metric in (*SCORED, own)
    }


UNEQUAL = (4, 3, 4, 2, 4)
EVERY = ("accuracy", "balanced-accuracy", "macro-f1", "auc", "log-loss", "calibration-error")


def classified(query_sizes):
    """The toy clients with classes 0 and 1, of which the fourth client's query samples are of one only."""
    clients = toy.client_arrays(query_sizes=query_sizes)
    clients = [[(x, (y > 0).astype(np.int32)) for x, y in client] for client in clients]
    clients[3][1][1][:] = 1
    parts = [part for client in clients for part in client]
    ends = np.cumsum([len(y) for _, y in parts])
    rows = [np.arange(end - len(y), end) for end, (_, y) in zip(ends, parts, strict=True)]
    pool = hs.Examples(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))
    return clients, hs.Federation.from_arrays(pool, rows[::2], rows[1::2])


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("query_sizes", [(4,) * 5, UNEQUAL])
def test_every_metric_of_every_client_is_that_of_its_own_samples(query_sizes):
    clients, federation = classified(query_sizes)
    problem = hs.Classification(hs.MLP(toy.FEATURES, 2, hidden=(4,)), metrics=EVERY)
    sim = Simulation(hs.fedavg(batch_size=2), problem, federation)
    table = sim.evaluate(Evaluation(steps=(0,)))
    for client, (_, (x, y)) in enumerate(clients):
        logits = np.asarray(problem.model.apply(sim.state.server.params, jnp.asarray(x)))
        for name in EVERY:
            want = getattr(metrics_reference, name.replace("-", "_"))(logits, y, np.ones(len(y)))
            np.testing.assert_allclose(table[name][client].as_py(), want, rtol=1e-10, atol=1e-12, err_msg=name)
    summary = {row["metric"]: row for row in summarize(table, problem.metrics).to_pylist()}
    undefined = sum(len(set(y)) == 1 for _, (_, y) in clients)
    assert summary["auc"]["left_out"] == undefined >= 1
    assert summary["accuracy"]["left_out"] == 0


def test_one_client_is_scored_from_what_it_has_itself():
    """From what the server sent, its state and its samples, and as the simulation scores it."""
    federation = toy.federation()
    sim = Simulation(hs.fedavg(batch_size=4, inner_lr=0.3), toy.LOGISTIC, federation)
    table = sim.evaluate(Evaluation(steps=(0, 2), batch_size=3))
    key, client = sim.evaluation_key, jnp.asarray(1)
    down = sim.algorithm.broadcast(sim.state.server, key)

    @jax.jit
    def alone(down, support, query, key):
        return score_client(toy.LOGISTIC, sim.algorithm, down, (), support, query, key, (0, 2), 3)

    support, query = (federation.clients.view(part, client) for part in ("support", "query"))
    got = alone(down, support, query, client_key(key, client))
    want = [table["loss"][1].as_py(), table["loss"][6].as_py()]
    np.testing.assert_allclose([scores["loss"] for scores in got], want, rtol=1e-6)


@pytest.mark.parametrize("kind", [jnp.bfloat16, jnp.float16])
def test_scores_of_any_precision_are_numbers_of_double_precision_in_a_table(kind):
    def init(key):
        return jax.tree.map(lambda leaf: leaf.astype(kind), model.init(key))

    model = hs.MLP(toy.FEATURES, 2, hidden=(4,))
    problem = hs.Classification(hs.models.PairModel(init, lambda params, x: model.apply(params, x.astype(kind))))
    _, federation = classified(UNEQUAL)
    for scored in (problem, hs.CustomProblem(init, problem.loss, random=False)):
        table = Simulation(hs.fedavg(batch_size=2), scored, federation).evaluate(Evaluation())
        for name in (metric.name for metric in scored.metrics):
            assert table[name].type == pa.float64()
            assert np.isfinite(table[name].to_numpy()).all()


def test_a_diverged_client_has_no_accuracy():
    _, federation = classified(UNEQUAL)
    problem = hs.Classification(hs.MLP(toy.FEATURES, 2, hidden=(4,)))
    table = Simulation(hs.fedavg(batch_size=2, inner_lr=1e38), problem, federation).evaluate(Evaluation(steps=(3,)))
    assert np.isnan(table["accuracy"].to_numpy()).all()


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: Evaluation(every=0), "evaluate.every = 0"),
        (lambda: Evaluation(steps=()), "steps is empty"),
        (lambda: Evaluation(steps=(-1,)), "evaluate.steps = -1"),
        (lambda: Evaluation(batch_size=0), "evaluate.batch_size = 0"),
        (lambda: Evaluation(inner_lr=-1.0), "evaluate.inner_lr = -1.0"),
        (lambda: Evaluation(max_clients=0), "evaluate.max_clients = 0"),
        (lambda: Evaluation(inner_lr=0.1).adapting(hs.Aruba()), "Aruba adapts in a way of its own.*Leave"),
    ],
)
def test_refusals(build, words):
    with pytest.raises(UsageError, match=f"(?s){words}"):
        build()


def test_adaptation_draws_are_the_same_at_every_evaluation():
    sim = Simulation(hs.fedavg(batch_size=4, inner_lr=0.3), toy.LOGISTIC, toy.federation())
    evaluation = Evaluation(steps=(1,), batch_size=2)
    assert sim.evaluate(evaluation).equals(sim.evaluate(evaluation))
    other = Simulation(hs.fedavg(batch_size=4, inner_lr=0.3), toy.LOGISTIC, toy.federation(), seed=1)
    assert other.evaluate(evaluation)["loss"] != sim.evaluate(evaluation)["loss"]
    assert jax.tree.leaves(sim.state)  # evaluating gives nothing away


def test_validation_and_new_clients_are_groups_of_those_held_out():
    federation = replace(hs.data.sine(clients=4, held_out=5), validation=2)
    problem = hs.Regression(hs.MLP(inputs=1, outputs=1, hidden=(4,)))
    sim = Simulation(hs.fedavg(batch_size=5), problem, federation)
    evaluation = Evaluation(steps=(0, 1), batch_size=5)
    table = sim.evaluate(evaluation)
    assert table["held_out"].to_pylist() == ([False] * 4 + [True] * 5) * 2
    assert table["validation"].to_pylist() == ([False] * 4 + [True] * 2 + [False] * 3) * 2
    loss = table["loss"].to_numpy().reshape(2, 9)
    places = {"all": slice(9), "held-out": slice(4, 9), "validation": slice(4, 6), "new": slice(6, 9)}
    summary = {(r["group"], r["steps"]): r for r in summarize(table, (LOSS,)).to_pylist()}
    assert {group for group, _ in summary} == set(places)
    evaluated = Evaluated(0, table, sim.state)
    for group, place in places.items():
        for steps in (0, 1):
            assert summary[group, steps]["mean"] == pytest.approx(loss[steps, place].mean(), rel=1e-6)
            assert evaluated.mean("loss", steps, group) == pytest.approx(loss[steps, place].mean(), rel=1e-6)
    assert evaluated.mean("loss", 0, "trained") == pytest.approx(loss[0, :4].mean(), rel=1e-6)
    with pytest.raises(UsageError, match=r"no group 'mew'.*\n.*'new'"):
        evaluated.mean("loss", 0, "mew")
    few = sim.evaluate(Evaluation(steps=(0,), batch_size=5, max_clients=2))
    assert few["client"].to_pylist() == ["0", "2", "4", "5", "6", "7"]


def test_a_sweep_can_be_judged_by_validation_clients():
    federation = replace(hs.data.sine(clients=3, held_out=3), validation=1)
    problem = hs.Regression(hs.MLP(inputs=1, outputs=1, hidden=(4,)))
    evaluation = Evaluation(steps=(0,), batch_size=5)
    done = hs.sweep([hs.fedavg(batch_size=5)], problem, federation, rounds=1, seeds=(0,), evaluation=evaluation)
    values = done.final.values["loss"][-1, 0, 0]
    assert done.scores("loss", 0, group="validation")[0, 0] == pytest.approx(values[3], rel=1e-6)
    assert done.scores("loss", 0, group="new")[0, 0] == pytest.approx(values[4:].mean(), rel=1e-6)
