"""One file a client, trees of images, arrays: the same federations as a table's, and mistakes named."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
import pytest
from PIL import Image

from headstart.data.tables import arrays, folder, form_of, images, open_data, table
from headstart.errors import UsageError
from tests.data.tables.people import inputs, people, rows_of
from tests.data.tables.test_table import contents

FEATURES = ("speed", "age")


def write(root, ending, data=None):
    data = people() if data is None else data
    root.mkdir(exist_ok=True)
    for name in pc.unique(data["person"]).to_pylist():
        rows = data.filter(pc.equal(data["person"], name)).drop_columns("person")
        path = root / f"{name}.{ending}"
        if ending == "parquet":
            pa.parquet.write_table(rows, path)
        elif ending == "csv":
            pa.csv.write_csv(rows, path)
        else:
            np.savez(
                path, x=np.stack([rows[c].to_numpy() for c in FEATURES], 1), y=np.array(rows["activity"].to_pylist())
            )
    return root


@pytest.mark.parametrize("ending", ["csv", "parquet", "npz"])
def test_a_folder_of_files_is_a_table(ending, tmp_path):
    root = write(tmp_path / "people", ending)
    (root / ".hidden.csv").touch()
    (root / "README.md").touch()
    expected = contents(table(people(), client="person", label="activity"))
    assert contents(folder(root, label="activity")) == expected
    assert form_of(root) == "folder"
    assert contents(open_data(str(root), label="activity").federation()) == expected


def test_whole_numbers_in_one_file_and_fractions_in_another_are_one_column(tmp_path):
    (tmp_path / "a.csv").write_text("f,y\n1,x\n2,z\n3,x\n,z\n")
    (tmp_path / "b.csv").write_text("f,y\n1.5,x\n2.5,z\n2,x\n1,z\n")
    (tmp_path / "c.csv").write_text("f,y\n,x\n,z\n,x\n,z\n")
    federation = folder(tmp_path, label="y", held_out=0, standardize="none")
    assert federation.names == ["a", "b", "c"]
    assert federation.task.inputs == (2,)


def refused(match, call, *args, **options):
    with pytest.raises(UsageError, match=f"(?s){match}") as caught:
        call(*args, **options)
    assert caught.value.remedy


def test_mistakes_in_folders(tmp_path):
    refused("is not there", folder, tmp_path / "none", label="y")
    refused("no file of a client", folder, tmp_path, label="y")
    refused("neither tables nor images", open_data, str(tmp_path))
    file = tmp_path / "a.csv"
    file.write_text("f,y\n1,x\n2,z\n")
    refused("is a file.*table", folder, file, label="y")
    refused("which column is the label", folder, tmp_path)
    other = tmp_path / "b.csv"
    other.write_text("f,g,y\n1,1,x\n2,2,z\n")
    refused("b.csv has a column 'g', a.csv has not", folder, tmp_path, label="y")
    other.write_text("f,y\none,x\n2,z\n")
    refused("Column 'f' is .*string.* in b.csv, but int64", folder, tmp_path, label="y")
    other.write_text("f,y\n")
    refused("b.csv", folder, tmp_path, label="y")
    pa.parquet.write_table(pa.table({"f": [1.0], "y": ["x"]}).slice(0, 0), tmp_path / "c.parquet")
    other.unlink()
    refused("c.parquet has no rows.*client 'c'", folder, tmp_path, label="y")
    (tmp_path / "c.parquet").unlink()
    other.write_text("f,y\n1,x\n,\n")
    refused("row 2 of b.csv has no label", folder, tmp_path, label="y")
    other.write_text("client,f,y\n1,1,x\n")
    (tmp_path / "a.csv").write_text("client,f,y\n1,1,x\n")
    refused("a.csv has a column 'client'", folder, tmp_path, label="y")


@pytest.mark.parametrize("twin", ["a.parquet", "A.csv", "a .csv", "a.csv.gz"])
def test_two_files_of_one_client(twin, tmp_path):
    (tmp_path / "a.csv").write_text("f,y\n1,x\n2,z\n")
    (tmp_path / twin).write_text("f,y\n1,x\n2,z\n")
    refused("a.* are both of client", folder, tmp_path, label="y")


def test_mistakes_in_npz_files(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros((4, 2)), y=[0, 1, 0, 1])
    for match, content in {
        "b.npz has no array 'y'": {"x": np.zeros((4, 2))},
        "b.npz: a sample of x has shape .3,., but in a.npz": {"x": np.zeros((4, 3)), "y": [0, 1, 0, 1]},
        "b.npz: x has shape .4, 2. and y .3,.": {"x": np.zeros((4, 2)), "y": [0, 1, 0]},
        "b.npz has no rows": {"x": np.zeros((0, 2)), "y": np.zeros(0)},
        "b.npz cannot be read": {"x": np.array([{}] * 4), "y": [0, 1, 0, 1]},
    }.items():
        np.savez(tmp_path / "b.npz", **content)
        refused(match, folder, tmp_path)
    (tmp_path / "b.npz").write_bytes(b"nothing")
    refused("b.npz cannot be read", folder, tmp_path)
    (tmp_path / "b.npz").unlink()
    (tmp_path / "b.csv").write_text("f,y\n1,x\n")
    refused("npz files and tables", folder, tmp_path)


def draw(root, mode="L", size=(4, 3)):
    rng = np.random.default_rng(0)
    kept = {}
    for person in ("ann", "bob", "cy"):
        for label in ("cat", "dog"):
            (root / person / label).mkdir(parents=True)
            for i in range(5):
                shape = (size[1], size[0], *(() if mode == "L" else (3,)))
                kept[person, label, i] = rng.integers(0, 256, shape, dtype=np.uint8)
                Image.fromarray(kept[person, label, i]).save(root / person / label / f"{i}.png")
    return kept


@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_a_tree_of_images(mode, tmp_path):
    kept = draw(tmp_path, mode)
    federation = images(tmp_path, held_out=1)
    assert (federation.total, federation.trained, form_of(tmp_path)) == (3, 2, "images")
    assert federation.task.inputs == ((3, 4) if mode == "L" else (3, 4, 3))
    assert federation.task.outputs == 2
    for i, name in enumerate(federation.names):
        rows = np.concatenate([rows_of(federation, part)[i] for part in ("train", "query")])
        found = sorted(image.tobytes() for image in np.asarray(federation.clients.pool.x)[rows])
        assert found == sorted(image.tobytes() for (who, _, _), image in kept.items() if who == name)
    assert inputs(federation, np.arange(30)).max() <= 1


def test_mistakes_in_images(tmp_path):
    refused("is no folder", images, tmp_path / "none")
    refused("has no images", images, tmp_path)
    draw(tmp_path)
    (tmp_path / "dan" / "cat").mkdir(parents=True)
    refused("dan has no images", images, tmp_path)
    (tmp_path / "dan" / "cat" / "0.png").write_bytes(b"no image")
    refused("0.png is no readable image", images, tmp_path)
    whole = (tmp_path / "ann" / "cat" / "0.png").read_bytes()
    (tmp_path / "dan" / "cat" / "0.png").write_bytes(whole[: len(whole) // 2])
    refused("0.png is no readable image", images, tmp_path)
    Image.fromarray(np.zeros((9, 8), np.uint8)).save(tmp_path / "dan" / "cat" / "0.png")
    refused("0.png is 8 x 9 pixels, but .*0.png is 4 x 3", images, tmp_path)
    (tmp_path / "dan" / "1.png").write_bytes(whole)
    refused("1.png lies in a client's folder", images, tmp_path)


def test_arrays_are_a_table():
    data = people()
    x = np.stack([data["speed"].to_numpy(), data["age"].to_numpy()], axis=1)
    client, y = data["person"].to_pylist(), data["activity"].to_pylist()
    expected = contents(table(data, client="person", label="activity"))
    assert contents(arrays(x, y, client)) == expected
    assert contents(arrays(x, np.array(y), np.array(client), features=["speed", "age"])) == expected


def test_arrays_of_images_stay_bytes():
    x = np.random.default_rng(0).integers(0, 256, (40, 3, 3), dtype=np.uint8)
    federation = arrays(x, np.arange(40) % 2, np.arange(40) // 10, columns={"when": np.arange(40)}, order="when")
    assert federation.clients.pool.x.dtype == np.uint8
    assert rows_of(federation, "query")[0].tolist() == [8, 9]
    assert sorted(federation.names) == ["0", "1", "2", "3"]


def test_mistakes_in_arrays():
    x, y, client = np.zeros((4, 2)), [0, 1, 0, 1], list("aabb")
    refused("y has 3 rows, but x has 4", arrays, x, y[:3], client)
    refused("client has 3 rows, but x has 4", arrays, x, y, client[:3])
    refused("x has no rows", arrays, x[:0], [], [])
    refused("x holds <U1", arrays, np.array([["a"]] * 4), y, client)
    refused("1 features for 2 columns", arrays, x, y, client, features=["a"])
    refused("one value a row, of one type", arrays, x, [0, "a", 1, 2], client)
    x[2, 1] = np.inf
    refused("row 3 of the arrays, column 'x1'", arrays, x, y, client)
