"""`headstart algorithms` and `headstart --version`."""

from importlib.metadata import version

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
