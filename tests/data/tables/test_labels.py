"""What a label is taken for is said in one line, with what changes it."""

import numpy as np
import pyarrow.csv
import pytest

from headstart.data.tables import prepare, prepared, table
from headstart.errors import UsageError
from tests.data.tables.people import people

COLUMNS = {"client": "person", "label": "activity"}


def notes(data, **options):
    return table(data, **COLUMNS, **options).partition.notes


@pytest.mark.parametrize(
    ("label", "note"),
    [
        (["yes", "no"] * 60, "The label 'activity' is one of 2 classes."),
        ([True, False] * 60, "The label 'activity' is one of 2 classes."),
        (
            [1, 2, 3] * 40,
            "The whole numbers of the label 'activity' are 3 classes; "
            "to predict a number, say kind = 'regression' (--kind regression).",
        ),
        (
            np.arange(120) % 70 + 1,
            "The label 'activity' is a number to predict (a regression); "
            "to predict a class, say kind = 'classification' (--kind classification).",
        ),
        (np.linspace(0, 1, 120), "The label 'activity' is a number to predict (a regression)."),
        (np.arange(120), "The label 'activity' is a number to predict (a regression)."),
    ],
)
def test_what_the_label_was_taken_for_is_said(label, note):
    assert notes(people(activity=label))[0] == note


def test_what_is_said_can_be_changed():
    scores = np.arange(120) % 70 + 1
    assert table(people(activity=scores), **COLUMNS).task.kind == "regression"
    task = table(people(activity=scores), kind="classification", **COLUMNS).task
    assert (task.kind, task.outputs) == ("classification", 70)


def test_a_class_that_nobody_trains_on_is_noted_with_a_client_who_has_it():
    data = people()
    away = table(data, **COLUMNS).names[-1]
    row = data["person"].to_pylist().index(away)
    labels = data["activity"].to_pylist()
    labels[row] = "fly"
    federation = table(people(activity=labels), **COLUMNS)
    assert federation.task.outputs == 4
    assert (
        f"The label 'fly' is unseen in training, and will not be predicted: client '{away}' has it, which is held out."
        in federation.partition.notes
    )


def test_a_class_of_test_rows_alone_is_noted():
    # The split depends on the contents of rows: some row that is changed is for tests.
    found = []
    for row in range(30):
        changed = people()["activity"].to_pylist()
        changed[row] = "fly"
        found += [note for note in notes(people(activity=changed)) if "'fly'" in note]
    assert any("has it, for tests only" in note for note in found)


def test_many_such_classes_are_counted():
    labels = [f"c{i}" for i in range(120)]
    found = [note for note in notes(people(activity=labels)) if "unseen" in note]
    assert len(found) == 4
    assert "labels in all are unseen" in found[-1]


def test_prepared_data_is_for_what_it_was_prepared_for(tmp_path):
    path = tmp_path / "people.csv"
    pyarrow.csv.write_csv(people(activity=np.arange(120) % 40 + 0.5), path)
    out = prepare(path, tmp_path / "out", **COLUMNS)
    assert prepared(out).partition.notes[0] == "The label 'activity' is a number to predict (a regression)."
    with pytest.raises(UsageError, match="prepared for a regression"):
        prepared(out, kind="classification")
