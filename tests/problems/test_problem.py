import jax
import jax.numpy as jnp
import numpy as np
import pytest

import headstart as hs
from headstart.core import Weighted
from headstart.errors import UsageError
from headstart.metrics import Metric
from tests import toy


def test_scores_are_the_loss_and_what_is_added():
    margin = Metric.from_function("margin", lambda outputs, targets: outputs * targets, higher_is_better=True)
    problem = hs.CustomProblem(toy.start, toy.logistic_loss, predict, metrics=(margin,))
    batch = hs.Examples(jnp.ones((2, 3)), jnp.asarray([1.0, -1.0]))
    scores = problem.scores(problem.init(jax.random.key(0)), batch)
    assert set(scores) == {"loss", "margin"}
    np.testing.assert_allclose(scores["loss"], (np.log1p(np.exp(-0.5)) + np.log1p(np.exp(0.5))) / 2, rtol=1e-6)
    np.testing.assert_allclose(scores["margin"], 0, atol=1e-6)
    filled = Weighted(jax.tree.map(lambda a: jnp.concatenate([a, a[:1] * jnp.nan]), batch), jnp.asarray([1.0, 0, 0]))
    scores = problem.scores(problem.init(jax.random.key(0)), filled)
    np.testing.assert_allclose([scores["loss"], scores["margin"]], [np.log1p(np.exp(-0.5)), 0.5], rtol=1e-6)
    assert problem.metric("margin") is margin
    with pytest.raises(UsageError, match=r"(?s)no metric 'margine'.*Did you mean 'margin'"):
        problem.metric("margine")


def predict(params, batch):
    return batch.x @ params["weight"] + params["bias"], batch.y


def test_whole_numbers_are_averaged_like_others():
    """Shares of a weighted batch as whole numbers are zero, and so was every mean."""
    right = Metric.from_function("right", lambda outputs, targets: (outputs * targets > 0).astype(int))
    problem = hs.CustomProblem(toy.start, toy.logistic_loss, predict, metrics=(right,))
    federation = toy.federation(query_sizes=(4, 3, 4, 2, 4))
    table = hs.Simulation(hs.fedavg(batch_size=2), problem, federation).evaluate(hs.Evaluation(steps=(0,)))
    w = toy.flat(toy.start())
    want = [np.mean(y * (x @ w[:3] + w[3]) > 0) for _, (x, y) in toy.client_arrays(query_sizes=(4, 3, 4, 2, 4))]
    np.testing.assert_allclose(table["right"].to_numpy(), want, rtol=1e-6)
    assert max(want) > 0


def test_metrics_without_outputs_are_refused():
    with pytest.raises(UsageError, match=r"(?s)'accuracy' compares outputs with targets.*predict_fn"):
        hs.CustomProblem(toy.start, toy.logistic_loss, metrics=("accuracy",))


def test_any_pytree_of_parameters_and_of_samples_trains():
    def loss(params, batch):
        scale, (shift, table) = params
        predicted = scale["k"] * batch["speed"] + shift + table[batch["machine"]].sum(axis=-1)
        return jnp.mean((predicted - batch["wear"]) ** 2)

    def init(key):
        return {"k": jnp.zeros(())}, [jnp.zeros(()), jax.random.normal(key, (2, 2))]

    rng = np.random.default_rng(0)
    pool = {"speed": rng.random(12), "machine": rng.integers(0, 2, 12), "wear": rng.random(12)}
    rows = np.arange(12).reshape(3, 4)
    federation = hs.Federation.from_arrays(pool, rows, rows)
    algorithm = hs.per_fedavg(batch_size=2, outer_lr=0.1, local_steps=2)
    result = hs.train(algorithm, hs.CustomProblem(init, loss), federation, rounds=2)
    assert jax.tree.structure(result.params) == jax.tree.structure(init(jax.random.key(0)))
    assert result.final("loss", 0)["mean"] < result.summary["mean"][0].as_py()
