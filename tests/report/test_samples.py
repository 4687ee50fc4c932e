import io

import numpy as np
import pytest
from rich.console import Console

from headstart.data.samples import Samples
from headstart.report import plot_samples, samples_table


def shown(samples):
    console = Console(file=io.StringIO(), width=100)
    console.print(samples_table(samples))
    return console.file.getvalue()


def classes(shape, number=3, dtype=np.uint8):
    x = np.random.default_rng(0).integers(0, 255, (30, *shape)).astype(dtype)
    return Samples("toy", x, np.arange(30) % number, tuple(f"class {c}" for c in range(number)))


def test_what_is_told_of_samples():
    samples = Samples(
        "toy", np.zeros((30, 4, 4), np.uint8), np.arange(30) % 20, tuple(f"class {c}" for c in range(20)),
        test=np.arange(30) < 10, columns={"person": np.array(list("abcde") * 6)}, source="made up",
    )  # fmt: skip
    text = shown(samples)
    for words in (
        "30 (20 for training, 10 for tests)", "4 x 4 of uint8", "one of 20 classes", "5 values: a, b, c, d, ...",
        "made up", "class 11", "and 8 more", "1 to 1 each",
    ):  # fmt: skip
        assert words in text, text
    assert "class 12" not in text


def test_targets_of_a_regression():
    text = shown(Samples("homes", np.zeros((4, 2), np.float32), np.array([1.0, 2.0, 3.0, 6.0])))
    assert "a number, mean 3, deviation 1.871, from 1 to 6" in text


@pytest.mark.parametrize(
    "samples",
    [
        classes((8, 8)),
        classes((8, 8, 3), number=20),
        classes((64, 6), dtype=np.float32),
        Samples("homes", np.random.default_rng(0).normal(size=(50, 15)), np.zeros(50)),
    ],
    ids=["images", "colour", "signals", "table"],
)
def test_pictures(samples, tmp_path):
    plot_samples(samples, tmp_path / "samples.png")
    assert (tmp_path / "samples.png").stat().st_size > 5_000
