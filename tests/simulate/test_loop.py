import jax
import jax.numpy as jnp
import numpy as np
import pytest

import headstart as hs
from headstart.errors import ClientFailure, UsageError
from headstart.simulate import Simulation
from tests import toy
from tests.simulate.scribe import Scribe

NAMES = ["ada", "bob", "cyd"]
ALGORITHM = hs.fedavg(batch_size=2, local_steps=1, outer_lr=0.1)


def loop(loss, **options):
    pool = np.array([1.0, 2.0, 3.0, 4.0, -5.0, -6.0])
    rows = np.arange(6).reshape(3, 2)
    federation = hs.Federation.from_arrays(pool, rows, rows, names=NAMES)
    problem = hs.CustomProblem(lambda key: jnp.ones(()), loss)
    return Simulation(ALGORITHM, problem, federation, backend="loop", **options)


def test_an_exception_names_client_and_round():
    def loss(params, batch):
        if not isinstance(batch, jax.core.Tracer) and float(batch.min()) < 0:
            raise ValueError("negative reading")
        return params * jnp.mean(batch)

    with pytest.raises(ClientFailure, match="client cyd failed in round 0: ValueError: negative reading") as caught:
        loop(loss).advance(1)
    assert (caught.value.client, caught.value.round) == ("cyd", 0)
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_nan_names_client_and_round():
    sim = loop(lambda params, batch: params * jnp.mean(jnp.sqrt(batch)), cohort=1)
    first = toy.cohorts(sim, 10)[:, 0].tolist().index(2)
    assert first > 0
    with pytest.raises(ClientFailure, match=rf"client cyd failed in round {first}: .*not finite; lower the step"):
        sim.advance(10)


def test_a_mistake_of_the_callers_stays_a_usage_error():
    def loss(params, batch):
        raise UsageError("The loss is not ready.", "Finish it.")

    with pytest.raises(UsageError, match="not ready"):
        loop(loss).advance(1)


def test_weights_by_samples():
    pool = np.arange(8.0)[:, None]
    federation = hs.Federation.from_arrays(pool, [np.arange(2), np.arange(2, 8)], [[0], [1]])
    problem = hs.CustomProblem(lambda key: jnp.zeros(1), lambda params, batch: jnp.mean((batch - params) ** 2))
    ends = []
    for backend in ("loop", "vmap"):
        sim = Simulation(Scribe(2), problem, federation, weighting="samples", backend=backend)
        sim.advance(1)
        means = np.asarray(sim.state.clients["drawn"]).mean(axis=(1, 2))
        np.testing.assert_allclose(sim.state.server.params, [(2 * means[0] + 6 * means[1]) / 8], rtol=1e-6)
        ends.append(np.asarray(sim.state.server.params))
    np.testing.assert_allclose(*ends, rtol=1e-6)
