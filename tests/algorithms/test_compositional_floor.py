"""Why there are memories: with a batch of one sample, the biased gradient stalls where they go on.

``F(x) = mean_k sum_j exp(x_j) - c_kj x_j`` seen through ``g(x; xi) = x + xi`` with normal noise of variance
``s^2 / K`` in a batch of K. The gradient on a batch is that of ``exp(s^2 / 2K + x_j) - c_kj x_j``, which vanishes where
``exp(x) = c exp(-s^2 / 2K)``. There the gradient of F has the norm ``|c| (1 - exp(-s^2 / 2K))``: the floor.
A memory of weight gamma leaves ``gamma / (2 - gamma)`` of the variance.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import headstart as hs
from headstart.algorithms import LocalSCGDM, local_bsgd, local_scgd
from headstart.simulate import Simulation

TARGETS = np.array([[0.5, 1.0, 1.5], [1.5, 1.0, 0.5], [2.0, 0.5, 0.5], [0.0, 1.5, 1.5]])
DEVIATION = 1.0
STEPS = {"outer_lr": 0.02, "local_steps": 5}
SEEDS = range(4)


def draw(target, key, size):
    noise = DEVIATION * jax.random.normal(key, (size, target.shape[0]))
    return {"noise": noise, "target": jnp.broadcast_to(target, noise.shape)}


PROBLEM = hs.CompositionalProblem(
    init_fn=lambda key: jnp.zeros(TARGETS.shape[1]),
    inner_fn=lambda x, batch: x + jnp.mean(batch["noise"], axis=0),
    outer_fn=lambda u, batch: jnp.sum(jnp.exp(u) - jnp.mean(batch["target"], axis=0) * u),
)


def floor(variance):
    return np.linalg.norm(TARGETS.mean(axis=0)) * (1 - np.exp(-variance / 2))


def gradient_norm(algorithm, seed):
    """The mean norm of the gradient of F over the last two thirds of a run."""
    federation = hs.Federation.from_tasks(TARGETS, draw, query_size=1)
    sim = Simulation(algorithm, PROBLEM, federation, seed=seed)
    norms = []
    for _ in range(30):
        sim.advance(20)
        norms.append(np.linalg.norm(np.exp(np.asarray(sim.state.server.params)) - TARGETS.mean(axis=0)))
    return np.mean(norms[10:])


@pytest.mark.parametrize("size", [1, 4])
def test_the_biased_gradient_stalls_at_a_floor_that_larger_batches_lower(size):
    norms = [gradient_norm(local_bsgd(batch_size=size, **STEPS), seed) for seed in SEEDS]
    np.testing.assert_allclose(np.mean(norms), floor(DEVIATION**2 / size), rtol=0.05)


@pytest.mark.parametrize(
    "algorithm",
    [LocalSCGDM(averaging=0.1, momentum=0.2, batch_size=1, **STEPS), local_scgd(averaging=0.1, batch_size=1, **STEPS)],
    ids=["local-scgdm", "local-scgd"],
)
def test_a_memory_goes_below_it_with_batches_of_one(algorithm):
    norms = [gradient_norm(algorithm, seed) for seed in SEEDS]
    assert max(norms) < floor(DEVIATION**2) / 4
