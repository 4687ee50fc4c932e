"""Step sizes by themselves: what a tuned run finds, records, keeps and repeats."""

import json

import numpy as np
import pytest

import headstart as hs
from headstart.report.comparison import comparison_table
from headstart.simulate.evaluate import kept_round
from headstart.tuning import SearchStopped
from tests.cli.test_run import assert_same_run

QUICK = [
    "train.rounds=12", "train.cohort=6", "train.backend=vmap", "model.hidden=[6]", "algorithm.local_steps=2",
    "evaluate.every=3",
]  # fmt: skip


def _table(clients=14, rows=12, scale=1.0):
    rng = np.random.default_rng(0)
    who = np.repeat(np.arange(clients), rows)
    x = rng.normal(size=(len(who), 2))
    y = x @ [1.0, -2.0] + 0.5 * (who % 5) + 0.1 * rng.normal(size=len(who))
    when = np.arange(len(who))
    return {"who": [f"p{i}" for i in who], "when": when, "a": x[:, 0], "b": 1e6 * x[:, 1], "y": scale * y}


def _experiment(**options):
    settings = [*QUICK, *options.pop("settings", [])]
    return hs.Experiment.from_table(_table(), client="who", label="y", order="when", settings=settings, **options)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tuned") / "run"
    return _experiment().run(folder), folder


def test_what_was_found_is_in_the_record(tuned):
    run, folder = tuned
    manifest = json.loads((folder / "run.json").read_text())
    config, tuning = manifest["config"], manifest["tuning"]
    assert "tune" not in config
    assert tuning["asked"]["tune"]["over"]["per-fedavg"] == ["inner_lr", "outer_lr"]
    found = tuning["methods"]
    assert config["algorithm"]["outer_lr"] == found["per-fedavg"]["settings"]["outer_lr"]
    assert config["baselines"]["fedavg"]["outer_lr"] == found["fedavg"]["settings"]["outer_lr"]
    assert config["baselines"]["alone"]["own_steps"] == found["alone"]["settings"]["own_steps"]
    assert config["adapt"]["per-fedavg"]["steps"] == found["per-fedavg"]["steps"]
    for method in found.values():
        scores = [row["rmse"] for row in method["tried"] if row["rmse"] is not None]
        assert method["score"] <= np.median(scores), "the chosen one is a good one"
    assert run.record.tuning == tuning
    model = hs.load(folder / "per-fedavg" / "model.safetensors")
    assert model.description.adaptation.steps == found["per-fedavg"]["steps"]
    assert model.description.adaptation.lr == pytest.approx(found["per-fedavg"]["inner_lr"])


def test_the_best_round_for_validation_clients_is_kept_and_new_ones_are_looked_at_once(tuned):
    run, folder = tuned
    for label, method in run.record.methods.items():
        rows = method.table.to_pylist()
        kept = kept_round(method.summary)
        most = max(row["steps"] for row in rows)
        scores = {}
        for round_ in {row["round"] for row in rows}:
            mean = {
                group: np.mean([
                    row["rmse"] for row in rows
                    if (row["round"], row["steps"]) == (round_, most) and (row["held_out"], row["validation"]) == group
                ])
                for group in ((False, False), (True, True))
            }  # fmt: skip
            scores[round_] = 0.9 * mean[False, False] + 0.1 * mean[True, True]  # one validation client of fourteen
        assert kept == min(sorted(scores), key=scores.get), label
        assert {row["round"] for row in rows if row["held_out"] and not row["validation"]} == {kept}
        assert json.loads((folder / label / "model.json").read_text())["kept"] == kept
    table = run.comparison.to_pylist()
    assert {row["round"] for row in table if row["method"] == "alone"} <= {0, 12}


def test_it_repeats_without_the_search(tuned, tmp_path):
    _, folder = tuned
    config = json.loads((folder / "run.json").read_text())["config"]
    again = _experiment()._with(config)
    assert again.settings.tune is None
    again.run(tmp_path / "again")
    assert_same_run(folder, tmp_path / "again")


def test_a_search_that_was_stopped_goes_on_to_the_same(tuned, tmp_path):
    _, folder = tuned

    def stopping(told):
        if told.method == "fedavg" and told.done > 0:
            raise SearchStopped

    stopped = _experiment().run(tmp_path / "parts", searching=stopping)
    assert stopped.stopped == "fedavg"
    assert not stopped.results
    assert (tmp_path / "parts" / "tuning" / "per-fedavg.json").exists()
    _experiment().resume(tmp_path / "parts")
    assert_same_run(folder, tmp_path / "parts")
    one, other = (json.loads((path / "run.json").read_text())["tuning"] for path in (folder, tmp_path / "parts"))
    assert one == other


def test_what_is_given_stays_and_the_rest_is_searched():
    experiment = _experiment(settings=["algorithm.inner_lr=0.02", "evaluate.steps=[0,2]"])
    over = experiment.config["tune"]["over"]
    assert over == {"per-fedavg": ["outer_lr"], "fedavg": ["outer_lr"], "alone": ["learning_rate", "own_steps"]}
    assert experiment.config["tune"]["steps"] == [0, 2]
    assert _experiment(tune=False).settings.tune is None
    assert _experiment(tune=False).config["evaluate"]["steps"] == [0, 1, 5]
    assert hs.Experiment.from_toml().settings.tune is None
    every = hs.Experiment.from_toml(settings=["algorithm.name='pfedme'"], tune=True).config["tune"]["over"]
    assert every["pfedme"] == ["penalty", "inner_lr", "outer_lr"]


def test_a_baseline_that_diverges_says_so_and_ends_nothing(tmp_path):
    settings = ["algorithm.inner_lr=0.01", "algorithm.outer_lr=0.01"]
    for keep, step in (("last", 1e6), ("best", 1e30)):  # the larger one before anything is recorded
        given = [*settings, f"baselines.fedavg.outer_lr={step}", f"train.keep={keep}"]
        experiment = _experiment(settings=given, tune=False)
        run = experiment.run(tmp_path / keep)
        assert run.stopped is None
        assert "not finite" in run.record.methods["fedavg"].diverged
        assert run.record.methods["alone"].done
        comparison_table(run.record)
        assert run.record.methods["per-fedavg"].diverged is None
        resumed = experiment.resume(tmp_path / keep)
        assert resumed.record.methods["fedavg"].diverged == run.record.methods["fedavg"].diverged
    with pytest.raises(hs.UsageError, match="no model"):
        hs.load_run(tmp_path / "last").methods["fedavg"].params({})
    assert (tmp_path / "best" / "fedavg" / "model.safetensors").exists(), "the round before it diverged was kept"
    with pytest.raises(Exception, match="not finite"):
        _experiment(settings=["algorithm.outer_lr=1e6", "train.keep=last"], tune=False).run()


@pytest.mark.parametrize("how", ["halving", "grid", "random", "optuna"])
def test_any_settings_can_be_tuned(how, tmp_path):
    if how == "optuna":
        pytest.importorskip("optuna")
    experiment = _experiment(tune=False, settings=["algorithm.batch_size=4"])
    over = ["algorithm.outer_lr=0.0001:1000:log", "algorithm.local_steps=1:2"]
    found = experiment.tune(over, how, trials=4)
    assert len(found.tried) == 4
    values = [row["rmse"] for row in found.tried if row["rounds"] == 12]
    finite = [value for value in values if value is not None]
    assert finite
    assert values[: len(finite)] == sorted(finite), "the best one first, and what diverged last"
    found.write(tmp_path / "best.toml")
    import tomllib

    tables = tomllib.loads((tmp_path / "best.toml").read_text())
    assert tables["algorithm"]["outer_lr"] == found.best["algorithm.outer_lr"]
    assert tables == found.experiment.config
