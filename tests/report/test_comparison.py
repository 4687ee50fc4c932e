"""The comparison's numbers are the record's, and it is readable in any terminal."""

import itertools
import math

import pyarrow as pa
import pytest
from rich.console import Console

from headstart.errors import UsageError
from headstart.experiment import MethodRecord, RunRecord
from headstart.metrics import ACCURACY, LOSS, MAE, R2, RMSE, Metric
from headstart.report import best_model, comparison_table, further_table, method_title, plot_run
from headstart.report.comparison import headline_metric, shown_groups
from headstart.simulate.evaluate import described


def _method(path, rows, metrics):
    return MethodRecord(
        path, True, pa.table({"seconds": [1.0, 2.5]}), None, described(pa.Table.from_pylist(rows), metrics)
    )


def _record(tmp_path):
    rows = [
        {"round": r, "group": g, "steps": k, "metric": m, "mean": mean, "std": 0.05, "worst10": 0.3}
        for r, g, k, m, mean in [
            (0, "all", 0, "accuracy", 0.1), (0, "all", 1, "accuracy", 0.2),
            (5, "all", 0, "accuracy", 0.6), (5, "all", 1, "accuracy", 0.912),
            (9, "all", 0, "accuracy", 0.7), (9, "all", 1, "accuracy", 0.834),
            (9, "all", 0, "loss", 1.0), (9, "all", 1, "loss", 0.5),
        ]
    ]  # fmt: skip
    rows = [dict(row, clients=4, left_out=0) for row in rows]
    rows += [dict(row, group="held-out", mean=row["mean"] / 2) for row in rows]
    config = {"algorithm": {"name": "per-fedavg", "curvature": {"name": "hessian-free", "radius": 0.1}}}
    return RunRecord(tmp_path, config, {}, {"per-fedavg": _method(tmp_path, rows, (LOSS, ACCURACY))})


def _printed(record, width=80):
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    console.print(comparison_table(record))
    return console.export_text()


def test_the_table_shows_the_last_round_and_the_best(tmp_path):
    console = Console(width=120, record=True)
    console.print(comparison_table(_record(tmp_path)))
    text = console.export_text()
    for words in ("per-fedavg (hessian-free)", "70.0 ± 5.0", "83.4 ± 5.0", "41.7 ± 5.0", "30.0", " 5 ", "4 s", "new"):
        assert words in text, text
    assert "accuracy, % at the last round" in text


NAMES = ("alone", "per-fedavg (hessian-free)", "local-moml-across-silos-with-a-very-long-name-indeed", "a b c d e f g")


def _large(tmp_path, steps, values, metric=RMSE, names=NAMES, left_out=0):
    rows = [
        {
            "round": 100, "group": group, "steps": k, "metric": name, "mean": mean, "std": mean / 3,
            "worst10": 10 * mean, "clients": 40 - left_out, "left_out": left_out,
        }
        for group, name in itertools.product(("all", "held-out"), ("loss", metric.name))
        for k, mean in zip(steps, values, strict=True)
    ]  # fmt: skip
    config = {"algorithm": {"name": "x"}, "baselines": {name: {"name": "x"} for name in names}}
    methods = {name: _method(tmp_path, rows, (LOSS, metric)) for name in names}
    return RunRecord(tmp_path, config, {}, methods)


@pytest.mark.parametrize("steps", [(0,), (0, 1), (0, 1, 5), (0, 1, 2, 5, 10, 20, 50)])
@pytest.mark.parametrize("size", [0.8, 123.456, 1.2345e-7, -9.87e12])
def test_it_fits_a_usual_terminal_whatever_it_shows(tmp_path, steps, size):
    text = _printed(_large(tmp_path, steps, [size] * len(steps)))
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text, text
    for word in " ".join(NAMES).split():
        assert word in text or len(word) > 24, text
    assert text.count(RMSE.show(size)) >= len(steps) * len(NAMES) * 2


def test_values_have_the_metrics_unit_and_direction(tmp_path):
    own = Metric("error", unit="°C", decimals=2)
    record = _large(tmp_path, (0, 1), (1.23456, 0.98765), own, names=("mine",))
    assert headline_metric(record).name == "error"
    text = _printed(record)
    assert "error, °C at the last round" in text
    assert "1.23 ± 0.41" in text
    assert "0.99 ± 0.33" in text


def test_the_first_metric_beside_the_loss_is_shown(tmp_path):
    rows = [
        {"round": 0, "group": "all", "steps": 0, "metric": name, "mean": 1.0, "std": 0.0, "worst10": 1.0,
         "clients": 1, "left_out": 0}
        for name in ("loss", "rmse", "mae")
    ]  # fmt: skip
    for metrics, want in (((LOSS, RMSE, MAE), "rmse"), ((LOSS,), "loss")):
        record = RunRecord(tmp_path, {"algorithm": {"name": "x"}}, {}, {"x": _method(tmp_path, rows, metrics)})
        assert headline_metric(record).name == want


def test_what_diverged_is_said_in_words(tmp_path):
    nothing = _large(tmp_path, (0, 1), (math.nan, math.nan), names=("gone",))
    text = _printed(nothing)
    assert text.count("diverged") >= 4
    assert "nan" not in text.lower()
    assert "none" in text  # no round is the best
    endless = _printed(_large(tmp_path, (0, 1), (math.inf, 2.0), names=("gone",)))
    assert "diverged" in endless
    some = _printed(_large(tmp_path, (0,), (0.5,), names=("alone",), left_out=3))
    assert "alone: 3 of 40 clients diverged (shared model) and are left out." in " ".join(some.split())


def test_a_metric_that_is_not_defined_is_no_divergence(tmp_path):
    rows = [
        {"round": 0, "group": "all", "steps": 0, "metric": name, "mean": mean, "std": 0.1, "worst10": mean,
         "clients": 40 - left, "left_out": left}
        for name, mean, left in (("loss", 0.5, 0), ("auc", 0.8, 6))
    ]  # fmt: skip
    auc = (LOSS, Metric("auc", higher_is_better=True, decimals=3))
    record = RunRecord(tmp_path, {"algorithm": {"name": "x"}}, {}, {"x": _method(tmp_path, rows, auc)})
    text = _printed(record)
    assert "0.800 ± 0.100" in text
    assert "x: 6 of 40 clients have no auc (shared model) and are left out." in " ".join(text.split())
    rows[1].update(mean=math.nan, worst10=math.nan, clients=0, left_out=40)
    record = RunRecord(tmp_path, {"algorithm": {"name": "x"}}, {}, {"x": _method(tmp_path, rows, auc)})
    assert "undefined" in _printed(record)


def test_methods_that_were_not_trained_to_the_end_are_named(tmp_path):
    record = _record(tmp_path)
    record.methods["fedavg"] = MethodRecord(tmp_path, False, None, None, None)
    assert "fedavg was not trained to the end." in _printed(record)
    with pytest.raises(UsageError, match=r"(?s)No method of .* was trained to the end.*Resume"):
        comparison_table(RunRecord(tmp_path, {}, {}, {"fedavg": record.methods["fedavg"]}))


def test_titles_say_what_distinguishes_a_method():
    assert (
        method_title("meta-fl", {"name": "meta-fl", "inner_steps": 3, "curvature": "exact"})
        == "meta-fl (3 steps, exact)"
    )
    assert method_title("mine", {"name": "fedavg"}) == "mine"


@pytest.mark.parametrize("broken", [False, True])
def test_the_picture_is_drawn(tmp_path, broken):
    record = _large(tmp_path, (0, 1), (math.nan, 2.0)) if broken else _record(tmp_path)
    plot_run(record, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes()[:4] == b"\x89PNG"


def test_new_clients_are_reported_and_not_those_that_settings_were_chosen_by():
    assert shown_groups({"all"}) == {"all": "all"}
    assert shown_groups({"all", "held-out"}) == {"all": "all", "held-out": "new"}
    assert shown_groups({"all", "held-out", "validation", "new"}) == {"all": "all", "new": "new"}


def _with_clients(tmp_path, names, metrics, steps=(0, 1, 5)):
    """A run of five new clients, of whom one has a score far from those of the others."""
    config = {"algorithm": {"name": "x"}, "baselines": {name: {"name": "x"} for name in names}}
    methods = {}
    for place, name in enumerate(names):
        value = {m.name: 10.0 * (place + 1) for m in metrics}
        rows = [
            {"round": 3, "group": group, "steps": k, "metric": m.name, "mean": value[m.name] / (k + 1), "std": 0.0,
             "worst10": 0.0, "clients": 5, "left_out": 0}
            for group in ("all", "held-out", "validation", "new") for k in steps for m in metrics
        ]  # fmt: skip
        clients = [
            {"round": 3, "client": f"c{i}", "held_out": True, "validation": i == 9, "steps": k,
             **{m.name: 1e6 if i == 9 else -1e6 if i == 0 else i + k for m in metrics}}
            for i in (0, 1, 2, 3, 4, 9) for k in steps
        ]  # fmt: skip
        folder = tmp_path / name[:40]
        folder.mkdir(exist_ok=True)
        (folder / "model.safetensors").touch()
        summary = described(pa.Table.from_pylist(rows), metrics)
        table = pa.Table.from_pylist(clients)
        methods[name] = MethodRecord(folder, True, pa.table({"seconds": [1.0]}), table, summary)
    return RunRecord(tmp_path, config, {}, methods)


def test_other_metrics_are_medians_over_new_clients(tmp_path):
    record = _with_clients(tmp_path, ("mine", "other"), (LOSS, RMSE, MAE, R2))
    console = Console(width=80, record=True, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    console.print(further_table(record))
    text = console.export_text()
    # Of -1e6, 1, 2, 3 and 4 (and of neither a validation client's 1e6), and so on.
    assert text.count("2.000") == text.count("3.000") == text.count("7.000") == 4
    assert "Other metrics, median over new clients" in text, "the title is not broken"
    assert "rmse" not in text
    assert further_table(_with_clients(tmp_path, ("mine",), (LOSS, RMSE))) is None


@pytest.mark.parametrize("width", [80, 60])
def test_many_other_metrics_fit_too(tmp_path, width):
    many = (LOSS, *(Metric(f"metric number {i}", unit="%") for i in range(12)))
    record = _with_clients(tmp_path, NAMES, many, steps=(0, 1, 2, 5, 10, 20, 50))
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    console.print(further_table(record))
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    assert text.count("11, %") == len(NAMES)


def test_the_best_model_is_that_of_the_validation_clients(tmp_path):
    record = _with_clients(tmp_path, ("mine", "other"), (LOSS, RMSE))
    assert best_model(record) == tmp_path / "mine" / "model.safetensors"
    record = _with_clients(tmp_path, ("mine", "other"), (LOSS, ACCURACY))
    assert best_model(record) == tmp_path / "other" / "model.safetensors"
    record.config["baselines"]["other"]["name"] = "local-only"
    assert best_model(record) == tmp_path / "mine" / "model.safetensors"
