"""Columns of ids, and others that are no features, are left out, with a line that says so."""

import datetime

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from headstart.data.tables import prepare, prepared, table
from headstart.problems import Examples
from tests.data.tables.people import people

COLUMNS = {"client": "person", "label": "activity"}


def left_out(federation):
    return [note.split("'")[1] for note in federation.partition.notes if "left out" in note]


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        ([f"i{i}" for i in range(120)], "more than 100 different texts"),
        ([f"i{i // 12}" for i in range(120)], None),
        ([f"name of p{i % 6}" for i in range(120)], "nearly every client has a text of its own"),
        ([f"kind {i % 6 % 3}" for i in range(120)], None),
        ([("red", "blue")[i % 2] for i in range(120)], None),
        (["one"] * 120, None),
    ],
)
def test_ids_of_rows_and_clients(texts, why):
    federation = table(people(column=texts), **COLUMNS)
    if why is None:
        assert left_out(federation) == []
        assert federation.task.inputs[0] == 2 + len(set(texts))
    else:
        assert any("'column' is left out" in note and why in note for note in federation.partition.notes)
        assert federation.task.inputs == (2,)


def test_ids_of_few_rows():
    data = people(rows=48, name=[f"n{i}" for i in range(48)])
    federation = table(data, **COLUMNS)
    assert any("nearly every row" in note for note in federation.partition.notes)
    # Nothing is left out that was asked for.
    assert table(data, features=["speed", "name"], held_out=0, **COLUMNS).task.inputs[0] > 20


@pytest.mark.parametrize("name", ["", "Unnamed: 0"])
def test_the_numbers_of_rows_that_frames_write(name):
    """They begin anew in every file, or have gaps where rows were dropped, so that they count nothing."""
    federation = table(people(**{name: [3 * (i % 20) for i in range(120)]}), **COLUMNS)
    assert "numbers of rows" in " ".join(note for note in federation.partition.notes if "left out" in note)
    assert federation.task.inputs == (2,)
    named = table(people(**{name: [i % 20 for i in range(120)]}), features=[name], **COLUMNS)
    assert named.task.inputs == (1,)


def test_a_code_of_countries(tmp_path):
    """As many texts as clients, who are more than categories may be; and prepared data leaves the same out."""
    rng = np.random.default_rng(0)
    country = np.repeat([f"country {i}" for i in range(142)], 12)
    data = pa.table(
        {
            "country": country,
            "code": [f"C{name.split()[1]}" for name in country],
            "continent": [f"continent {int(name.split()[1]) % 5}" for name in country],
            "pop": np.exp(rng.normal(15, 2, len(country))),
            "life": rng.normal(60, 10, len(country)),
        }
    )
    path = tmp_path / "world.csv"
    pyarrow.csv.write_csv(data, path)
    federations = [
        table(path, client="country", label="life"),
        prepared(prepare(path, tmp_path / "out", client="country", label="life")),
    ]
    for federation in federations:
        assert left_out(federation) == ["code"]
        assert federation.partition.samples.features == ("pop", *(f"continent=continent {i}" for i in range(5)))


@pytest.mark.parametrize(
    ("values", "why"),
    [
        (range(120), "count the rows"),
        ([119.0 - i for i in range(120)], "count the rows"),
        ([2 * i for i in range(120)], None),
        ([i % 60 for i in range(120)], None),
        ([*range(119), 0], None),
        ([datetime.datetime(2024, 1, 1 + i % 20) for i in range(120)], "left out: times"),
        ([None] * 120, "left out: no values at all"),
        ([[1.0]] * 120, "neither numbers nor texts"),
    ],
)
def test_columns_that_tell_nothing(values, why):
    federation = table(people(column=values), **COLUMNS)
    assert left_out(federation) == ([] if why is None else ["column"])
    assert why is None or any(why in note for note in federation.partition.notes)
    assert federation.task.inputs == (3 if why is None else 2,)


def test_numbers_that_are_all_missing_do_no_harm():
    federation = table(people(hole=[np.nan] * 120), **COLUMNS)
    assert any("'hole' has no values at all" in note for note in federation.partition.notes)
    samples = federation.partition.samples
    assert np.isfinite(samples.transform(Examples(samples.x, samples.y)).x).all()
