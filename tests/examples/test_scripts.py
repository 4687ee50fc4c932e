"""The scripts that people start from, run at sizes that take seconds."""

import numpy as np
import pytest

from examples import compare_methods, first_run, own_network, own_table, private_training, sweep_steps
from tests.docs.fences import ROOT


def test_first_run(tmp_path, capsys):
    run = first_run.main(rounds=2, out=tmp_path / "run")
    assert set(run.results) == {"MetaFL", "fedavg"}
    assert (tmp_path / "run" / "report.html").exists()
    assert "after one step of their own" in capsys.readouterr().out


def test_own_table(tmp_path):
    shared, own = own_table.main(rounds=30, shops=8, out=tmp_path / "run")
    assert own < shared  # two weeks of its own data tell a shop more than other shops do
    assert (tmp_path / "run" / "new_shop.safetensors").exists()


def test_own_network():
    result = own_network.main(rounds=2)
    scores = [result.final(name, steps=5, group="held-out")["mean"] for name in ("accuracy", "top 2")]
    assert 0 <= scores[0] <= scores[1] <= 1


def test_private_training(capsys):
    found = private_training.main(rounds=2, clients=40)
    assert set(found) == {"as they are", "private"}
    assert "epsilon = 8" in capsys.readouterr().out


def test_compare_methods(tmp_path, capsys):
    found = compare_methods.main(rounds=2, seeds=2, out=tmp_path / "page.html")
    assert [int(entry.spent.rounds) for entry in found.entries] == [2, 3, 6, 6]
    assert "after Holm's correction" in capsys.readouterr().out
    assert (tmp_path / "page.html").exists()


def test_sweep_steps(capsys):
    inner, outer = sweep_steps.main(rounds=3, sizes=(1e-9, 0.1), seeds=2)
    assert outer == 0.1  # the other leaves the model as it began
    assert np.isfinite(inner)
    assert "over seeds" in capsys.readouterr().out


@pytest.mark.parametrize("name", sorted(path.stem for path in (ROOT / "examples").glob("*.py")))
def test_the_list_of_examples_names_each(name):
    assert f"`{name}.py`" in (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
