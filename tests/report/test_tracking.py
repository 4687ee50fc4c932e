import struct
import sys

import numpy as np
import pytest

import headstart as hs
from headstart.errors import Diverged, UsageError
from headstart.report.tracking import MLflow, TensorBoard, Tracking
from headstart.simulate import Evaluation, sweep, train
from tests import toy

ALGORITHM = hs.fedavg(batch_size=4, local_steps=2, outer_lr=0.2)
OPTIONS = {"rounds": 3, "cohort": 3, "evaluation": Evaluation(every=3, steps=(0, 1))}


def events(folder):
    """Scalars by name: (step, value) in the order written. An event file is length, checksum, event, checksum, ..."""
    from tensorboardX.proto.event_pb2 import Event

    found = {}
    (path,) = folder.glob("events.*")
    data = path.read_bytes()
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        event = Event.FromString(data[12 : 12 + length])
        for value in event.summary.value:
            found.setdefault(value.tag, []).append((event.step, value.simple_value))
        data = data[16 + length :]
    return found


@pytest.fixture
def store(tmp_path, monkeypatch):
    """A folder for MLflow, which wants to be asked twice for one, and to be told to keep to itself."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    return (tmp_path / "mlflow").as_uri()


def logged(store, experiment="toy"):
    """Every run's name, ending, parameters, tags, and metrics as (step, value)."""
    from mlflow import MlflowClient

    client = MlflowClient(store)
    (found,) = [e for e in client.search_experiments() if e.name == experiment]
    runs = sorted(client.search_runs([found.experiment_id]), key=lambda run: run.info.run_name)
    return [
        (
            run.info.run_name,
            run.info.status,
            run.data.params,
            run.data.tags,
            {
                name: [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, name)]
                for name in run.data.metrics
            },
        )
        for run in runs
    ]


def assert_is(found, result):
    losses = result.history["loss"].to_pylist()
    np.testing.assert_allclose([value for _, value in found["train/loss"]], losses, rtol=1e-6)
    assert [step for step, _ in found["train/loss"]] == [1, 2, 3]
    assert [value for _, value in found["train/samples"]] == result.history["samples"].to_pylist()
    for group in ("all", "held-out"):
        for steps in (0, 1):
            rows = [r for r in result.summary.to_pylist() if (r["steps"], r["group"]) == (steps, group)]
            scores = found[f"{group}/loss/steps-{steps}"]
            assert [step for step, _ in scores] == [row["round"] for row in rows] == [0, 3]
            np.testing.assert_allclose([value for _, value in scores], [row["mean"] for row in rows], rtol=1e-6)


def test_a_run_in_both(tmp_path, store):
    sinks = TensorBoard(tmp_path / "events"), MLflow("toy", name="mine", settings={"lr": 0.2}, tracking_uri=store)
    result = train(
        ALGORITHM, toy.LOGISTIC, toy.federation(held_out=1), callbacks=[Tracking(sink) for sink in sinks], **OPTIONS
    )
    assert_is(events(tmp_path / "events"), result)
    ((name, status, params, tags, metrics),) = logged(store)
    assert (name, status, params) == ("mine", "FINISHED", {"lr": "0.2", "rounds": "3"})
    assert "stopped" not in tags
    assert_is(metrics, result)


def test_every_run_of_a_sweep(tmp_path, store):
    sinks = TensorBoard(tmp_path / "events"), MLflow("toy", tracking_uri=store)
    done = sweep(
        [ALGORITHM], toy.LOGISTIC, toy.federation(held_out=1), seeds=(0, 1), devices=1,
        callbacks=[Tracking(sink) for sink in sinks], **OPTIONS,
    )  # fmt: skip
    runs = logged(store)
    assert [run[0] for run in runs] == ["run-0", "run-1"]
    for number, run in enumerate(runs):
        for found in (events(tmp_path / "events" / f"run{number}"), run[-1]):
            np.testing.assert_allclose([value for _, value in found["train/loss"]], done.loss[number], rtol=1e-6)
            expected = done.evaluated.mean("loss", 1, "held-out")[:, number]
            np.testing.assert_allclose([v for _, v in found["held-out/loss/steps-1"]], expected, rtol=1e-6)


def test_how_a_run_ended_is_said(store):
    def run(algorithm, callbacks=()):
        problem = hs.CustomProblem(toy.start, lambda params, batch: ((batch.x @ params["weight"]) ** 2).mean())
        tracking = Tracking(MLflow("toy", tracking_uri=store))
        return train(algorithm, problem, toy.federation(), callbacks=[tracking, *callbacks], **OPTIONS)

    run(ALGORITHM, toy.stopping(1))
    ((_, status, _, tags, _),) = logged(store)
    assert (status, tags["stopped"]) == ("FINISHED", "enough")
    with pytest.raises(Diverged):
        run(hs.fedavg(batch_size=4, local_steps=4, outer_lr=1e30))
    assert sorted(status for _, status, *_ in logged(store)) == ["FAILED", "FINISHED"]


def test_what_is_not_installed_is_named_before_anything_runs(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(UsageError, match=r"(?s)tensorboardX is not installed.*headstart\[track\]"):
        train(ALGORITHM, toy.LOGISTIC, toy.federation(), callbacks=[Tracking(TensorBoard(tmp_path))], **OPTIONS)


def test_a_store_that_mlflow_does_not_take(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    sink = MLflow("toy", tracking_uri=f"sqlite9:///{tmp_path}/runs.db")
    with pytest.raises(UsageError, match=r"(?s)MLflow refuses to begin.*tracking_uri"):
        train(ALGORITHM, toy.LOGISTIC, toy.federation(), callbacks=[Tracking(sink)], **OPTIONS)
