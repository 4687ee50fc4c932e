import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest

import headstart as hs
from headstart.errors import UsageError
from headstart.simulate import Evaluation, Simulation, summarize
from tests import toy
from tests.algorithms import reference
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
        for row in summarize(table, {"accuracy"}).to_pylist()
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
    rows = summarize(table, {"accuracy"}).to_pylist()
    assert {row["group"] for row in rows} == {"all"}
    tiny = summarize(table.slice(0, 3), {"accuracy"}).to_pylist()
    assert [row["worst10"] for row in tiny] == [tiny[0]["max"], tiny[1]["min"]]


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: Evaluation(every=0), "evaluate.every = 0"),
        (lambda: Evaluation(steps=()), "steps is empty"),
        (lambda: Evaluation(steps=(-1,)), "evaluate.steps = -1"),
        (lambda: Evaluation(batch_size=0), "evaluate.batch_size = 0"),
        (lambda: Evaluation(inner_lr=-1.0), "evaluate.inner_lr = -1.0"),
        (lambda: Evaluation(max_clients=0), "evaluate.max_clients = 0"),
        (lambda: Evaluation(inner_lr=0.1).adapting(hs.Aruba()), "Aruba adapts with step sizes of its own.*Leave"),
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
