"""An encoding can be kept in a file and used on rows that come later."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from headstart.data.tables import Encoding, open_data, stored_rows
from headstart.data.tables.reading import source_of
from headstart.errors import UsageError
from headstart.problems import Examples
from tests.data.tables.people import people


@pytest.fixture(scope="module")
def partition(tmp_path_factory):
    path = tmp_path_factory.mktemp("encoding") / "people.parquet"
    lux = np.random.default_rng(0).normal(size=120)
    lux[::7] = np.nan
    color = [("red", "blue", None)[i % 3] for i in range(120)]
    pa.parquet.write_table(people(lux=lux, color=color, time=1.7e9 + lux), path)
    return open_data(str(path), client="person", label="activity"), path


def test_it_survives_json(partition):
    encoding = partition[0].samples.transform
    again = Encoding.from_json(json.loads(json.dumps(encoding.to_json())))
    assert again == encoding
    assert hash(again) == hash(encoding)
    with pytest.raises(UsageError, match="not an encoding"):
        Encoding.from_json({"columns": []})


def test_rows_that_come_later_are_stored_alike(partition):
    partition, path = partition
    encoding = partition.samples.transform
    np.testing.assert_array_equal(stored_rows(encoding, source_of(path)), partition.samples.x)
    # Columns may come in another order, and a new category has no feature.
    later = {"time": [1.7e9], "color": ["green"], "age": [30], "speed": [1.5], "lux": [None], "more": ["?"]}
    row = np.asarray(encoding(Examples(stored_rows(encoding, source_of(later)), np.zeros(1, int))).x)[0]
    features = dict(zip(encoding.features, row.tolist(), strict=True))
    assert features["lux is missing"] == 1
    assert features["lux"] == pytest.approx(0, abs=1e-6)
    assert [features[f"color={c}"] for c in ("(missing)", "blue", "red")] == [0, 0, 0]


def test_rows_that_lack_a_column_are_refused(partition):
    encoding = partition[0].samples.transform
    with pytest.raises(UsageError, match="no column 'speed'"):
        stored_rows(encoding, source_of({"age": [1]}))
    later = {"time": ["x"], "color": ["green"], "age": [30], "speed": [1.5], "lux": [0.0]}
    with pytest.raises(UsageError, match="row 1 of the table, column 'time': 'x' is no number"):
        stored_rows(encoding, source_of(later))
