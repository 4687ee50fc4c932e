from types import SimpleNamespace

import numpy as np
import pytest

from headstart.data.sources import from_huggingface
from headstart.errors import UsageError

datasets = pytest.importorskip("datasets")
RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (5, 4, 4), dtype=np.uint8)
LABELS = [2, 0, 1, 1, 2]


def made(rows=slice(None), pixels=PIXELS, feature=None, **columns):
    features = datasets.Features(
        {
            "image": feature or datasets.Image(),
            "label": datasets.ClassLabel(names=["cat", "dog", "owl"]),
            "writer": datasets.Value("string"),
            "age": datasets.Value("int32"),
            "boxes": datasets.Sequence(datasets.Value("float32")),
        }
    )
    content = {
        "image": [p if feature else _picture(p) for p in pixels[rows]],
        "label": LABELS[rows],
        "writer": list("abcab")[rows],
        "age": [30, 40, 50, 30, 40][rows],
        "boxes": [[1.0]] * len(LABELS[rows]),
    }
    return datasets.Dataset.from_dict(content | columns, features=features)


def _picture(pixels):
    from PIL import Image

    return Image.fromarray(pixels)


@pytest.mark.parametrize("feature", [None, "array"])
def test_images_labels_and_plain_columns(feature):
    samples = from_huggingface(made(feature=feature and datasets.Array2D((4, 4), "uint8")))
    assert samples.x.dtype == np.uint8
    np.testing.assert_array_equal(samples.x, PIXELS)
    assert samples.y.tolist() == LABELS
    assert samples.classes == ("cat", "dog", "owl")
    assert samples.test is None
    assert set(samples.columns) == {"writer", "age"}
    assert samples.column("writer").tolist() == list("abcab")
    assert samples.column("age").tolist() == [30, 40, 50, 30, 40]


def test_train_and_test_become_one_pool():
    both = datasets.DatasetDict({"test": made(slice(3, 5)), "train": made(slice(3)), "unsupervised": made()})
    samples = from_huggingface(both)
    np.testing.assert_array_equal(samples.x, PIXELS)
    assert samples.test.tolist() == [False, False, False, True, True]
    assert samples.column("writer").tolist() == list("abcab")


def test_colours_and_other_names():
    pixels = RNG.integers(0, 256, (5, 4, 6, 3), dtype=np.uint8)
    dataset = made(pixels=pixels).rename_columns({"image": "img", "age": "fine", "label": "species"})
    samples = from_huggingface(dataset, image="img", label="fine")
    np.testing.assert_array_equal(samples.x, pixels)
    assert samples.classes == ("30", "40", "50")
    assert samples.y.tolist() == [0, 1, 2, 0, 1]
    assert samples.column("species").tolist() == LABELS


def test_numbers_to_predict_are_a_regression():
    dataset = datasets.Dataset.from_dict({"image": PIXELS / 255.0, "label": [0.5, 1, 2, 3, 4]})
    samples = from_huggingface(dataset)
    assert samples.kind == "regression"
    assert samples.x.dtype == np.float32
    np.testing.assert_allclose(samples.x, PIXELS / 255.0, rtol=1e-6)


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        ([1, 2], "A list is no Hugging Face data set"),
        (lambda: datasets.DatasetDict({"test": made()}), "no part 'train', only test"),
        (lambda: made().remove_columns("label"), "has no column 'label'"),
        (lambda: made().rename_column("image", "images"), "(?s)no column 'image'.*Did you mean 'images'"),
        (lambda: made(slice(0)), "train is empty"),
        (SimpleNamespace(column_names=["image", "label"], features={}), "streamed"),
        (lambda: made(label=[2, 0, -1, 1, 2]), "label is -1 in some rows"),
        (
            lambda: made(image=[_picture(PIXELS[i][:, : 4 - i // 4]) for i in range(5)]),
            r"row 4 of train has the shape \(4, 3\)",
        ),
        (lambda: made().remove_columns("image").rename_column("writer", "image"), "row 0 of train is no image"),
        (
            lambda: datasets.Dataset.from_dict({"image": PIXELS.astype(int) * 2, "label": LABELS}),
            "values outside 0 to 255",
        ),
        (
            lambda: datasets.DatasetDict({"train": made(), "test": made(pixels=PIXELS[:, :3])}),
            "differ in shape",
        ),
    ],
)
def test_mistakes_are_explained(dataset, message):
    dataset = dataset() if callable(dataset) else dataset
    with pytest.raises(UsageError, match=message):
        from_huggingface(dataset)
