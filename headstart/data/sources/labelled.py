"""Images with labels, in a training and a test set."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from headstart.errors import UsageError

__all__ = ["Labelled", "labelled"]


@dataclass(frozen=True)
class Labelled:
    """Images of a training set and, after them, of a test set."""

    x: np.ndarray
    labels: Mapping[str, np.ndarray]
    """Class numbers by the name of what they class."""
    classes: Mapping[str, tuple[str, ...]]
    """What the class numbers stand for."""
    test: np.ndarray
    """True for the rows of the test set."""


def labelled(
    path: Path,
    shape: tuple[int, ...],
    x: Mapping[str, np.ndarray],
    labels: Mapping[str, Mapping[str, np.ndarray]],
    classes: Mapping[str, tuple[str, ...]],
) -> Labelled:
    """Join ``x["train"]`` and ``x["test"]`` and their labels, once they are what they should be."""
    for part in ("train", "test"):
        if x[part].dtype != np.uint8 or x[part].shape[1:] != shape:
            raise _wrong(path, f"its {part} images are {x[part].dtype} {x[part].shape} and not uint8 (n, {shape})")
        for name, names in classes.items():
            values = labels[name][part]
            if len(values) != len(x[part]):
                raise _wrong(path, f"it has {len(x[part]):,} {part} images and {len(values):,} labels ({name})")
            if len(values) and (values.min() < 0 or values.max() >= len(names)):
                raise _wrong(path, f"a {part} label ({name}) is outside 0 to {len(names) - 1}")
    rows = len(x["train"]) + len(x["test"])
    return Labelled(
        np.concatenate([x["train"], x["test"]]),
        {name: np.concatenate([labels[name]["train"], labels[name]["test"]]).astype(np.int32) for name in classes},
        classes,
        np.arange(rows) >= len(x["train"]),
    )


def _wrong(path: Path, problem: str) -> UsageError:
    return UsageError(f"{path} is not what it should be: {problem}.", "Get the files again, all from the same place.")
