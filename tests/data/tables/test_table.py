"""Tables from files and frames give the same federation, encoded as the documentation says."""

import datetime

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from headstart.data.tables import open_data, table
from tests.data.tables.people import inputs, people, rows_of, training_rows

COLUMNS = {"client": "person", "label": "activity"}


def contents(federation):
    """Every client's rows as sorted inputs and labels, by name: what a federation is, whatever the order of rows."""
    found = {}
    for i in range(federation.total):
        for part in ("train", "query"):
            rows = rows_of(federation, part)[i]
            y = np.asarray(federation.clients.pool.y)[rows]
            found[federation.name(i), part] = sorted(map(tuple, np.c_[inputs(federation, rows), y].round(4).tolist()))
    return found


@pytest.fixture(scope="module")
def expected():
    return contents(table(people(), **COLUMNS))


def test_a_table_becomes_its_persons(expected):
    federation = table(people(), **COLUMNS)
    assert sorted(federation.names) == [f"p{i}" for i in range(6)]
    assert (federation.total, federation.trained) == (6, 5)
    assert (federation.task.kind, federation.task.inputs, federation.task.outputs) == ("classification", (2,), 3)
    assert [len(rows) for rows in rows_of(federation, "query")] == [4] * 6
    assert {len(rows) for rows in expected.values()} == {16, 4}
    persons = np.array(people()["person"].to_pylist())
    for i, (train, query) in enumerate(zip(rows_of(federation, "train"), rows_of(federation, "query"), strict=True)):
        assert set(persons[np.r_[train, query]]) == {federation.names[i]}
        assert not set(train) & set(query)


def _write(kind, folder):
    path = folder / f"people.{kind}"
    if kind == "parquet":
        pa.parquet.write_table(people(), path, row_group_size=50)
    elif kind == "csv":
        pa.csv.write_csv(people(), path)
    else:
        with pa.CompressedOutputStream(str(path), "gzip") as file:
            pa.csv.write_csv(people(), file)
    return path


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "parquet"])
def test_files_give_the_same(kind, tmp_path, expected):
    path = _write(kind, tmp_path)
    assert contents(table(path, **COLUMNS)) == expected
    assert contents(open_data(str(path), **COLUMNS).federation()) == expected


FRAMES = {
    "pandas": lambda: pytest.importorskip("pandas") and people().to_pandas(),
    "categorical": lambda: pytest.importorskip("pandas") and people().to_pandas().astype({"person": "category"}),
    "polars": lambda: pytest.importorskip("polars").from_arrow(people()),
    "record batch": lambda: people().to_batches()[0],
    "dict": lambda: people().to_pydict(),
    "shuffled": lambda: people().take(np.random.default_rng(1).permutation(120)),
    "chunks": lambda: pa.concat_tables([people().slice(0, 7), people().slice(7)]),
}


@pytest.mark.parametrize("name", FRAMES)
def test_frames_give_the_same(name, expected):
    assert contents(table(FRAMES[name](), **COLUMNS)) == expected


def test_numbers_are_standardised_over_training_rows_of_training_clients():
    data = people()
    federation = table(data, **COLUMNS)
    rows = training_rows(federation)
    raw = np.stack([data["speed"].to_numpy(), data["age"].to_numpy()], axis=1)
    fit = raw[rows]
    expected = (raw - fit.mean(axis=0)) / fit.std(axis=0)
    np.testing.assert_allclose(inputs(federation, np.arange(120)), expected, atol=1e-5)


def test_numbers_are_standardised_over_a_clients_own_training_rows():
    data = people(speed=[*np.random.default_rng(1).normal(5, 3, 118), 4.0, None])
    federation = table(data, standardize="client", **COLUMNS)
    raw = data["age"].to_numpy().astype(float)
    for train, query in zip(rows_of(federation, "train"), rows_of(federation, "query"), strict=True):
        expected = (raw[query] - raw[train].mean()) / raw[train].std()
        np.testing.assert_allclose(inputs(federation, query)[:, 1], expected, rtol=1e-4, atol=1e-5)
    assert inputs(federation, np.array([119]))[0, 0] == 0


def test_numbers_stay_as_they_are_on_request():
    data = people(time=1.7e9 + np.arange(120) / 4)
    federation = table(data, standardize="none", **COLUMNS)
    np.testing.assert_allclose(inputs(federation, np.arange(120))[:, :2], np.c_[data["speed"], data["age"]], rtol=1e-5)
    np.testing.assert_allclose(inputs(federation, np.arange(120))[:, 2], data["time"], rtol=1e-6)


def test_large_numbers_that_differ_little_stay_apart():
    time = 1.7e9 + np.random.default_rng(0).normal(size=120)
    federation = table(people(time=time), **COLUMNS)
    fit = time[training_rows(federation)]
    np.testing.assert_allclose(inputs(federation, np.arange(120))[:, 2], (time - fit.mean()) / fit.std(), atol=1e-4)


def test_constant_columns_become_zero():
    federation = table(people(one=[7.3] * 120, none=[0.0] * 120), **COLUMNS)
    assert (inputs(federation, np.arange(120))[:, 2:] == 0).all()


@pytest.mark.parametrize("standardize", ["federation", "none"])
def test_missing_numbers_become_the_mean_and_are_indicated(standardize):
    values = np.random.default_rng(3).normal(size=120)
    values[::5] = np.nan
    federation = table(people(lux=values), standardize=standardize, **COLUMNS)
    x = inputs(federation, np.arange(120))
    assert x.shape == (120, 4)
    np.testing.assert_array_equal(x[:, 3], np.isnan(values))
    fit = values[training_rows(federation)]
    mean = 0 if standardize == "federation" else np.nanmean(fit)
    np.testing.assert_allclose(x[np.isnan(values), 2], mean, atol=1e-6)
    scale = 1 if standardize == "none" else np.nanstd(fit)
    shift = 0 if standardize == "none" else np.nanmean(fit)
    there = ~np.isnan(values)
    np.testing.assert_allclose(x[there, 2], (values[there] - shift) / scale, atol=1e-5)


def test_nulls_and_nans_are_both_missing():
    values = np.random.default_rng(3).normal(size=120)
    values[::5] = np.nan
    one, two = (table(people(lux=pa.array(values, from_pandas=flag)), **COLUMNS) for flag in (False, True))
    np.testing.assert_array_equal(inputs(one, np.arange(120)), inputs(two, np.arange(120)))


def test_texts_become_categories_seen_in_training(tmp_path):
    path = tmp_path / "t.parquet"
    color = [None if i % 10 == 0 else ("red", "blue")[i % 2] for i in range(120)]
    # Nobody but a client that is held out has a color of this name.
    pa.parquet.write_table(people(color=color), path)
    away = open_data(str(path), **COLUMNS).names[-1]
    color = ["green" if f"p{i % 6}" == away and i % 2 else c for i, c in enumerate(color)]
    pa.parquet.write_table(people(color=color), path)
    partition = open_data(str(path), **COLUMNS)
    assert partition.samples.features == ("speed", "age", "color=(missing)", "color=blue", "color=red")
    x = inputs(partition.federation(), np.arange(120))[:, 2:]
    np.testing.assert_array_equal(x, [(c is None, c == "blue", c == "red") for c in color])


def test_booleans_are_numbers():
    federation = table(people(old=[i % 2 == 0 for i in range(120)]), standardize="none", **COLUMNS)
    np.testing.assert_array_equal(inputs(federation, np.arange(120))[:, 2], np.arange(120) % 2 == 0)


@pytest.mark.parametrize(
    ("label", "kind", "outputs"),
    [
        (["yes", "no"] * 60, "classification", 2),
        ([True, False] * 60, "classification", 2),
        ([1, 2, 3] * 40, "classification", 3),
        ([1.0, 2.0] * 60, "classification", 2),
        (np.linspace(0, 1, 120), "regression", 1),
        (np.arange(120), "regression", 1),
    ],
)
def test_what_is_predicted_is_told_from_the_labels(label, kind, outputs):
    task = table(people(activity=label), **COLUMNS).task
    assert (task.kind, task.outputs) == (kind, outputs)


def test_what_is_predicted_can_be_said():
    federation = table(people(activity=[1, 2, 3] * 40), kind="regression", **COLUMNS)
    assert federation.task.kind == "regression"
    assert set(np.asarray(federation.clients.pool.y).tolist()) == {1.0, 2.0, 3.0}


def test_classes_keep_their_names_in_order(tmp_path):
    path = tmp_path / "t.parquet"
    pa.parquet.write_table(people(activity=[10, 9, 2] * 40), path)
    partition = open_data(str(path), **COLUMNS)
    assert partition.samples.classes == ("2", "9", "10")
    assert any("3 classes" in note for note in partition.notes)


def test_the_last_rows_in_time_are_for_tests(tmp_path):
    start = datetime.datetime(2024, 5, 1)
    when = [start + datetime.timedelta(minutes=int(i)) for i in np.random.default_rng(0).permutation(120)]
    path = tmp_path / "t.csv"
    pa.csv.write_csv(people(when=when), path)
    for data in (people(when=when), path):
        federation = table(data, order="when", **COLUMNS)
        assert federation.task.inputs == (2,)
        for train, query in zip(rows_of(federation, "train"), rows_of(federation, "query"), strict=True):
            assert max(when[i] for i in train) < min(when[i] for i in query)


def test_groups_stay_on_one_side():
    recording = [f"r{(i // 6) % 5}" for i in range(120)]
    federation = table(people(recording=recording), group="recording", **COLUMNS)
    for train, query in zip(rows_of(federation, "train"), rows_of(federation, "query"), strict=True):
        assert not {recording[i] for i in train} & {recording[i] for i in query}


@pytest.mark.parametrize(("clients", "said"), [(1, "a single client"), (2, "2 clients"), (3, None)])
def test_it_is_said_where_nobody_is_new(clients, said):
    options = {"client": "person", "label": "activity"}
    notes = table(people(clients=clients), **options).partition.notes
    assert [note for note in notes if "none is held out" in note] == (
        [f"With {said} none is held out: scores are of clients that trained, on rows that did not."] if said else []
    )
    assert not any("none is held out" in note for note in table(people(), held_out=0, **options).partition.notes)


def test_small_clients_are_left_out_on_request():
    person = ["loner", *[f"p{i % 3}" for i in range(119)]]
    assert "loner" not in table(people(person=person), min_samples=2, **COLUMNS).names


def test_rows_without_label_or_client_are_left_out_on_request():
    data = people(activity=[None, *["a", "b"] * 59, "b"], person=["p0", None, *["p0", "p1"] * 59])
    federation = table(data, drop_missing=True, held_out=0, **COLUMNS)
    assert len(federation.clients.pool.x) == 118
    assert sum(len(rows) for part in ("train", "query") for rows in rows_of(federation, part)) == 118


def test_whole_floats_name_clients_as_whole_numbers():
    person = [float(i % 3) for i in range(120)]
    assert sorted(table(people(person=person), **COLUMNS).names) == ["0", "1", "2"]


def test_unused_categories_are_no_classes():
    codes = pa.array(np.arange(120) % 2, pa.int32())
    activity = pa.DictionaryArray.from_arrays(codes, pa.array(["sit", "run", "fly"]))
    assert table(people(activity=activity), **COLUMNS).task.outputs == 2


def test_equal_encodings_are_one_static_argument():
    one, two = (table(people(), **COLUMNS).clients.transform for _ in range(2))
    assert one == two
    assert hash(one) == hash(two)
    assert one != table(people(), seed=1, **COLUMNS).clients.transform
