"""CIFAR-10 and CIFAR-100."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

import numpy as np

from headstart.data.samples import Samples
from headstart.data.sources.formats import npz, reading, unpickled, within
from headstart.data.sources.labelled import Labelled, labelled
from headstart.data.sources.locate import contents
from headstart.data.sources.source import Form, Remote, Source
from headstart.errors import UsageError, did_you_mean

__all__ = ["CIFAR10", "CIFAR100", "cifar10", "cifar100"]

SHAPE = (32, 32, 3)
PIXELS = 32 * 32 * 3
SPLIT = ("train", "test")
WHOLE = (50_000, 10_000)
CITATION = "Krizhevsky: Learning multiple layers of features from tiny images, 2009."
LICENCE = "none stated; cite the report"


def cifar10(folder: str | Path | None = None) -> Samples:
    """60,000 colour images of 32x32 in 10 classes, the 10,000 of the test set last."""
    data = contents(CIFAR10, folder)
    return Samples(
        "cifar10", data.x, data.labels["y"], data.classes["y"], data.test,
        subset=CIFAR10.subset(data.test), source=CIFAR10.origin,
    )  # fmt: skip


def cifar100(labels: Literal["fine", "coarse"] = "fine", folder: str | Path | None = None) -> Samples:
    """60,000 colour images of 32x32 in 100 classes of 20 superclasses, the 10,000 of the test set last.

    ``labels`` says which of the two is to be predicted; both are columns, ``fine`` and ``coarse``.
    """
    if labels not in ("fine", "coarse"):
        raise UsageError(f"CIFAR-100 has no labels {labels!r}.", did_you_mean(str(labels), ("fine", "coarse")))
    data = contents(CIFAR100, folder)
    y, classes = data.labels[labels], data.classes[labels]
    return Samples(
        "cifar100", data.x, y, classes, data.test, data.labels,
        subset=CIFAR100.subset(data.test), source=CIFAR100.origin,
    )  # fmt: skip


class _Label(NamedTuple):
    """What one label of an image, and the names of its classes, are called in each version of the data."""

    name: str
    array: str
    classes_array: str
    key: str
    classes_key: str
    classes_file: str


@dataclass(frozen=True)
class _Layout:
    """How the files of the three versions are called and laid out."""

    name: str
    folder: str
    """What the archives' names and folders begin with."""
    parts: Mapping[str, tuple[str, ...]]
    meta: str
    labels: tuple[_Label, ...]
    """In the order of the binary version."""

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(file for part in SPLIT for file in self.parts[part])

    def forms(self) -> tuple[Form[Labelled], ...]:
        binary = tuple(f"{file}.bin" for file in self.files) + tuple(label.classes_file for label in self.labels)
        binary_archive, python_archive = (f"{self.folder}-{version}.tar.gz" for version in ("binary", "python"))
        return (
            Form((f"{self.name}.npz",), self.read_npz),
            Form(binary, partial(self.read_binary, "")),
            Form((binary_archive,), partial(self.read_binary, binary_archive)),
            Form((*self.files, self.meta), partial(self.read_python, "")),
            Form((python_archive,), partial(self.read_python, python_archive)),
        )

    def read_npz(self, folder: Path) -> Labelled:
        """Plain arrays."""
        path = folder / f"{self.name}.npz"
        wanted = [f"{array}_{part}" for array in ("x", *(label.array for label in self.labels)) for part in SPLIT]
        arrays = npz(path, *wanted, *(label.classes_array for label in self.labels))
        x = {part: arrays[f"x_{part}"] for part in SPLIT}
        labels = {label.name: {part: arrays[f"{label.array}_{part}"] for part in SPLIT} for label in self.labels}
        classes = {label.name: tuple(map(str, arrays[label.classes_array])) for label in self.labels}
        return labelled(path, SHAPE, x, labels, classes)

    def read_python(self, location: str, folder: Path) -> Labelled:
        """The version for Python: pickled dictionaries."""
        path = folder / location
        found = within(path, (*self.files, self.meta), unpickled)
        with reading(path):
            names = {
                label.name: tuple(n.decode() for n in found[self.meta][label.classes_key]) for label in self.labels
            }
            return self._joined(path, {file: self._pickled(found.pop(file)) for file in self.files}, names)

    def read_binary(self, location: str, folder: Path) -> Labelled:
        """The binary version: for each image one byte a label, and 3,072 of pixels."""
        path = folder / location
        named = {f"{file}.bin": file for file in self.files}
        found = within(path, (*named, *(label.classes_file for label in self.labels)), _all)
        with reading(path):
            names = {label.name: tuple(found[label.classes_file].decode().split()) for label in self.labels}
            return self._joined(path, {file: self._records(found.pop(name)) for name, file in named.items()}, names)

    def _pickled(self, content: Mapping[str, Any]) -> "_Batch":
        labels = {label.name: np.asarray(content[label.key]) for label in self.labels}
        return _Batch(_planes(np.asarray(content["data"], np.uint8)), labels)

    def _records(self, data: bytes) -> "_Batch":
        width = len(self.labels) + PIXELS
        if len(data) % width:
            raise ValueError(f"{len(data):,} bytes are no whole number of images of {width:,} bytes")
        rows = np.frombuffer(data, np.uint8).reshape(-1, width)
        labels = {label.name: rows[:, i] for i, label in enumerate(self.labels)}
        return _Batch(_planes(rows[:, len(self.labels) :]), labels)

    def _joined(self, path: Path, batches: Mapping[str, "_Batch"], classes: Mapping[str, tuple[str, ...]]) -> Labelled:
        x = {part: np.concatenate([batches[file].x for file in self.parts[part]]) for part in SPLIT}
        labels = {
            name: {part: np.concatenate([batches[file].labels[name] for file in self.parts[part]]) for part in SPLIT}
            for name in classes
        }
        return labelled(path, SHAPE, x, labels, classes)


class _Batch(NamedTuple):
    """What one file says."""

    x: np.ndarray
    labels: Mapping[str, np.ndarray]


def _planes(rows: np.ndarray) -> np.ndarray:
    """Images from rows of 1,024 red bytes, as many green and as many blue ones."""
    return np.ascontiguousarray(rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))


def _all(stream: IO[bytes]) -> bytes:
    return stream.read()


TEN = _Layout(
    "cifar10",
    "cifar-10",
    {"train": tuple(f"data_batch_{i}" for i in range(1, 6)), "test": ("test_batch",)},
    "batches.meta",
    (_Label("y", "y", "classes", "labels", "label_names", "batches.meta.txt"),),
)
HUNDRED = _Layout(
    "cifar100",
    "cifar-100",
    {"train": ("train",), "test": ("test",)},
    "meta",
    (
        _Label("coarse", "coarse", "coarse_classes", "coarse_labels", "coarse_label_names", "coarse_label_names.txt"),
        _Label("fine", "y", "classes", "fine_labels", "fine_label_names", "fine_label_names.txt"),
    ),
)

# Checksums as TensorFlow Datasets records them. The binary archives are preferred to those for Python, whose pickles
# have to be handled with care.
CIFAR10 = Source(
    "cifar10",
    cifar10,
    "colour images of things and animals, 60,000 of 32x32 in 10 classes",
    CITATION,
    LICENCE,
    TEN.forms(),
    ("cifar-10-batches-bin", "cifar-10-batches-py", "cifar10/cifar-10-batches-bin", "cifar10/cifar-10-batches-py"),
    (
        Remote(
            "cifar-10-binary.tar.gz",
            (
                "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
                "https://cave.cs.toronto.edu/kriz/cifar-10-binary.tar.gz",
                "https://storage.googleapis.com/s4tf-hosted-binaries/datasets/CIFAR10/cifar-10-binary.tar.gz",
            ),
            "sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            170_052_171,
        ),
    ),
    whole=WHOLE,
)

CIFAR100 = Source(
    "cifar100",
    cifar100,
    "colour images of things and animals, 60,000 of 32x32 in 100 classes of 20 superclasses",
    CITATION,
    LICENCE,
    HUNDRED.forms(),
    ("cifar-100-binary", "cifar-100-python", "cifar100/cifar-100-binary", "cifar100/cifar-100-python"),
    (
        Remote(
            "cifar-100-binary.tar.gz",
            (
                "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
                "https://cave.cs.toronto.edu/kriz/cifar-100-binary.tar.gz",
            ),
            "sha256:58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
            168_513_733,
        ),
    ),
    whole=WHOLE,
)
