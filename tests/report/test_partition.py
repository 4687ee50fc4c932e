"""Tables and pictures of partitions, small and large."""

import sys
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from headstart.data.partitions import IID, DirichletMixtures, Natural, QuantitySkew, TwoGroups, describe
from headstart.data.samples import Samples
from headstart.errors import UsageError
from headstart.report import partition_table, plot_partition
from headstart.report.partition import _stacked
from tests.data.partitions.common import samples


def shown(summary):
    console = Console(width=120)
    with console.capture() as capture:
        console.print(partition_table(summary))
    return capture.get()


def two_groups():
    partition = TwoGroups(clients=12, a=4, test_a=2)(samples(90), 0)
    return replace(partition, held_out=3, names=[f"site {i}" for i in range(12)])


def regression():
    rng = np.random.default_rng(0)
    return Samples("homes", rng.normal(size=(400, 2)), rng.normal(size=400), columns={"home": np.arange(400) % 4})


def test_few_clients_with_their_classes():
    text = shown(describe(two_groups()))
    for words in ("site 0", "class 3", "10/5", "10/5", "... and 2 more", "9 train, 3 held out", "8 to 10, median 9"):
        assert words in text, text
    assert "site 9 (held out)" in text
    assert "• toy has no test set of its own" in text


def test_many_classes_are_named_where_a_client_has_most():
    text = shown(describe(DirichletMixtures(3, 100, 0.01)(samples(300, 12), 0)))
    assert "most of its training samples" in text
    assert "80/20" in text


def test_a_regression_shows_its_targets():
    text = shown(describe(Natural("home")(regression(), 0)))
    for words in ("mean target", "80/20", "tenths of the targets", "all are equal"):
        assert words in text, text


@pytest.mark.parametrize(
    "partition",
    [
        two_groups(),
        DirichletMixtures(5, 50, 0.1)(samples(20, 40), 0),
        Natural("home")(regression(), 0),
        IID(130, test_share=0.5)(regression(), 0),
        IID(150)(samples(300), 0),
        QuantitySkew(150, 0.05, 1)(samples(300), 0),
        DirichletMixtures(120, 20, 0.1)(samples(100, 40), 0),
    ],
    ids=["bubbles", "heat", "regression", "many homes", "equal sizes", "unequal sizes", "many classes"],
)
def test_the_picture_is_drawn(partition, tmp_path):
    plot_partition(describe(partition), tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes()[:4] == b"\x89PNG"


def test_pixels_are_in_proportion_to_samples():
    pixels, main = _stacked(np.array([[1, 3], [2, 2], [4, 0], [0, 0]]))
    assert pixels.shape == (400, 3)
    # Sorted: all of class 0, half of each (0 first), then mostly class 1.
    assert [(column == 0).sum() for column in pixels.T] == [400, 200, 100]
    assert main.sum(axis=0).tolist() == [400, 200, 300]


def test_without_matplotlib_the_remedy_is_told(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UsageError, match=r"(?s)Matplotlib is not installed.*headstart\[plot\]"):
        plot_partition(describe(two_groups()), tmp_path / "picture.png")
