"""A folder of made-up data sets in the form of the real ones, and units that take a moment."""

import numpy as np
import pytest

from headstart_papers.record import Unit

IMAGES = {"mnist": (28, 28), "cifar10": (32, 32, 3)}


@pytest.fixture(scope="session")
def data_folder(tmp_path_factory):
    """Random images, a few of every class: the experiments' smallest versions need no more."""
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)

    def images(number, shape):
        return rng.integers(0, 256, (number, *shape), np.uint8)

    for name, shape in IMAGES.items():
        labels = {f"y_{part}": np.tile(np.arange(10, dtype=np.uint8), 120) for part in ("train", "test")}
        arrays = {f"x_{part}": images(1200, shape) for part in ("train", "test")}
        np.savez(folder / f"{name}.npz", classes=np.array([f"class {i}" for i in range(10)]), **arrays, **labels)
    fine = np.tile(np.arange(100, dtype=np.uint8), 24)
    coarse_of_fine = (np.arange(100) // 5).astype(np.uint8)
    np.savez(
        folder / "cifar100.npz",
        classes=np.array([f"class {i}" for i in range(100)]),
        coarse_classes=np.array([f"kind {i}" for i in range(20)]),
        coarse_of_fine=coarse_of_fine,
        **{f"x_{part}": images(len(fine), (32, 32, 3)) for part in ("train", "test")},
        **{f"y_{part}": fine for part in ("train", "test")},
        **{f"coarse_{part}": coarse_of_fine[fine] for part in ("train", "test")},
    )
    characters = np.repeat(np.arange(50 * 10), 20)
    np.savez(
        folder / "omniglot.npz",
        x=images(len(characters), (28, 28)),
        alphabet=(characters // 10).astype(np.uint8),
        char=characters.astype(np.uint16),
        char_in_alphabet=(characters % 10).astype(np.uint8),
        lake_id=characters.astype(np.uint16),
        drawer=np.tile(np.arange(20, dtype=np.uint8), 500),
        evaluation=(characters // 10 >= 30).astype(np.uint8),
        alphabet_names=np.array([f"alphabet {i}" for i in range(50)]),
    )
    return folder


@pytest.fixture
def sine_unit():
    """A unit on generated data: two step sizes, two seeds."""

    def unit(rounds=30, **settings):
        return Unit(
            "toy/sine",
            "k1",
            settings.pop("method", "maml"),
            (0, 1),
            {
                "data": {"name": "sine", "clients": 5, "held_out": 3},
                "model": {"name": "mlp", "hidden": [8], "activation": "relu"},
                "common": {"batch_size": 2},
                "algorithm": {"name": "maml"},
                "grid": {"outer_lr": [0.01, 0.001]},
                "train": {"rounds": rounds, "cohort": 3},
                "evaluate": {"times": 3, "steps": [0, 1], "batch_size": 10},
                "final": {},
                "scores": {"error": ["loss", [1], "held-out", None, False]},
                "seeds": [0, 1],
                "together": True,
                "extras": [],
            }
            | settings,
        )

    return unit
