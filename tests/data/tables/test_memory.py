"""What loading takes is stated before."""

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from headstart.data.tables import memory, memory_needed, prepare
from tests.data.tables.people import people
from tests.data.tables.test_folders import draw, write

ROW = memory.ROW_BYTES


def test_parquet_counts_rows_and_features(tmp_path):
    path = tmp_path / "people.parquet"
    pa.parquet.write_table(people(), path)
    assert memory_needed(path) - memory.READER_BYTES == 120 * (2 * 4 + ROW)
    assert memory_needed(path, features=["age"]) - memory.READER_BYTES == 120 * (4 + ROW)


@pytest.mark.parametrize("ending", ["csv", "csv.gz"])
def test_csv_is_estimated(ending, tmp_path):
    path = tmp_path / f"people.{ending}"
    data = people(20_000)
    with pa.output_stream(str(path), compression="detect") as file:
        pa.csv.write_csv(data, file)
    assert 20_000 * ROW < memory_needed(path) - memory.READER_BYTES < 20_000 * 3 * ROW


def test_folders_images_and_prepared_data(tmp_path):
    write(tmp_path / "parquet", "parquet")
    assert memory_needed(tmp_path / "parquet") - memory.READER_BYTES == 120 * (2 * 4 + ROW)
    write(tmp_path / "npz", "npz")
    assert memory_needed(tmp_path / "npz") - memory.READER_BYTES > 120 * (2 * 8 + ROW)
    draw(tmp_path / "images")
    assert memory_needed(tmp_path / "images") == 30 * (12 + ROW)
    pa.parquet.write_table(people(), tmp_path / "t.parquet")
    prepare(tmp_path / "t.parquet", tmp_path / "out", client="person", label="activity")
    assert memory_needed(tmp_path / "out") == 120 * ROW
