"""Mistakes in tables: each is named with its file, row or column, and comes with a remedy."""

import datetime

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from headstart.data.tables import open_data, table
from headstart.errors import UsageError
from tests.data.tables.people import people

COLUMNS = {"client": "person", "label": "activity"}


def refused(match, data, **options):
    with pytest.raises(UsageError, match=f"(?s){match}") as caught:
        table(data, **{**COLUMNS, **options})
    assert caught.value.remedy


def changed(column, row, value):
    values = people()[column].to_pylist()
    values[row] = value
    return people(**{column: values})


@pytest.mark.parametrize(
    ("match", "options"),
    [
        ("no column 'persn' .client.*Did you mean 'person'", {"client": "persn"}),
        ("no column 'activty' .label.*Did you mean 'activity'", {"label": "activty"}),
        ("no column 'spee' .features.*Did you mean 'speed'", {"features": ["spee"]}),
        ("no column 'rec' .group", {"group": "rec"}),
        ("no column 'when' .order", {"order": "when"}),
        ("'activity' is the label and a feature", {"features": ["activity", "age"]}),
        ("'person' is the client and a feature", {"features": ["person"]}),
        ("'person' is the client and the label", {"label": "person"}),
        ("'activity' cannot order rows", {"order": "activity", "label": "age"}),
        ("kind = 'regresion'.*Did you mean 'regression'", {"kind": "regresion"}),
        ("standardize = 'all'", {"standardize": "all"}),
        ("'activity' holds no numbers.*classification", {"kind": "regression"}),
        ("test_share = 2", {"test_share": 2}),
        ("held_out = 6 of 6", {"held_out": 6}),
    ],
)
def test_wrong_columns_and_options(match, options):
    refused(match, people(), **options)


@pytest.mark.parametrize("value", [np.inf, -np.inf, 1e300])
def test_numbers_that_are_not_finite(value):
    refused("row 18 of the table, column 'speed'.*finite", changed("speed", 17, value))


def test_labels_that_are_not_finite():
    values = np.linspace(0, 1, 120)
    values[5] = np.inf
    refused("row 6 of the table, column 'activity'", people(activity=values))


def test_rows_without_client_or_label(tmp_path):
    refused("row 4 of the table has no client .column 'person'.*drop_missing", changed("person", 3, None))
    refused("row 4 of the table has no label .column 'activity'.*drop_missing", changed("activity", 3, None))
    path = tmp_path / "people.csv"
    pa.csv.write_csv(changed("activity", 3, None), path)
    refused("row 4 of people.csv has no label", path)


def test_labels_of_both_infinities():
    values = np.linspace(0, 1, 120)
    values[[7, 9]] = np.inf, -np.inf
    refused("row 8 of the table, column 'activity'", people(activity=values))


def test_one_class_only():
    refused("all labels .column 'activity'. are 'run'", people(activity=["run"] * 120))
    refused("all labels .column 'activity'. are '3'", people(activity=[3] * 120))


def test_too_many_classes():
    refused("more than 100 different values.*regression", people(activity=np.arange(120)), kind="classification")


def test_a_client_with_one_sample():
    refused("'loner'.*1 sample,.*min_samples = 2", changed("person", 3, "loner"))


def test_a_client_in_two_spellings():
    refused("column 'person' spells one client 'p3' and 'p3 '", changed("person", 3, "p3 "))


def test_a_label_of_times():
    days = [datetime.date(2024, 1, 1 + i % 20) for i in range(120)]
    refused("the label 'activity' holds times.*as a number", people(activity=days))


def test_mixed_types_in_a_column(tmp_path):
    path = tmp_path / "people.csv"
    text = [str(round(v, 3)) for v in people()["speed"].to_pylist()[:40]] * 3
    text[60], text[70] = "n.a.", "fast"
    pa.csv.write_csv(people(speed=text), path)
    refused("row 71 of people.csv, column 'speed': 'fast' among numbers", path)
    refused("one type a column", {"person": ["a", "b"], "activity": ["x", "y"], "f": [1, "two"]})


def test_a_column_of_ids_that_was_asked_for():
    refused(
        "column 'id' has more than 100 different texts.*[Ll]eave the column out",
        people(id=[f"i{i}" for i in range(120)]),
        features=["id", "speed"],
    )


def test_a_column_of_many_numbers_with_a_text_among_them(tmp_path):
    path = tmp_path / "people.csv"
    text = [str(round(v, 6)) for v in people(300)["speed"].to_pylist()]
    text[270] = "fast"
    pa.csv.write_csv(people(300, speed=text), path)
    refused("row 271 of people.csv, column 'speed': 'fast' among numbers", path)


def test_one_target_only():
    refused("all labels .column 'activity'. are 0.5", people(activity=[0.5] * 120))


def test_columns_that_are_no_features_and_were_asked_for():
    when = people(when=[datetime.datetime(2024, 1, 1)] * 120)
    refused("column 'when' holds times.*order = 'when'", when, features=["speed", "when"])
    refused("column 'hole' has no values at all", people(hole=[None] * 120), features=["hole"])
    refused("column 'list' holds list", people(list=[[1.0]] * 120), features=["list"])
    refused("no feature columns", people(speed=None, age=None))
    refused(
        "no feature columns that can.*'hole' is left out: no values", people(speed=None, age=None, hole=[None] * 120)
    )
    refused("no feature columns but such as hold ids", people(speed=None, age=[f"i{i}" for i in range(120)]))


def test_order_and_group_without_value():
    refused("row 2 of the table has no value in column 'when'", people(when=[1.0, None, *[2.0] * 118]), order="when")
    refused("row 2 of the table has no value in column 'rec'", people(rec=["a", None, *["b"] * 118]), group="rec")


def test_files_that_cannot_be_read(tmp_path):
    refused("no file .*none.csv", tmp_path / "none.csv")
    refused("is a folder", tmp_path)
    empty = tmp_path / "empty.csv"
    empty.touch()
    refused("empty.csv is empty", empty)
    header = tmp_path / "header.csv"
    header.write_text("person,activity,speed\n")
    refused("header.csv", header)
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1 and nothing more")
    refused("broken.parquet cannot be read", broken)
    cut = tmp_path / "cut.parquet"
    pa.parquet.write_table(people(), cut)
    cut.write_bytes(cut.read_bytes()[:-300])
    refused("cut.parquet cannot be read", cut)
    ragged = tmp_path / "ragged.csv"
    ragged.write_text("person,activity,speed\na,run,1\nb,run\n")
    refused("Row 2 of ragged.csv has 2 cells", ragged)
    other = tmp_path / "people.xlsx"
    other.write_bytes(b"PK")
    refused("people.xlsx ends in .xlsx.*csv", other)
    twice = tmp_path / "twice.csv"
    twice.write_text("person,person,activity,speed\na,b,run,1\n")
    refused("two columns 'person'", twice)


def test_pages_of_a_parquet_file_that_are_damaged(tmp_path):
    path = tmp_path / "people.parquet"
    pa.parquet.write_table(people(), path, compression="zstd")
    content = bytearray(path.read_bytes())
    content[40:400] = bytes(360)
    path.write_bytes(content)
    refused("people.parquet cannot be read", path)


def test_a_table_without_rows():
    refused("has no rows", people().slice(0, 0))


def test_something_that_is_no_table():
    refused("int is not a table.*frame", 3)


def test_a_path_needs_to_be_told_its_columns(tmp_path):
    path = tmp_path / "people.csv"
    pa.csv.write_csv(people(), path)
    with pytest.raises(UsageError, match=r"(?s)which column is the client.*person, speed, age, activity"):
        open_data(str(path))
    with pytest.raises(UsageError, match="which column is the label"):
        open_data(str(path), client="person")


def test_a_spoilt_parquet_file_is_refused_or_read(tmp_path):
    path = tmp_path / "people.parquet"
    columns = {"person": list("aaaabbbb") * 8, "town": ["Ulm", "Bonn", None, "Kiel"] * 16, "y": np.arange(64) / 7}
    pyarrow.parquet.write_table(pa.table(columns), path, compression="none")
    content = path.read_bytes()
    said = []
    for place in range(0, len(content), 5):
        spoilt = bytearray(content)
        spoilt[place] ^= 0x5A
        path.write_bytes(spoilt)
        try:
            table(path, client="person", label="y", kind="regression")
        except UsageError as error:
            said.append(str(error))
    assert len(said) > 50
    assert all("people.parquet" in words for words in said)
