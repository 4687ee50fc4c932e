"""`headstart algorithms` and `headstart --version`."""

import io
from importlib.metadata import version

from rich.console import Console

import headstart as hs
from headstart.algorithms import ALGORITHMS


def test_every_algorithm_is_listed_with_its_paper_and_fields(headstart, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    code, out, _ = headstart("algorithms")
    assert code == 0
    for name, entry in ALGORITHMS.items():
        assert name in out
        assert entry.paper.split(" ")[0] in out
    for field in ("inner_lr", "curvature", "penalty", "refinement", "mu"):
        assert field in out


def test_version(headstart):
    code, out, _ = headstart("--version")
    assert code == 0
    assert out.strip() == f"headstart {version('headstart')}"


def test_slots_for_parts_are_named_with_what_fits():
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(hs.report.algorithms_table())
    out = console.export_text()
    assert "server_optimizer (optimizer)" in out
    assert "(optimizer): one of sgd, adam, " in out
