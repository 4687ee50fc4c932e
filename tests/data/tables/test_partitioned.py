"""Partitioners of flwr-datasets, and Hugging Face datasets."""

import io

import numpy as np
import pytest
from PIL import Image

from headstart.data.tables import partitioned, table
from headstart.errors import UsageError
from tests.data.tables.people import people, rows_of
from tests.data.tables.test_table import contents

datasets = pytest.importorskip("datasets")


def test_a_hugging_face_dataset_is_a_table():
    dataset = datasets.Dataset.from_dict(people().to_pydict())
    expected = contents(table(people(), client="person", label="activity"))
    assert contents(table(dataset, client="person", label="activity")) == expected
    assert contents(table(dataset.shuffle(seed=1), client="person", label="activity")) == expected


def test_class_numbers_have_names():
    names = ["walk", "run"]
    features = datasets.Features(
        {"who": datasets.Value("string"), "f": datasets.Value("float32"), "y": datasets.ClassLabel(names=names)}
    )
    rows = {"who": list("ab") * 10, "f": np.arange(20.0), "y": [0, 0, 1, 1] * 5}
    federation = table(datasets.Dataset.from_dict(rows, features=features), client="who", label="y", held_out=0)
    assert federation.task.outputs == 2


def pictures():
    images = [Image.fromarray(np.full((3, 4), i, np.uint8)) for i in range(40)]
    features = datasets.Features(
        {"image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b"]), "who": datasets.Value("int64")}
    )
    rows = {"image": images, "label": [i % 2 for i in range(40)], "who": [i // 10 for i in range(40)]}
    return datasets.Dataset.from_dict(rows, features=features)


def test_images_in_a_dataset():
    federation = table(pictures(), client="who", label="label", held_out=0)
    assert federation.task.inputs == (3, 4)
    rows = [np.concatenate([rows_of(federation, part)[i] for part in ("train", "query")]) for i in range(4)]
    for i in range(4):
        values = np.asarray(federation.clients.pool.x)[rows[i]][:, 0, 0]
        assert sorted(values.tolist()) == list(range(10 * i, 10 * i + 10))


def test_an_image_that_cannot_be_read():
    content = [{"bytes": b"no image", "path": None}] * 4
    with pytest.raises(UsageError, match="row 1 of the table is no readable image"):
        table({"image": content, "who": list("aabb"), "label": list("xyxy")}, client="who", label="label")
    file = io.BytesIO()
    Image.fromarray(np.zeros((2, 2), np.uint8)).save(file, "png")
    content = [{"bytes": file.getvalue(), "path": None}] * 3 + [{"bytes": None, "path": "x"}]
    with pytest.raises(UsageError, match="row 4 of the table has no image"):
        table({"image": content, "who": list("aabb"), "label": list("xyxy")}, client="who", label="label")


def test_a_partitioner_of_flower():
    partitioners = pytest.importorskip("flwr_datasets.partitioner")
    partitioner = partitioners.IidPartitioner(num_partitions=4)
    partitioner.dataset = datasets.Dataset.from_dict(people(person=None).to_pydict())
    federation = partitioned(partitioner, label="activity")
    assert (federation.total, federation.trained) == (4, 3)
    assert sorted(federation.names) == ["0", "1", "2", "3"]
    assert {len(rows) for rows in rows_of(federation, "query")} == {6}


def test_natural_partitions_keep_their_names():
    partitioners = pytest.importorskip("flwr_datasets.partitioner")
    partitioner = partitioners.NaturalIdPartitioner(partition_by="person")
    partitioner.dataset = datasets.Dataset.from_dict(people().to_pydict())
    federation = partitioned(partitioner, label="activity", features=["speed", "age"])
    expected = contents(table(people(), client="person", label="activity"))
    assert contents(federation) == expected


def test_images_of_a_partitioner():
    partitioners = pytest.importorskip("flwr_datasets.partitioner")
    partitioner = partitioners.IidPartitioner(num_partitions=4)
    partitioner.dataset = pictures().remove_columns("who")
    federation = partitioned(partitioner, label="label", held_out=0)
    assert federation.task.inputs == (3, 4)
    assert np.asarray(federation.clients.pool.x).shape == (40, 3, 4)


def test_something_that_is_no_partitioner():
    with pytest.raises(UsageError, match="list is no partitioner"):
        partitioned([], label="y")
