"""`headstart plan`, and runs with planned settings."""

import json

import pytest

import headstart as hs
from headstart.experiment import planning
from headstart.theory import Effort, estimate_constants
from headstart.theory.planner import METHODS


@pytest.fixture
def known(monkeypatch):
    """Constants as if they had been estimated: for tests of what comes after."""
    estimate = planning.Estimate(0.5, 0.1, 3, "largest over 2 clients of 3")
    monkeypatch.setattr(planning, "estimate_constants", lambda *_, names, **__: dict.fromkeys(names, estimate))


@pytest.fixture
def quick(known, monkeypatch):
    """Of all constants only the quickest are estimated."""
    pretend = planning.estimate_constants

    def estimate(*arguments, names, **options):
        really = names == ("gradient_bound",)
        return (estimate_constants if really else pretend)(*arguments, names=names, **options)

    monkeypatch.setattr(planning, "estimate_constants", estimate)
    monkeypatch.setattr(planning, "EFFORT", Effort(starts=2, climbs=1, steps=1, products=2, samples=2))


def test_a_plan_is_printed_written_and_drawn(headstart, tiny, tmp_path, quick):
    code, out, err = headstart(
        "plan", tiny, "--epsilon", 5, "--safety", 2, "--clients", 2,
        "--json", tmp_path / "plan.json", "--picture", tmp_path / "bound.png", "--rounds", 4,
    )  # fmt: skip
    assert (code, err) == (0, "")
    for part in ("smoothness", "std. error", "local-scgdm", "dominant", "ε = 5", "lower bound", "not negative", "ReLU"):
        assert part in " ".join(out.split())
    plan = json.loads((tmp_path / "plan.json").read_text())
    assert set(plan["plans"]) == set(METHODS)
    assert plan["epsilon"] == 5
    assert plan["estimates"]["gradient_bound"]["value"] not in (0, 0.5)
    for name in ("smoothness", "gradient_bound"):
        assert plan["constants"][name] == 2 * plan["estimates"][name]["value"]
    for found in plan["plans"].values():
        assert (found["run"] is None) == (found["obstacle"] is not None)
        assert found["run"] is None or found["bound"] <= 5
    assert (tmp_path / "bound.png").read_bytes().startswith(b"\x89PNG")


def test_a_planned_run_records_its_settings_and_resumes(headstart, tiny, tmp_path, known):
    code, out, err = headstart("run", tiny, "--plan", "--out", tmp_path / "run")
    assert (code, err) == (0, "")
    assert "smallest ε within 6 rounds" in " ".join(out.split())
    assert "no progress is promised" in " ".join(out.split())
    config = hs.load_run(tmp_path / "run").config
    own = config["algorithm"]
    assert own["inner_lr"] == 0.01
    assert 0 < own["outer_lr"] <= 1 / (10 * own["local_steps"] * 4 * 0.5)
    assert own["batch_size"] != 5
    assert config["train"]["rounds"] == 6
    assert config["baselines"]["fedavg"]["outer_lr"] == own["outer_lr"], "baselines inherit what is planned"
    code, _, _ = headstart("run", "--resume", tmp_path / "run")
    assert code == 0
    assert hs.load_run(tmp_path / "run").config == config


def test_too_few_rounds_are_said(headstart, tiny, tmp_path, known):
    code, out, _ = headstart("run", tiny, "--plan", "--epsilon", 0.5, "--out", tmp_path / "run")
    assert code == 0
    assert "this run has 6" in " ".join(out.split())
    assert hs.load_run(tmp_path / "run").config["train"]["rounds"] == 6


def test_a_plan_may_need_other_clients_and_rounds(headstart, tiny, tmp_path, known):
    code, out, _ = headstart(
        "run", tiny, "--plan", "--epsilon", 1e4, "--out", tmp_path / "run",
        "--set", "algorithm.name=local-moml", "--set", "algorithm.keep_memory=true",
    )  # fmt: skip
    assert code == 0
    config = hs.load_run(tmp_path / "run").config
    assert config["train"]["cohort"] == 6
    assert config["train"]["rounds"] == 1
    assert "needs 1 of the experiment's 6 rounds" in " ".join(out.split())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("plan", "--epsilon", 0), "epsilon = 0.0 is not above 0"),
        (("plan", "--radius", -1), "radius = -1.0 is not above 0"),
        (("plan", "--safety", 0.5), "safety = 0.5 is below 1"),
        (("plan", "--clients", 1), "clients = 1"),
        (("plan", "--rounds", 5), "no --picture"),
        (("plan", "--json", "nowhere/plan.json"), "no folder nowhere"),
        (("plan", "--set", "data.partition=1"), "data.partition is not a setting"),
        (("run", "--epsilon", 1), "there is no --plan"),
        (("run", "--plan", "--set", "algorithm.name=reptile"), "no theorem on reptile"),
        (("run", "--plan", "--epsilon", 1e-9, "--set", "algorithm.curvature=first-order"), "stays above"),
    ],
)
def test_mistakes(headstart, tiny, known, arguments, says):
    command, *rest = arguments
    code, _, err = headstart(command, tiny, *rest)
    assert code == 2
    assert says in err


def test_constants_that_are_not_finite_are_refused(headstart, tiny, monkeypatch):
    estimate = planning.Estimate(float("inf"), 0.1, 3, "largest over 2 clients of 3")
    monkeypatch.setattr(planning, "estimate_constants", lambda *_, names, **__: dict.fromkeys(names, estimate))
    code, _, err = headstart("plan", tiny)
    assert code == 2
    assert "smoothness = inf is not a finite number" in err


def test_more_clients_than_train_are_refused(headstart, tiny):
    code, _, err = headstart("plan", tiny, "--clients", 99)
    assert code == 2
    assert "only 6 train" in err
