import jax
import jax.numpy as jnp
import numpy as np
import pytest

import headstart as hs
from headstart.problems.waves import Waves, WaveSamples


def test_the_loss_is_a_skewed_wave_and_the_samples_slope():
    w, centre, slope = np.random.default_rng(0).normal(size=(3, 4, 2))
    loss = Waves(dimension=2).loss(jnp.asarray(w[0]), WaveSamples(jnp.asarray(centre), jnp.asarray(slope)))
    t = w[0] - centre
    expected = np.mean(np.sum(-np.cos(t) - 0.5 * np.sin(t) * np.cos(t) + slope * w[0], axis=1))
    np.testing.assert_allclose(loss, expected, rtol=1e-5)


def test_the_wave_is_steeper_on_one_side_of_its_minimum():
    problem = Waves(dimension=1)
    still = WaveSamples(jnp.zeros((1, 1)), jnp.zeros((1, 1)))
    slope = jax.vmap(lambda t: jax.grad(problem.loss)(t[None], still)[0])
    lowest = np.arcsin((np.sqrt(3) - 1) / 2)
    low, right, left = (float(v) for v in slope(jnp.array([lowest, lowest + 1, lowest - 1])))
    assert abs(low) < 1e-6
    assert right > -left > 0


def test_runs_start_alike():
    problem = Waves(dimension=3)
    assert problem.init(jax.random.key(0)).tolist() == problem.init(jax.random.key(1)).tolist() == [1.5] * 3
    with pytest.raises(hs.UsageError, match="dimension"):
        Waves(dimension=0)
