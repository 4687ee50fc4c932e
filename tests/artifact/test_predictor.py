import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from safetensors import safe_open

import headstart as hs
from headstart.artifact.description import Description
from tests.artifact.conftest import SETTINGS


def by_hand(experiment, params, frame):
    """Probabilities from the training code alone: the partition's own samples, its encoding, the network."""
    samples = experiment.federation.partition.samples
    batch = samples.to_examples(hs.Examples(samples.x, samples.y))
    return np.asarray(jax.nn.softmax(experiment.problem.model.apply(params, batch.x)))


def test_a_loaded_model_predicts_as_training_did(run, model, frame):
    result, experiment = run
    wanted = by_hand(experiment, result.results["per-fedavg"].params, frame)
    np.testing.assert_allclose(model.predict_proba(frame), wanted, atol=1e-6)
    assert list(model.predict(frame)) == [("no", "yes")[i] for i in wanted.argmax(axis=1)]
    assert list(model.classes) == ["no", "yes"]


def test_every_kind_of_table_predicts_alike(model, frame, tmp_path):
    frame.to_csv(tmp_path / "rows.csv", index=False)
    frame.to_parquet(tmp_path / "rows.parquet")
    wanted = model.predict_proba(frame)
    columns = {
        name: [None if value != value else value for value in frame[name].tolist()]
        for name in ("size", "age", "colour")
    }
    others = [pl.from_pandas(frame), pa.Table.from_pandas(frame), columns, tmp_path / "rows.csv",
              str(tmp_path / "rows.parquet")]  # fmt: skip
    for other in others:
        np.testing.assert_allclose(model.predict_proba(other), wanted, atol=1e-6)


def test_unknown_categories_and_gaps_are_as_in_training(model, frame):
    row = {"size": [None], "age": [40], "colour": ["mauve"]}
    encoding = model.description.inputs.encoding
    features = dict(zip(encoding.features, np.asarray(model.description.inputs.features(
        next(model.description.inputs.blocks(row)).stored))[0], strict=True))  # fmt: skip
    assert features["size is missing"] == 1
    assert features["size"] == 0
    assert not any(value for name, value in features.items() if name.startswith("colour="))
    assert model.predict(row).shape == (1,)


def test_a_client_may_be_scaled_by_itself(frame, tmp_path):
    experiment = hs.Experiment.from_table(
        frame.drop(columns="score"), client="who", label="likes", standardize="client",
        settings=[*SETTINGS, "baselines={}"], tune=False,
    )  # fmt: skip
    model = hs.load(experiment.run(tmp_path / "run").record.path / "per-fedavg" / "model.safetensors")
    own = frame[frame["who"] == "p1"]
    size = own["size"].to_numpy()
    mine = model.adapt(own, steps=1)
    features = np.asarray(mine.description.inputs.features(next(mine.description.inputs.blocks(own)).stored))
    wanted = (size - np.nanmean(size)) / np.nanstd(size)
    np.testing.assert_allclose(features[:, 0], np.nan_to_num(wanted), atol=1e-5)
    shared = hs.Predictor(mine.description, model.model, model.params)
    np.testing.assert_allclose(model.predict_proba(own), shared.predict_proba(own), atol=1e-6)
    with pytest.raises(hs.UsageError, match="Adapt it"):
        model.export(tmp_path / "model.stablehlo")


def test_a_loss_of_ones_own_leaves_parameters(tmp_path):
    problem = hs.CustomProblem(lambda key: {"w": jnp.zeros(1)}, lambda p, b: jnp.mean((b.y - b.x * p["w"]) ** 2))
    experiment = hs.Experiment(
        hs.per_fedavg(batch_size=5), problem, hs.data.sine(clients=4, held_out=1), rounds=1, cohort=2, backend="vmap",
        evaluation=hs.Evaluation(batch_size=5),
    )  # fmt: skip
    path = experiment.run(tmp_path / "run").record.path / "MetaFL" / "model.safetensors"
    model = hs.load(path)
    assert model.params["['w']"].shape == (1,)
    with pytest.raises(hs.UsageError, match="its maker's own"):
        model.predict(np.zeros((2, 1)))


def test_what_is_missing_is_named(model):
    with pytest.raises(hs.UsageError, match="no column 'age'"):
        model.predict({"size": [1.0], "colour": ["red"]})
    with pytest.raises(hs.UsageError, match="row 1 of the table, column 'size': 'x' is no number"):
        model.predict({"size": ["x"], "age": [1], "colour": ["red"]})


def test_no_rows_have_no_predictions(model):
    assert model.predict({"size": pa.array([], pa.float64()), "age": pa.array([], pa.int64()),
                          "colour": pa.array([], pa.string())}).shape == (0,)  # fmt: skip


def test_the_record_still_gives_parameters(run):
    result, experiment = run
    params = result.record.methods["per-fedavg"].params(experiment.problem.init(jax.random.key(1)))
    for one, other in zip(*map(jax.tree.leaves, (params, result.results["per-fedavg"].params)), strict=True):
        np.testing.assert_array_equal(one, other)


def test_any_reader_of_safetensors_can_open_it(path):
    with safe_open(path, framework="numpy") as file:
        assert ".layers[0].weight" in file.keys()  # noqa: SIM118
        assert set(file.metadata()) == {"headstart", "digest"}


def test_saving_again_gives_the_same_file(model, path, tmp_path):
    assert model.save(tmp_path / "again.safetensors").read_bytes() == path.read_bytes()
    said = model.description.to_json()
    assert Description.from_json(said).to_json() == said
    assert "runs" not in str(said), "where the data lay is nobody else's business"


def test_values_are_in_their_own_units(regression):
    model, data = regression
    plain = model.predict(data)
    assert plain.shape == (len(data),)
    with pytest.raises(hs.UsageError, match="no probabilities"):
        model.predict_proba(data)
    target = model.description.target
    assert target.mean == pytest.approx(data["score"].mean(), rel=0.02)
    stored = next(model.description.inputs.blocks(data)).stored
    outputs = np.asarray(model.model.apply(model.params, model.description.inputs.features(stored)))
    np.testing.assert_allclose(plain, target.mean + target.scale * outputs[:, 0], rtol=1e-5)


def test_the_card_says_what_there_is(model, path):
    card = model.card()
    assert card == hs.artifact.read_card(path)
    for said in ("`likes`", "`colour`: one of 3", "per-fedavg, 8 rounds, 6 clients", "accuracy, %", "after 1 step |"):
        assert said in card


def test_another_file_is_refused_with_a_word(tmp_path):
    from safetensors.numpy import save_file

    save_file({"w": np.zeros(3, np.float32)}, tmp_path / "other.safetensors")
    with pytest.raises(hs.UsageError, match="does not say what model"):
        hs.load(tmp_path / "other.safetensors")
    with pytest.raises(hs.UsageError, match="There is no file"):
        hs.load(tmp_path / "nothing.safetensors")
    with pytest.raises(hs.UsageError, match="is a folder"):
        hs.load(tmp_path)


def test_numbers_of_spreadsheets_predict_alike_and_stay_as_they_are_written(model, frame, tmp_path):
    rows = frame.head(20)
    sheet = rows.assign(
        age=[f"{1000 * age:,.1f}" for age in rows["age"]],
        size=["?" if np.isnan(size) else f"{size:.6f} " for size in rows["size"]],
    )
    plain = rows.assign(age=1000.0 * rows["age"])
    sheet.to_csv(tmp_path / "sheet.csv", index=False)
    plain.to_csv(tmp_path / "plain.csv", index=False)
    model.predict_file(tmp_path / "sheet.csv", tmp_path / "out.csv")
    done = pd.read_csv(tmp_path / "out.csv", dtype=str)
    assert list(done["age"]) == list(sheet["age"])
    np.testing.assert_allclose(
        model.predict_proba(tmp_path / "sheet.csv"), model.predict_proba(tmp_path / "plain.csv"), atol=1e-6
    )


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file(path, frame, tmp_path):
    """Of a file three times as large, no more is in memory."""
    rows = frame.to_csv(index=False, header=False)
    peaks = []
    for megabytes in (60, 180):
        table = tmp_path / "big.csv"
        with table.open("w") as file:
            file.write(frame.head(0).to_csv(index=False))
            for _ in range(megabytes * 10**6 // len(rows)):
                file.write(rows)
        code = (
            "import resource, sys, headstart as hs; hs.load(sys.argv[1]).predict_file(sys.argv[2], sys.argv[3]); "
            "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
        )
        words = [sys.executable, "-c", code, str(path), str(table), str(tmp_path / "out.csv")]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        peaks.append(int(done.stdout) / 1024)
    assert peaks[1] < peaks[0] + 60, peaks
