"""Settings that suit the data: by its name, by its size, and by what is to be predicted."""

import numpy as np
import pytest

import headstart as hs
from headstart.data import DATASETS
from headstart.errors import UsageError
from headstart.experiment import fitted
from headstart.experiment.defaults import SUITING, suiting
from headstart.experiment.settings import Settings
from headstart.experiment.tables import OWN_DATA, read_tables


@pytest.mark.parametrize("name", sorted(set(DATASETS) - {"own"}))
def test_every_named_data_set_has_settings_that_can_be_read(name):
    tables = suiting({**read_tables(None, OWN_DATA), "data": {"name": name}}, asked_for=False)
    resolved = Settings.from_tables(tables).resolved
    for section, settings in SUITING[name].items():
        for key, value in settings.items():
            found = resolved[section][key]
            assert found == value or found.items() >= value.items()
    assert tables["data"].get("validation") or name == "omniglot"


def test_what_was_asked_for_stays():
    asked = {"data": {"name": "omniglot"}, "algorithm": {"name": "fedavg", "local_steps": 3}}
    filled = suiting(asked, asked_for=True)
    assert filled["algorithm"] == asked["algorithm"]
    assert filled["model"]["name"] == "conv"
    assert suiting({**asked, "model": {"name": "mlp"}}, asked_for=True)["model"] == {"name": "mlp"}
    dealt = suiting({"data": {"name": "mnist", "held_out": 5}}, asked_for=False)["data"]
    assert dealt == {"name": "mnist", "held_out": 5}


def _federation(clients, support, query):
    rows = np.arange(support + query)
    lists = [rows[:support]] * clients, [rows[support:]] * clients
    return hs.Federation.from_arrays(np.zeros((support + query, 1)), *lists, held_out=clients // 5)


ASKED = {"algorithm": {"local_steps": 10, "batch_size": 20}, "train": {"rounds": 300, "cohort": 10}}
TRAINING = 300 * 10 * 10 * 20 * 4


def test_evaluations_cost_no_more_than_training():
    for clients, support, query in ((20, 50, 10), (2_000, 150, 50), (5_000, 3, 1)):
        evaluate = fitted(ASKED | {"evaluate": {"steps": [0, 1, 5]}}, _federation(clients, support, query))["evaluate"]
        most, every = evaluate.get("max_clients", 10_000), evaluate.get("every", 30)
        looked_at = min(most, clients * 4 // 5) + min(most, clients // 5)
        cost = (1 + 300 // every) * looked_at * (6 * support + query)
        assert cost <= TRAINING or looked_at <= 2 * 20
    small = fitted(ASKED | {"evaluate": {"steps": [0, 1, 5]}}, _federation(20, 50, 10))["evaluate"]
    assert small == {"steps": [0, 1, 5]}, "a small federation is evaluated whole"
    large = fitted(ASKED | {"evaluate": {"steps": [0, 1, 5]}}, _federation(2_000, 150, 50))["evaluate"]
    assert large["max_clients"] < 1_600
    given = fitted(ASKED | {"evaluate": {"max_clients": 7}}, _federation(2_000, 150, 50))["evaluate"]
    assert given["max_clients"] == 7


def test_very_long_clients_are_looked_at_less_often():
    short = {**ASKED, "train": {"rounds": 20, "cohort": 10}, "evaluate": {"steps": [0, 1, 5], "batch_size": 100}}
    evaluate = fitted(short, _federation(200, 4_000, 1_000))["evaluate"]
    assert evaluate["max_clients"] == 20
    assert evaluate["every"] > 2


def test_one_small_client_does_not_make_others_adapt_on_a_few_rows():
    rows = np.arange(600)
    supports, queries = [rows[:500], rows[500:503]], [rows[503:560], rows[560:]]
    federation = hs.Federation.from_arrays(np.zeros((600, 1)), supports, queries)
    assert fitted(ASKED, federation)["evaluate"]["batch_size"] == 20


def test_where_nearly_all_labels_are_one_class_the_area_is_shown_too():
    labels = ["yes" if i % 25 == 0 else "no" for i in range(200)]
    data = {"who": [f"p{i % 8}" for i in range(200)], "a": np.arange(200.0) % 7, "y": labels}
    experiment = hs.Experiment.from_table(data, client="who", label="y")
    assert [metric.name for metric in experiment.problem.metrics] == ["loss", "accuracy", "auc"]
    assert any("of the labels are 'no'" in note for note in experiment.notes)
    even = hs.Experiment.from_table({**data, "y": ["no", "yes"] * 100}, client="who", label="y")
    assert [metric.name for metric in even.problem.metrics] == ["loss", "accuracy"]


SCALES = {
    "tiny features, huge targets": (1e-6, 1e6),
    "huge features, tiny targets": (1e6, 1e-6),
}


@pytest.mark.parametrize("scales", SCALES.values(), ids=SCALES.keys())
def test_no_scale_makes_a_run_diverge(scales):
    """The same table in other units is the same to a model, and its errors are in the units of its targets."""
    rng = np.random.default_rng(0)
    who = np.repeat(np.arange(6), 20)
    x = rng.normal(size=(120, 3))
    heavy = np.exp(rng.normal(0, 4, 120))
    rare = (np.arange(120) == 5).astype(float)
    y = x @ [1.0, -1.0, 0.5] + 0.3 * who + 0.05 * rng.normal(size=120)

    def run(feature, target):
        columns = {f"x{j}": feature * x[:, j] for j in range(3)}
        table = {"who": [f"p{i}" for i in who], **columns, "heavy": feature * heavy, "rare": rare, "one": [3.0] * 120}
        # Rows are split by time, for otherwise the split depends on what they hold.
        table |= {"when": np.arange(120.0), "y": target * y}
        quick = ["train.rounds=10", "train.backend=vmap", "model.hidden=[8]", "evaluate.every=10"]
        experiment = hs.Experiment.from_table(table, client="who", label="y", order="when", settings=quick, tune=False)
        return {
            (r["method"], r["metric"], r["steps"]): r["mean"]
            for r in experiment.run().comparison.to_pylist()
            if r["group"] == "all"
        }

    plain, scaled = run(1.0, 1.0), run(*scales)
    assert plain["per-fedavg", "rmse", 5] < y.std() / 2
    for (method, metric, steps), value in plain.items():
        unit = scales[1] if metric in ("rmse", "mae") else 1.0
        assert scaled[method, metric, steps] == pytest.approx(unit * value, rel=2e-2, abs=2e-3 * unit)


def test_rows_and_clients_that_teach_nothing_are_left_out_and_said(tmp_path):
    rng = np.random.default_rng(0)
    who = [f"p{i % 12}" for i in range(120)] + ["loner"]
    y = [None if i % 40 == 0 else float(value) for i, value in enumerate(rng.normal(size=121))]
    data = {"who": who, "a": rng.normal(size=121), "y": y}
    experiment = hs.Experiment.from_table(data, client="who", label="y")
    assert "loner" not in experiment.federation.names
    assert "4 rows of 121 without 'who' or 'y' are left out." in experiment.notes
    with pytest.raises(UsageError, match="row 1 of the table has no label"):
        hs.Experiment.from_table(data, client="who", label="y", drop_missing=False)
