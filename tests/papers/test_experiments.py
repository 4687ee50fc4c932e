"""Every experiment of the papers in its smallest version, from its record to its report."""

import json

import pytest

from headstart_papers.reading import find_experiments
from headstart_papers.report import write_reports
from headstart_papers.store import Store
from headstart_papers.unit import FORMAT, run_unit

EXPERIMENTS = {experiment.id: experiment for experiment in find_experiments()}


def is_another_reading(id_):
    """Whether a record has the methods and rows of another one, in other settings: ``wang/table3-released``."""
    paper, name = id_.split("/")
    return f"{paper}/{name.split('-')[0]}" in EXPERIMENTS and "-" in name


def whole_or_one_method(id_):
    """All methods of an experiment, and one method of its other readings, whose others are left to slow runs."""
    if not is_another_reading(id_):
        return [pytest.param(id_, None, id=id_)]
    return [pytest.param(id_, 1, id=f"{id_}, one method"), pytest.param(id_, None, id=id_, marks=pytest.mark.slow)]


@pytest.fixture(autouse=True)
def _made_up_data(data_folder, monkeypatch):
    monkeypatch.setenv("HEADSTART_DATA", str(data_folder))


@pytest.mark.parametrize(("id_", "most"), [case for id_ in EXPERIMENTS for case in whole_or_one_method(id_)])
def test_runs_end_to_end(id_, most, tmp_path):
    experiment, store = EXPERIMENTS[id_], Store(tmp_path)
    units = list(experiment.units("tiny"))
    assert {unit.method for unit in units} == set(experiment.methods)
    for unit in units[:most]:
        store.write(unit, run_unit(unit))
        assert_form(json.loads(store.path(unit).read_text()), unit, experiment)
    report = write_reports([experiment], tmp_path, "tiny")
    assert experiment.title in report.read_text()
    told = (tmp_path / experiment.id / "report.md").read_text()
    for method in experiment.methods.values():
        assert method.title in told
    for claim in experiment.claims:
        assert claim.text in told


def assert_form(result, unit, experiment):
    assert result["format"] == FORMAT
    assert result["fingerprint"] == unit.fingerprint
    assert result["versions"]["jax"]
    evaluations = len(result["evaluated"])
    assert evaluations == len(result["samples"]) == len(result["seconds"]) >= 2
    points, seeds = len(result["points"]), len(unit.seeds)
    for score in experiment.scores.values():
        if score.extra:
            assert all(value > 0 for value in result["extras"][score.metric])
            continue
        final, curves = result["final"][score.id], result["curves"][score.id]
        assert len(final) == len(curves) == points
        assert all(len(row) == seeds for row in final)
        assert all(len(curve) == evaluations for row in curves for curve in row)
        assert all(isinstance(value, float) for row in final for value in row), "even a moment's run is finite"
