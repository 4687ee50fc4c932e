import jax
import jax.numpy as jnp
import numpy as np
import pytest

import headstart as hs
from headstart.problems import SupervisedTask, problem_for

LOGITS = np.array([[2.0, 0.5, -1.0], [0.0, 3.0, 0.0], [1.0, 1.5, 4.0], [0.3, 0.2, 0.1]])
LABELS = np.array([0, 1, 0, 2])


class Given(hs.models.Model):
    """A model whose outputs are its parameters."""

    def init(self, key):
        return jnp.asarray(LOGITS)

    def apply(self, params, x):
        return params


def test_classification_is_cross_entropy_and_accuracy():
    problem, batch = hs.Classification(Given()), hs.Examples(jnp.zeros(4), jnp.asarray(LABELS))
    shares = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)
    want = -np.log(shares[np.arange(4), LABELS]).mean()
    params = problem.init(jax.random.key(0))
    scores = problem.scores(params, batch)
    np.testing.assert_allclose(scores["loss"], want, rtol=1e-6)
    np.testing.assert_allclose(problem.loss(params, batch), want, rtol=1e-6)
    assert float(scores["accuracy"]) == 0.5
    slopes = (shares - np.eye(3)[LABELS]) / 4
    np.testing.assert_allclose(jax.grad(problem.loss)(params, batch), slopes, rtol=1e-5, atol=1e-7)


def test_regression_is_the_mean_squared_error():
    problem, targets = hs.Regression(Given()), np.ones((4, 3))
    batch = hs.Examples(jnp.zeros(4), jnp.asarray(targets))
    params = problem.init(jax.random.key(0))
    np.testing.assert_allclose(problem.scores(params, batch)["loss"], ((LOGITS - targets) ** 2).mean(), rtol=1e-6)
    assert set(problem.scores(params, batch)) == {"loss", "rmse", "mae"}


def test_equal_problems_are_equal_so_that_they_share_compiled_programs():
    one, two = (hs.Classification(hs.MLP(inputs=4, outputs=2)) for _ in range(2))
    assert one == two
    assert hash(one) == hash(two)


@pytest.mark.parametrize(("kind", "problem"), [("classification", hs.Classification), ("regression", hs.Regression)])
def test_a_task_and_a_model_make_a_problem(kind, problem):
    model = hs.MLP(inputs=3, outputs=2)
    assert problem_for(SupervisedTask(kind, 3, 2), model) == problem(model)


def test_squared_error_is_half_the_squared_distance_to_the_label():
    problem, batch = hs.Classification(Given(), error="squared"), hs.Examples(jnp.zeros(4), jnp.asarray(LABELS))
    want = ((LOGITS - np.eye(3)[LABELS]) ** 2).sum(axis=1).mean() / 2
    params = problem.init(jax.random.key(0))
    np.testing.assert_allclose(problem.loss(params, batch), want, rtol=1e-6)
    np.testing.assert_allclose(problem.scores(params, batch)["loss"], want, rtol=1e-6)
