"""Distances between clients' data against closed forms, linear programs and each other."""

import importlib.util
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headstart as hs
from headstart.theory import distance
from headstart.theory.distance import (
    client_samples,
    frequencies,
    total_variation,
    total_variation_to_mean,
    wasserstein,
    wasserstein_to_mean,
)
from headstart.theory.per_fedavg import sampled_wasserstein


@pytest.fixture(params=["scipy", "pot"])
def solver(request, monkeypatch):
    """The linear program by SciPy, and by POT where it is installed."""
    if request.param == "pot":
        pytest.importorskip("ot")
    else:
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)


def test_frequencies_of_labels_and_of_rows():
    np.testing.assert_allclose(frequencies([[0, 0, 2, 5], [5]]), [[0.5, 0.25, 0.25], [0, 0, 1]])
    np.testing.assert_allclose(frequencies([[[0, 1], [1, 0]], [[1, 0], [1, 0]]]), [[0.5, 0.5], [0, 1]])


def test_total_variation_to_the_mean_of_the_clients():
    labels = [[0, 0, 0, 1], [1, 1], [2]]
    shares = frequencies(labels)
    expected = [total_variation(row, shares.mean(axis=0)) for row in shares]
    np.testing.assert_allclose(total_variation_to_mean(labels), expected)
    np.testing.assert_allclose(total_variation_to_mean([[1], [2], [3], [4]]), 0.75)
    np.testing.assert_allclose(total_variation_to_mean([[1, 2], [2, 1, 1, 2]]), 0)


def test_wasserstein_of_shifted_samples_is_the_shift():
    x = np.random.default_rng(0).normal(size=(30, 4))
    shift = np.array([3.0, 0.0, 0.0, 4.0])
    assert wasserstein(x, x[::-1] + shift) == pytest.approx(5)
    assert wasserstein(x[:, 0], x[:, 0] - 2) == pytest.approx(2)


@pytest.mark.usefixtures("solver")
def test_unequal_samples_agree_with_repeated_ones():
    """A sample that is repeated is one that is likelier: the linear program against the assignment."""
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(4, 3)), rng.normal(size=(6, 3))
    repeated = wasserstein(np.repeat(x, 3, axis=0), np.repeat(y, 2, axis=0))
    assert wasserstein(x, y) == pytest.approx(repeated)
    assert wasserstein(x, y, [1, 1, 0, 0], [0, 0, 0, 0, 2, 2]) == pytest.approx(wasserstein(x[:2], y[4:]))
    padded = np.zeros((4, 2)), np.zeros((6, 2))
    line = wasserstein(np.c_[x[:, 0], padded[0]], np.c_[y[:, 0], padded[1]])
    assert line == pytest.approx(wasserstein(x[:, 0], y[:, 0]))


@pytest.mark.usefixtures("solver")
def test_wasserstein_to_the_mean_of_the_clients():
    rng = np.random.default_rng(2)
    samples = [rng.normal(i, 1, size=(size, 2)) for i, size in enumerate((3, 5, 4))]
    everyone = np.concatenate(samples)
    weight = np.concatenate([np.full(len(rows), 1 / len(rows)) for rows in samples])
    expected = [wasserstein(rows, everyone, None, weight) for rows in samples]
    np.testing.assert_allclose(wasserstein_to_mean(samples), expected, rtol=1e-6)
    assert wasserstein_to_mean(samples[:1]) == [0]


@given(seed=st.integers(0, 10**6))
def test_wasserstein_is_a_distance(seed):
    rng = np.random.default_rng(seed)
    x, y, z = (rng.normal(size=(5, 2)) * rng.uniform(0.1, 3) for _ in range(3))
    assert wasserstein(x, x) == pytest.approx(0, abs=1e-12)
    assert wasserstein(x, y) == pytest.approx(wasserstein(y, x))
    assert wasserstein(x, z) <= wasserstein(x, y) + wasserstein(y, z) + 1e-9
    assert wasserstein(x, y) >= np.linalg.norm(x.mean(0) - y.mean(0)) - 1e-9  # means are 1-Lipschitz


def test_clients_of_unequal_sizes_lose_their_filling():
    federation = hs.data.mnist_small(clients=8, held_out=2)
    data = client_samples(federation)
    assert [len(batch.y) for batch in data] == list(federation.counts["train"][:6])
    distances = total_variation_to_mean([batch.y for batch in data])
    assert (distances >= 0).all()
    assert distances.max() > 0.5  # a client that mostly has one digit
    (drawn,) = client_samples(hs.data.sine(), clients=[3], batch_size=7)
    assert drawn.x.shape == (7, 1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: total_variation([0.5, 0.5], [1.0]), "not over the same values"),
        (lambda: total_variation([2, 3], [1, 0]), "first distribution adds up to 5"),
        (lambda: wasserstein([[1.0, 2.0]], [[1.0]]), "in entry 1"),
        (lambda: wasserstein([1.0], []), "entry 1 are empty"),
        (lambda: wasserstein([1.0], [2.0], [1.0, 1.0]), "for 1 samples"),
        (lambda: distance.frequencies([]), "no samples"),
    ],
)
def test_mistakes(call, message):
    with pytest.raises(hs.UsageError, match=message):
        call()


@pytest.mark.parametrize(("dimension", "samples"), [(1, 3), (1, 300), (2, 20), (3, 30)])
def test_clients_of_few_samples_are_as_near_as_promised(dimension, samples):
    """To a distribution of 90 points in a cube; the one with the farthest corners is the hardest."""
    rng = np.random.default_rng(dimension)
    for points in (rng.uniform(size=(90, dimension)), rng.integers(0, 2, (90, dimension)).astype(float)):
        drawn = [wasserstein(points[rng.integers(0, 90, samples)], points) for _ in range(8 if dimension == 1 else 2)]
        assert math.sqrt(np.mean(np.square(drawn))) <= sampled_wasserstein(math.sqrt(dimension), dimension, samples)


def test_distance_of_a_sample_falls_with_its_root_on_a_line_only():
    """``W_1 = O(1/sqrt(m))`` of fallah's section 4.1 fails in a cube of five dimensions, for every sample."""
    ball = math.pi**2.5 / math.gamma(3.5)

    def least(samples):
        """Half of the cube's volume is farther than this from all points of any sample, and half of that is W_1."""
        return (2 * samples * ball) ** (-1 / 5) / 2

    for samples in (10**4, 10**6, 10**8):
        assert least(samples) <= sampled_wasserstein(math.sqrt(5), 5, samples)
    roots = [math.sqrt(samples) * least(samples) for samples in (10**4, 10**8, 10**12)]
    assert roots[1] > 10 * roots[0]
    assert roots[2] > 10 * roots[1]
    falls = [sampled_wasserstein(1.0, 5, 10**10) / sampled_wasserstein(1.0, 5, 10**5), 10 ** (-5 / 5)]
    assert falls[0] == pytest.approx(falls[1], rel=0.3)
    assert sampled_wasserstein(1.0, 1, 10**6) == pytest.approx(sampled_wasserstein(1.0, 1, 100) / 100)


def test_clients_on_disk(tmp_path):
    pool = np.memmap(tmp_path / "pool", np.float32, "w+", shape=(6, 1))
    pool[:] = np.arange(6)[:, None]
    rows = [np.array([0]), np.array([1, 2]), np.array([3, 4, 5])]
    federation = hs.Federation.from_arrays(pool, rows, rows)
    assert [list(samples[:, 0]) for samples in client_samples(federation, clients=[2, 0])] == [[3, 4, 5], [0]]
