import jax
import jax.numpy as jnp
import numpy as np
import pytest

from headstart.data import mnist_small, sine
from headstart.errors import UsageError


def test_sine_tasks_are_the_papers_grid():
    federation = sine(clients=25, held_out=5)
    assert (federation.total, federation.trained) == (30, 25)
    tasks = federation.clients.tasks
    grid = {(round(float(a), 4), round(float(p), 4)) for a, p in zip(tasks["amplitude"], tasks["phase"], strict=True)}
    assert len(grid) == 30
    wanted = {(float(a), round(i * np.pi / 5, 4)) for a in range(1, 6) for i in range(1, 6)}
    assert wanted <= grid
    held_out = np.asarray(tasks["amplitude"][25:])
    assert held_out.min() >= 1
    assert held_out.max() <= 5


def test_sine_samples_lie_on_their_wave():
    federation = sine(clients=5, held_out=0)
    batch = federation.clients.view("train", jnp.asarray(3)).sample(jax.random.key(0), 50)
    assert batch.x.shape == batch.y.shape == (50, 1)
    assert np.abs(batch.x).max() <= 5
    np.testing.assert_allclose(batch.y, 4 * np.sin(np.asarray(batch.x) + np.pi / 5), atol=1e-5)


def test_sine_noise_and_seed():
    noisy = sine(clients=1, held_out=2, noise=0.5)
    batch = noisy.clients.view("train", jnp.asarray(0)).sample(jax.random.key(0), 400)
    rest = np.asarray(batch.y) - np.sin(np.asarray(batch.x) + np.pi / 5)
    assert abs(rest.std() - 0.5) < 0.08
    other = sine(clients=1, held_out=2, seed=1)
    assert (np.asarray(noisy.clients.tasks["amplitude"])[1:] != np.asarray(other.clients.tasks["amplitude"])[1:]).all()
    with pytest.raises(UsageError, match="noise = -1"):
        sine(noise=-1)


def test_mnist_small_is_bytes_scaled_on_the_way_out():
    federation = mnist_small(clients=10, held_out=2, a=4, test_a=2)
    assert (federation.total, federation.trained) == (10, 8)
    assert federation.clients.pool.x.dtype == jnp.uint8
    for part in ("train", "query"):
        batch = federation.clients.view(part, jnp.asarray(9)).sample(jax.random.key(0), 6)
        assert batch.x.shape == (6, 28, 28)
        assert (float(batch.x.min()), float(batch.x.max())) == (0.0, 1.0)
        assert jnp.issubdtype(batch.y.dtype, jnp.integer)
    assert sorted(set(federation.counts["train"].tolist())) == [2 + 8, 5 * 4]
    rows = federation.clients.parts
    assert not np.isin(rows["train"].rows, rows["query"].rows).any()
