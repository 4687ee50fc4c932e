"""The notebooks run from top to bottom, and have the output of a whole run in them."""

import json
from pathlib import Path

import pytest

from tests.docs.fences import ROOT

NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
FEW = "ROUNDS = 2\n"


def cells(path: Path) -> list[dict]:
    return [c for c in json.loads(path.read_text(encoding="utf-8"))["cells"] if c["cell_type"] == "code"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs(path, monkeypatch, capsys):
    import matplotlib

    matplotlib.use("agg")
    names: dict = {"__name__": "__main__"}
    shortened = 0
    for number, cell in enumerate(cells(path)):
        lines = [line for line in "".join(cell["source"]).splitlines(keepends=True) if not line.startswith("%")]
        shortened += sum(line.startswith("ROUNDS = ") for line in lines)
        code = "".join(FEW if line.startswith("ROUNDS = ") else line for line in lines)
        exec(compile(code, f"{path.name}, cell {number}", "exec"), names)
    assert shortened == 1
    assert "after 1" in capsys.readouterr().out


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_its_output_is_there(path):
    outputs = [output for cell in cells(path) for output in cell["outputs"]]
    assert not any(output["output_type"] == "error" for output in outputs)
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert all(cell["execution_count"] for cell in cells(path))
    assert path.stat().st_size < 200_000


def test_there_are_two():
    assert len(NOTEBOOKS) == 2
