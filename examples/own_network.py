"""A network, a loss and a metric of one's own, in any method: here an Equinox CNN with label smoothing.

Run it with ``python examples/own_network.py``; it takes about a minute.
"""

import equinox as eqx
import jax
import jax.numpy as jnp

import headstart as hs
from headstart.metrics import Metric


class Network(eqx.Module):
    """One convolution, pooling and a dense layer, for a single image."""

    convolution: eqx.nn.Conv2d
    dense: eqx.nn.Linear

    def __init__(self, key: jax.Array):
        first, second = jax.random.split(key)
        self.convolution = eqx.nn.Conv2d(1, 8, kernel_size=5, stride=2, key=first)
        self.dense = eqx.nn.Linear(8 * 6 * 6, 10, key=second)

    def __call__(self, image: jax.Array) -> jax.Array:
        seen = jax.nn.relu(self.convolution(image[None]))
        pooled = seen.reshape(8, 6, 2, 6, 2).max(axis=(2, 4))
        return self.dense(pooled.ravel())


model = hs.EquinoxModel(Network)


def smoothed(params, batch) -> jax.Array:
    """Cross entropy with a tenth of every label spread over all classes."""
    logits = model.apply(params, batch.x)
    wanted = 0.9 * jax.nn.one_hot(batch.y, 10) + 0.01
    return -jnp.mean(jnp.sum(wanted * jax.nn.log_softmax(logits), axis=-1))


top_two = Metric.from_function(
    "top 2", lambda logits, y: (jax.lax.top_k(logits, 2)[1] == y[:, None]).any(axis=1), higher_is_better=True, unit="%"
)
problem = hs.CustomProblem(
    model.init,
    smoothed,
    predict_fn=lambda params, batch: (model.apply(params, batch.x), batch.y),
    metrics=("accuracy", top_two),
)


def main(rounds: int = 60) -> hs.Result:
    """Train it with Per-FedAvg, and score people who never trained."""
    result = hs.train(
        hs.per_fedavg(inner_lr=0.1, outer_lr=0.1, local_steps=4, batch_size=20),
        problem,
        hs.data.mnist_small(clients=40, held_out=10),
        rounds=rounds,
        cohort=0.2,
        evaluation=hs.Evaluation(steps=(0, 1, 5)),
    )
    for steps in (0, 1, 5):
        scores = [result.final(name, steps=steps, group="held-out")["mean"] for name in ("accuracy", "top 2")]
        print(f"after {steps} steps: accuracy {scores[0]:.1%}, top 2 {scores[1]:.1%}")
    return result


if __name__ == "__main__":
    main()
