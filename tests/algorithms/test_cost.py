"""What a client's round is said to cost, against what it does when watched."""

from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from headstart.core import RefreshingAlgorithm, UserComposition, Weighted, weighing
from headstart.data import Federation
from headstart.problems import Examples, Prototypes
from tests import toy
from tests.algorithms.contract import CONTRACT, setting


class Meter:
    """A loss that counts how often it is differentiated, once or twice, and which batches it is given."""

    def __init__(self):
        self.gradients = self.products = 0
        self.batches = {}
        plain = weighing(toy.logistic_loss)

        def backward(seen, cotangent):
            params, batch = seen
            # Where the gradient itself is being differentiated, the parameters carry a tangent.
            twice = any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(params))
            self.products += twice
            self.gradients += not twice
            self.note(batch)
            gradient = jax.grad(plain)(params, batch)
            return jax.tree.map(lambda leaf: cotangent * leaf, gradient), jax.tree.map(jnp.zeros_like, batch)

        def value(params, batch):
            self.note(batch)
            return plain(params, batch)

        self.loss = jax.custom_vjp(value)
        self.loss.defvjp(lambda params, batch: (plain(params, batch), (params, batch)), backward)

    def objective(self, problem):
        """The loss; for a problem of prototypes, a composition with it as f, of a g that looks at its batch."""
        if not isinstance(problem, Prototypes):
            return self.loss

        def inner(params, batch):
            self.note(batch)
            return params

        return UserComposition(inner, self.loss, personal=True)

    def note(self, batch):
        x = np.asarray(batch.samples.x)[np.asarray(batch.weight) > 0] if isinstance(batch, Weighted) else batch.x
        self.batches[np.asarray(x).tobytes()] = len(x)


def never_twice(task, key, size):
    x = jax.random.normal(key, (size, toy.FEATURES)) + task
    return Examples(x, jnp.sign(x[:, 0]))


@pytest.mark.parametrize("name", CONTRACT)
def test_gradients_products_and_samples(name):
    algorithm, meter = CONTRACT[name], Meter()
    clients = Federation.from_tasks(jnp.zeros(2), never_twice, support_size=4, query_size=4).clients
    rounds = getattr(algorithm, "period", 1)
    with jax.disable_jit():
        server, state = algorithm.init_server(toy.start()), algorithm.init_client(toy.start())
        view, objective = clients.view("train", jnp.asarray(1)), meter.objective(setting(name)[0])
        for k in range(rounds):
            down = algorithm.broadcast(server, jax.random.key(0))
            if isinstance(algorithm, RefreshingAlgorithm):
                algorithm.refresh(objective, down, state, view, jax.random.key(rounds + k), participation=0.5)
            up = algorithm.client_update(objective, down, state, view, jax.random.key(k)).up
            server = algorithm.server_update(server, up) if k < rounds - 1 else server
    cost = algorithm.cost()
    assert (meter.gradients, meter.products) == (rounds * cost.gradients, rounds * cost.products)
    assert Counter(meter.batches.values()) == {size: rounds * n for size, n in cost.batches.items()}
    assert sum(meter.batches.values()) == rounds * cost.samples(client_samples=10**6)
    assert max(meter.batches.values()) == cost.largest_batch()
