"""Prepared data is the table, on disk."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

import headstart as hs
from headstart.data.tables import csv_files, form_of, open_data, open_prepared, prepare, prepared, table
from headstart.errors import UsageError
from headstart.problems import Examples
from tests.data.tables.people import people
from tests.data.tables.test_folders import write

COLUMNS = {"client": "person", "label": "activity"}


def rich():
    rng = np.random.default_rng(4)
    lux = rng.normal(size=120)
    lux[::7] = np.nan
    color = [("red", "blue", None)[i] for i in rng.integers(0, 3, 120)]
    return people(lux=lux, color=color, time=1.7e9 + rng.normal(size=120), when=np.arange(120.0))


def dealt(partition):
    """Each client's inputs and labels."""
    samples = partition.samples
    out = {}
    for i, name in enumerate(partition.names):
        for part in ("train", "query"):
            rows = np.sort(getattr(partition, part)[i])
            batch = samples.to_examples(Examples(samples.x[rows], samples.y[rows]))
            out[name, part] = np.c_[np.asarray(batch.x), np.asarray(batch.y)]
    return out


@pytest.mark.parametrize("ending", ["csv", "parquet", "folder"])
@pytest.mark.parametrize("order", [None, "when"])
def test_it_is_the_table(ending, order, tmp_path, monkeypatch):
    monkeypatch.setattr(csv_files, "FIRST_BYTES", 2000)
    monkeypatch.setattr(csv_files, "BLOCK_BYTES", 2000)
    path = tmp_path / f"people.{ending}"
    if ending == "csv":
        pa.csv.write_csv(rich(), path)
    elif ending == "parquet":
        pa.parquet.write_table(rich(), path, row_group_size=50)
    else:
        write(path, "parquet", rich())
    options = {"label": "activity"} if ending == "folder" else COLUMNS
    features = ["speed", "age", "lux", "color", "time"]
    done = prepare(path, tmp_path / "out", order=order, features=features, **options)
    assert form_of(done) == "prepared"
    lazy = open_data(str(done))
    eager = open_data(str(path), order=order, features=tuple(features), **options)
    assert isinstance(lazy.samples.x, np.memmap)
    assert lazy.samples.features == eager.samples.features
    assert lazy.samples.classes == eager.samples.classes
    assert lazy.names == eager.names
    one, two = dealt(lazy), dealt(eager)
    for key in two:
        np.testing.assert_allclose(one[key], two[key], atol=1e-6)
    np.testing.assert_array_equal(lazy.samples.fingerprints, eager.samples.fingerprints)
    assert {p.name for p in tmp_path.iterdir()} == {path.name, "out"}


def test_it_trains_from_disk(tmp_path):
    path = tmp_path / "people.parquet"
    speed = np.random.default_rng(0).normal(size=600)
    pa.parquet.write_table(people(600, speed=speed, activity=np.where(speed > 0, "run", "sit")), path)
    federation = prepared(prepare(path, tmp_path / "out", **COLUMNS))
    problem = hs.Classification(hs.MLP(inputs=2, outputs=2, hidden=(8,)))
    algorithm = hs.fedavg(outer_lr=0.3, local_steps=10, batch_size=16)
    one, two = (hs.train(algorithm, problem, f, rounds=20) for f in (federation, table(path, **COLUMNS)))
    assert one.final("accuracy", steps=0)["mean"] > 0.9
    loss = [run.final("loss", steps=0)["mean"] for run in (one, two)]
    assert loss[0] == pytest.approx(loss[1], rel=1e-4)


def test_rows_are_dropped_while_streaming(tmp_path):
    data = people(activity=[None, *["a", "b"] * 59, "b"])
    path = tmp_path / "people.csv"
    pa.csv.write_csv(data, path)
    samples = open_prepared(prepare(path, tmp_path / "out", drop_missing=True, **COLUMNS))
    assert len(samples) == 119
    np.testing.assert_allclose(samples.x[:, 0], data["speed"].to_numpy()[1:].astype(np.float32))


def refused(match, call, *args, **options):
    with pytest.raises(UsageError, match=f"(?s){match}") as caught:
        call(*args, **options)
    assert caught.value.remedy


def test_mistakes(tmp_path):
    path = tmp_path / "people.csv"
    pa.csv.write_csv(people(), path)
    refused("which column is the client", prepare, path, tmp_path / "out", label="activity")
    out = prepare(path, tmp_path / "out", **COLUMNS)
    refused("exists already", prepare, path, out, **COLUMNS)
    refused("is on disk.*'federation' or 'none'", prepared, out, standardize="client")
    refused("prepared without order = 'age'", prepared, out, order="age")
    refused("prepared with the features speed, age", prepared, out, features=["age"])
    refused("is no folder of prepared data", open_prepared, tmp_path)
    np.save(out / "y.npy", np.zeros(3))
    refused("y.npy has 3 rows rather than 120", open_prepared, out)
    (out / "x.npy").write_bytes(b"nothing")
    refused("x.npy cannot be read", open_prepared, out)
    (out / "manifest.json").write_text(json.dumps({"a": 1}))
    refused("does not describe prepared data", open_prepared, out)
    (out / "manifest.json").write_text("{")
    refused("manifest.json cannot be read", open_prepared, out)


def test_a_failure_leaves_nothing(tmp_path):
    path = tmp_path / "people.csv"
    text = [str(v) for v in range(120)]
    text[100] = "inf"
    pa.csv.write_csv(people(speed=text), path)
    refused("row 101 of people.csv, column 'speed'", prepare, path, tmp_path / "out", **COLUMNS)
    assert [p.name for p in tmp_path.iterdir()] == ["people.csv"]


def test_a_text_after_the_first_block(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_files, "FIRST_BYTES", 500)
    monkeypatch.setattr(csv_files, "BLOCK_BYTES", 500)
    path = tmp_path / "people.csv"
    path.write_text("person,activity,speed\n" + "a,run,1\nb,sit,2\n" * 100 + "a,run,fast\n")
    refused("people.csv cannot be read.*fast", prepare, path, tmp_path / "out", **COLUMNS)
