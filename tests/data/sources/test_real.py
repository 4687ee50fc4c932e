"""Counts of the real data, where HEADSTART_DATA names a folder that has it."""

import time

import numpy as np
import pytest

from headstart.data import sources
from tests.data.sources.real import FOLDER


def load(name, **options):
    if not FOLDER or sources.locate(name, FOLDER) is None:
        pytest.skip(f"HEADSTART_DATA names no folder with {name}")
    return sources.SOURCES[name].load(folder=FOLDER, **options)


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
def test_digits(name):
    start = time.perf_counter()
    samples = load(name)
    assert time.perf_counter() - start < 5
    assert samples.x.shape == (70_000, 28, 28)
    assert samples.test.sum() == 10_000
    if name == "mnist":
        assert np.bincount(samples.y[~samples.test]).tolist() == [
            5923,
            6742,
            5958,
            6131,
            5842,
            5421,
            5918,
            6265,
            5851,
            5949,
        ]
    else:
        assert (np.bincount(samples.y) == 7000).all()


def test_cifar10():
    samples = load("cifar10")
    assert samples.x.shape == (60_000, 32, 32, 3)
    assert (np.bincount(samples.y[samples.test]) == 1000).all()
    assert samples.classes[6] == "frog"
    # The means of the training set by colour, as published countless times.
    means = samples.x[~samples.test].mean(axis=(0, 1, 2)) / 255
    np.testing.assert_allclose(means, [0.4914, 0.4822, 0.4465], atol=1e-4)


def test_cifar100():
    samples = load("cifar100")
    assert len(samples.classes) == 100
    assert len(np.unique(np.stack([samples.column("fine"), samples.column("coarse")]), axis=1).T) == 100


def test_omniglot():
    samples = load("omniglot")
    assert samples.x.shape == (32_460, 28, 28)
    assert (np.bincount(samples.y) == 20).all()
    assert len(np.unique(samples.column("alphabet"))) == 50
    assert samples.column("evaluation").sum() == 13_180


def test_har():
    samples = load("har")
    assert samples.x.shape[1:] == (128, 6)
    assert np.unique(samples.column("person")).tolist() == list(range(1, 31))
    still = samples.x[np.isin(samples.y, [3, 4, 5]), :, :3]
    np.testing.assert_allclose(np.linalg.norm(still.mean(axis=1), axis=1).mean(), 1, atol=0.05)  # g


def test_shakespeare():
    samples = load("shakespeare", min_samples=100)
    assert len(set(samples.column("play"))) >= 35
    assert len(samples) > 3_000_000
