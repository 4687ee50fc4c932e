"""Samples from a Hugging Face data set that the user has loaded."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from headstart.data.samples import Samples
from headstart.errors import UsageError, did_you_mean

__all__ = ["from_huggingface"]


def from_huggingface(dataset: Any, image: str = "image", label: str = "label") -> Samples:
    """From a ``datasets.Dataset``, or from the ``train`` and ``test`` parts of a ``datasets.DatasetDict``.

    Images become one stack of bytes. Other columns of plain numbers or strings are kept as columns.
    """
    parts = _parts(dataset)
    for part, rows in parts.items():
        for name in (image, label):
            if name not in rows.column_names:
                raise UsageError(
                    f"The data set's {part} has no column {name!r}.", did_you_mean(name, rows.column_names)
                )
    x = [_stack(rows, image, part) for part, rows in parts.items()]
    if len({block.shape[1:] for block in x}) > 1:
        raise UsageError(
            f"Images of train and test differ in shape: {', '.join(str(block.shape[1:]) for block in x)}.",
            "Resize them first, for example with dataset.map.",
        )
    y, classes = _labels(list(parts.values()), label)
    first = next(iter(parts.values()))
    kept = [name for name in first.column_names if name not in (image, label) and _is_plain(first.features[name])]
    columns = {name: np.concatenate([_column(rows, name) for rows in parts.values()]) for name in kept}
    test = np.concatenate([np.full(len(rows), part == "test") for part, rows in parts.items()])
    info = getattr(first, "info", None)
    name = getattr(info, "dataset_name", None) or getattr(info, "builder_name", None) or "huggingface"
    source = f"Hugging Face data set {name}. Licence: {getattr(info, 'license', '') or 'see its card'}"
    return Samples(name, np.concatenate(x), y, classes, test if "test" in parts else None, columns, source=source)


def _parts(dataset: Any) -> dict[str, Any]:
    """The parts to use by name; what is not split is all ``train``."""
    if not isinstance(dataset, Mapping):
        if not hasattr(dataset, "column_names") or not hasattr(dataset, "features"):
            raise UsageError(
                f"A {type(dataset).__name__} is no Hugging Face data set.", "Pass what datasets.load_dataset returns."
            )
        parts = {"train": dataset}
    else:
        if "train" not in dataset:
            raise UsageError(
                f"The data set has no part 'train', only {', '.join(map(str, dataset)) or 'none at all'}.",
                "Pass one of them, or a dictionary with train and test.",
            )
        parts = {part: dataset[part] for part in ("train", "test") if part in dataset}
    for part, rows in parts.items():
        if not hasattr(rows, "__len__"):
            raise UsageError(f"The data set's {part} is streamed and has no length.", "Load it with streaming=False.")
        if not len(rows):
            raise UsageError(f"The data set's {part} is empty.", "Pass a data set with samples.")
    return parts


def _stack(rows: Any, image: str, part: str) -> np.ndarray:
    """All images as one array, filled one by one: neither Python lists of pixels nor all images decoded at once."""
    result = None
    for number, value in enumerate(rows.select_columns([image])):
        picture = np.asarray(value[image])
        if picture.ndim == 0 or picture.dtype == object:
            raise UsageError(f"{image} of row {number} of {part} is no image.", "Name the column of the images.")
        if result is None:
            result = np.empty((len(rows), *picture.shape), _bytes_if_whole(picture))
        if picture.shape != result.shape[1:]:
            raise UsageError(
                f"{image} of row {number} of {part} has the shape {picture.shape}, others {result.shape[1:]}.",
                "Resize the images first, for example with dataset.map.",
            )
        if result.dtype == np.uint8 and picture.dtype != np.uint8 and (picture.min() < 0 or picture.max() > 255):
            raise UsageError(
                f"{image} of row {number} of {part} has values outside 0 to 255.",
                "Give bytes, or floating-point numbers.",
            )
        result[number] = picture
    assert result is not None  # parts are not empty
    return result


def _bytes_if_whole(picture: np.ndarray) -> np.dtype:
    if picture.dtype == bool or np.issubdtype(picture.dtype, np.integer):
        return np.dtype(np.uint8)
    return np.dtype(np.float32)


def _labels(parts: list[Any], label: str) -> tuple[np.ndarray, tuple[str, ...] | None]:
    """Class numbers with their names, whatever the labels are; floating-point numbers are targets of a regression."""
    values = np.concatenate([_column(rows, label) for rows in parts])
    names = getattr(parts[0].features[label], "names", None)
    if names:
        if values.min() < 0:
            raise UsageError(f"{label} is -1 in some rows: they have no label.", "Leave them out: dataset.filter.")
        return values.astype(np.int32), tuple(names)
    if np.issubdtype(values.dtype, np.floating):
        return values, None
    classes, y = np.unique(values, return_inverse=True)
    return y.astype(np.int32), tuple(map(str, classes))


def _column(rows: Any, name: str) -> np.ndarray:
    return np.asarray(rows.with_format("numpy", columns=[name])[:][name])


def _is_plain(feature: Any) -> bool:
    """Whether a column holds one number, truth value or string a row."""
    return getattr(feature, "dtype", None) is not None and str(feature.dtype) in PLAIN


PLAIN = {"bool", "string", "large_string", "float16", "float32", "float64"} | {
    f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)
}
