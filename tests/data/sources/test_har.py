import io

import numpy as np
import pytest

from headstart.data import sources
from headstart.errors import UsageError
from tests.data.sources import files

RNG = np.random.default_rng(0)
SIGNALS = {(sensor, e): RNG.normal(size=(700, 3)).round(6) for sensor in ("acc", "gyro") for e in (1, 2)}
# experiment, person, activity, first and last sample counted from 1: 128, 300 and 191 samples, a transition, and 127.
LABELS = np.array(
    [[1, 1, 5, 10, 137], [1, 1, 7, 138, 400], [1, 1, 1, 401, 700], [2, 4, 6, 1, 191], [2, 4, 2, 500, 626]]
)
STARTS = [(1, 9), (1, 400), (1, 464), (1, 528), (2, 0)]
"""Experiment and first sample, counted from 0, of each window that there should be."""
X = np.stack([np.hstack([SIGNALS[s, e][start : start + 128] for s in ("acc", "gyro")]) for e, start in STARTS])
FACTS = {
    "y": [4, 0, 0, 0, 5],
    "subject": [1, 1, 1, 1, 4],
    "exp": [1, 1, 1, 1, 2],
    "segment": [0, 2, 2, 2, 3],
}
ACTIVITIES = np.array(["WALKING", "WALKING_UPSTAIRS", "WALKING_DOWNSTAIRS", "SITTING", "STANDING", "LAYING"])


def table(values, form="%.6f"):
    text = io.StringIO()
    np.savetxt(text, values, form)
    return text.getvalue().encode()


def recordings():
    person = {1: 1, 2: 4}
    return {
        f"{sensor}_exp{e:02d}_user{person[e]:02d}.txt": table(values) for (sensor, e), values in SIGNALS.items()
    } | {"labels.txt": table(LABELS, "%d")}


def below(folder, extra=None):
    return {f"{folder}/{name}": data for name, data in (recordings() | (extra or {})).items()}


NEW = "smartphone+based+recognition+of+human+activities+and+postural+transitions.zip"
FORMS = [
    {"har.npz": files.npz(x=X.astype(np.float32), **{n: np.array(v) for n, v in FACTS.items()}, activities=ACTIVITIES)},
    recordings(),
    below("HAPT Data Set/RawData"),
    {NEW: files.zipped(below("RawData") | {"Train/y_train.txt": b"1\n"})},
    {"har/HAPT Data Set.zip": files.zipped(below("RawData"))},
]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: next(iter(form)))
def test_every_form_says_the_same(tmp_path, form):
    files.write(tmp_path, form)
    samples = sources.har(tmp_path)
    assert samples.x.dtype == np.float32
    np.testing.assert_array_equal(samples.x, X.astype(np.float32))
    assert samples.y.tolist() == FACTS["y"]
    for column, name in (("person", "subject"), ("experiment", "exp"), ("segment", "segment")):
        assert samples.column(column).tolist() == FACTS[name]
    assert list(samples.classes) == ACTIVITIES.tolist()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels.txt": b""}, "labels.txt"),
        ({"labels.txt": b"1 1 5\n"}, "labels.txt cannot be read: it has 3 columns and not 5"),
        ({"labels.txt": b"1 1 5 10 137\n9 1 5 10 137\n"}, "lacks the recordings acc_exp09, gyro_exp09"),
        ({"labels.txt": b"1 1 5 600 701\n"}, "row 1 of labels.txt names samples 600 to 701"),
        ({"labels.txt": b"1 1 5 600 601\n"}, "no labelled stretch has 128 samples"),
        ({"gyro_exp01_user01.txt": b"0.1 0.2\n"}, "gyro_exp01_user01.txt cannot be read: it has 2 columns"),
        ({"gyro_exp01_user01.txt": b"0.1 x 0.2\n"}, "gyro_exp01_user01.txt cannot be read: could not convert"),
    ],
)
@pytest.mark.filterwarnings("ignore:loadtxt")
def test_damaged_files_are_named(tmp_path, change, message):
    files.write(tmp_path, recordings() | change)
    with pytest.raises(UsageError, match=message):
        sources.har(tmp_path)


def test_an_archive_of_something_else_is_named(tmp_path):
    files.write(tmp_path, {NEW: files.zipped({"x.txt": b""})})
    with pytest.raises(UsageError, match=r"transitions\.zip cannot be read: it lacks labels\.txt"):
        sources.har(tmp_path)
