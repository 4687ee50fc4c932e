import jax
import jax.numpy as jnp
import numpy as np
import pytest

from headstart import MLP, LocalMOML, Regression, train
from headstart.data import mnist_small, sine
from headstart.errors import UsageError
from headstart.experiment import Settings, read_tables


def test_sine_tasks_are_the_papers_grid():
    federation = sine(clients=25, held_out=5)
    assert (federation.total, federation.trained) == (30, 25)
    tasks = federation.clients.tasks
    grid = {(round(float(a), 4), round(float(p), 4)) for a, p in zip(tasks["amplitude"], tasks["phase"], strict=True)}
    assert len(grid) == 30
    wanted = {(float(a), round(i * np.pi / 5, 4)) for a in range(1, 6) for i in range(1, 6)}
    assert wanted <= grid


@pytest.mark.parametrize(
    ("options", "amplitudes", "phases"),
    [
        ({}, (1, 5), (np.pi / 5, np.pi)),
        ({"held_out_amplitudes": (0.1, 5.0), "held_out_phases": (0.0, 5.0)}, (0.1, 5), (0, np.pi)),
    ],
    ids=["wang", "gao"],
)
def test_held_out_sine_tasks_fill_the_papers_ranges(options, amplitudes, phases):
    tasks = sine(held_out=600, **options).clients.tasks
    for values, (low, high) in ((tasks["amplitude"], amplitudes), (tasks["phase"], phases)):
        drawn = np.asarray(values[25:])
        shares = np.histogram(drawn, bins=4, range=(low - 1e-6, high + 1e-6))[0] / 600
        np.testing.assert_allclose(shares, 0.25, atol=0.07)
        assert shares.sum() == pytest.approx(1), "none lies outside"


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
    assert "noise" not in other.clients.tasks, "nothing is drawn where there is none"


def test_sine_noise_leaves_x_alone():
    views = [sine(clients=1, noise=noise).clients.view("train", jnp.asarray(0)) for noise in (0.0, 0.5)]
    plain, noisy = (view.sample(jax.random.key(0), 5) for view in views)
    np.testing.assert_array_equal(plain.x, noisy.x)


def _owned(seed=0, **options):
    """The tasks that each client of a sine federation owns, from a configuration's tables."""
    tables = read_tables(None) | {"data": {"name": "sine", "owners": 5, "seed": seed, **options}}
    federation = Settings.from_tables(tables).data.build()
    members, sizes = np.asarray(federation.clients.members), np.asarray(federation.clients.sizes)
    return federation, [row[:size].tolist() for row, size in zip(members, sizes, strict=True)]


def test_sine_tasks_are_dealt_out_to_owners_at_random_and_evenly():
    federation, owned = _owned()
    assert (federation.total, federation.trained, federation.tasks_per_client) == (5, 5, (5, 5))
    assert sorted(task for group in owned for task in group) == list(range(25))
    assert all(sorted(group) != list(range(min(group), min(group) + 5)) for group in owned)
    assert owned == _owned()[1]
    assert owned != _owned(seed=1)[1]
    assert (federation.tasks.total, federation.tasks.trained) == (30, 25), "judged on every task and the held-out ones"


def test_owners_of_unequally_many_tasks():
    federation, owned = _owned(clients=13)
    assert [len(group) for group in owned] == [3, 3, 3, 2, 2]
    algorithm = LocalMOML(batch_size=2, tasks_per_client=2)
    with pytest.raises(UsageError, match=r"(?s)clients have 2 to 3 tasks.*set it to 3"):
        train(algorithm, Regression(MLP(inputs=1, outputs=1, hidden=(4,))), federation, rounds=1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"noise": -1.0}, "noise = -1"),
        ({"owners": 0}, "owners = 0"),
        ({"clients": 4, "owners": 5}, "owners = 5 leaves some without a task: there are 4.*at most 4"),
        ({"held_out_phases": (2.0, 1.0)}, r"held_out_phases = \(2.0, 1.0\) is not a range"),
        ({"held_out_amplitudes": (1.0,)}, r"held_out_amplitudes = \(1.0,\) is not a range"),
    ],
)
def test_sine_refusals(options, words):
    with pytest.raises(UsageError, match=f"(?s){words}"):
        sine(**options)


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
