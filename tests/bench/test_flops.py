"""FLOPs counted from a trace against closed forms."""

from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import headstart as hs
from headstart.bench.flops import flops, round_flops
from headstart.core import HessianFree

FEATURES, OWNED, BATCH, COHORT, STEPS = 12, 10, 4, 2, 3


def test_a_product() -> None:
    a, b = jnp.zeros((3, 5)), jnp.zeros((5, 7))
    assert flops(jnp.matmul, a, b) == 2 * 3 * 5 * 7


def test_loops_count_every_turn_and_what_is_not_used_counts_nothing() -> None:
    a = jnp.zeros((4, 4))

    def scanned(a: jax.Array) -> jax.Array:
        unused = a @ a
        del unused
        return jax.lax.scan(lambda carry, _: (carry @ a, None), a, length=6)[0]

    assert flops(scanned, a) == 6 * 2 * 4**3
    assert flops(lambda a: jax.lax.fori_loop(0, a.shape[0], lambda _, b: b @ a, a), a) == 4 * 2 * 4**3


def test_a_convolution_counts_the_same_in_both_forms() -> None:
    from headstart.models.conv import convolve

    x, weight = jnp.zeros((2, 8, 8, 3)), jnp.zeros((3, 3, 3, 5))
    expected = 2 * (2 * 8 * 8 * 5) * (3 * 3 * 3)
    assert flops(convolve, x, weight) == expected
    canonical = hs.core.with_canonical_convolutions(convolve)
    assert flops(canonical, x, weight) == expected
    by_kernel = jax.grad(lambda weight: jnp.vdot(canonical(x, weight), jnp.ones((2, 8, 8, 5))))
    assert flops(by_kernel, weight) == pytest.approx(expected, rel=0.1)


def perceptron_flops(curvature: str, batch: int) -> float:
    """Of a round of Per-FedAvg with MLP 80-60, by hand: each layer's product forwards, by weights and by inputs."""
    first, rest = FEATURES * 80, 80 * 60 + 60 * 10
    forward, weights, inputs = first + rest, first + rest, rest
    gradient = forward + weights + inputs
    # The tangent of a gradient, beside the forward and backward passes that it needs.
    product = forward + inputs + (first + 2 * rest) + (first + 2 * rest) + 2 * rest
    step = {"first-order": 2 * gradient, "exact": 2 * gradient + product, "hessian-free": 4 * gradient}[curvature]
    return 2.0 * batch * step * COHORT * STEPS


@pytest.mark.parametrize("batch", [BATCH, "full"])
@pytest.mark.parametrize("curvature", ["first-order", "exact", "hessian-free"])
def test_a_round_does_no_product_in_vain(curvature: str, batch: int | Literal["full"]) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.random((4 * OWNED, FEATURES), np.float32), rng.integers(0, 10, 4 * OWNED)
    rows = np.split(np.arange(4 * OWNED), 4)
    federation = hs.Federation.from_arrays(hs.Examples(x, y), rows, rows)
    chosen = HessianFree(1e-3) if curvature == "hessian-free" else curvature
    algorithm = hs.per_fedavg(local_steps=STEPS, batch_size=batch, curvature=chosen)
    simulation = hs.Simulation(algorithm, hs.Classification(hs.MLP(FEATURES, 10)), federation, cohort=COHORT)
    assert round_flops(simulation) == pytest.approx(
        perceptron_flops(curvature, OWNED if batch == "full" else BATCH), rel=0.02
    )
