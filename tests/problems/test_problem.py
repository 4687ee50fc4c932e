import jax
import jax.numpy as jnp
import numpy as np

import headstart as hs
from tests import toy


def test_metrics_are_the_loss_and_what_is_added():
    problem = hs.CustomProblem(toy.start, toy.logistic_loss, lambda params, batch: {"bias": params["bias"]})
    batch = hs.Examples(jnp.ones((2, 3)), jnp.ones(2))
    scores = problem.metrics(problem.init(jax.random.key(0)), batch)
    assert set(scores) == {"loss", "bias"}
    np.testing.assert_allclose(scores["loss"], np.log1p(np.exp(-0.5)), rtol=1e-6)


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
