"""What only released code does, against the same steps in numpy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from headstart.core import BatchSizes
from headstart_papers.released import METHODS
from tests import toy
from tests.algorithms.reference import gradient

ALPHA, ETA, BETA, SIZE = 0.04, 0.3, 0.6, 2


@pytest.mark.usefixtures("x64")
def test_a_memory_that_restarts_from_unscaled_inputs():
    released = METHODS["local-moml-unscaled"]
    settings = {"inner_lr": ALPHA, "outer_lr": ETA, "averaging": BETA, "local_steps": 1, "batch_size": SIZE}
    method = released.build(**settings, curvature="first-order", **released.given)
    key, client = jax.random.key(7), toy.federation().clients.view("train", jnp.asarray(1))
    down = method.broadcast(method.init_server(toy.start()), jax.random.key(0))
    up = jax.jit(lambda key: method.client_update(toy.logistic_loss, down, (), client, key).up)(key)

    w = toy.flat(toy.start())
    restart = toy.to_numpy(client.sample(jax.random.fold_in(key, 1), SIZE))
    drawn = toy.to_numpy(BatchSizes(SIZE).draw(client, jax.random.fold_in(key, 0), 1, looks_at="nothing"))
    u = w - ALPHA * gradient(w, (255 * restart.x, restart.y))
    u = (1 - BETA) * u + BETA * (w - ALPHA * gradient(w, (drawn.inner.x[0], drawn.inner.y[0])))
    np.testing.assert_allclose(toy.flat(up), -ETA * gradient(u, (drawn.outer.x, drawn.outer.y)), rtol=1e-8)
