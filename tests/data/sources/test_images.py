"""MNIST, Fashion-MNIST, CIFAR-10 and CIFAR-100 in all their forms."""

import codecs
import io
import os
import pickle

import numpy as np
import pytest

from headstart.data import sources
from headstart.data.sources.formats import unpickled
from headstart.errors import UsageError
from tests.data.sources import files

DIGITS, DIGIT = files.images(28, 28), files.labels(10)
COLOURS = files.images(32, 32, 3)
COARSE_OF_FINE = files.RNG.integers(0, 20, 100, dtype=np.uint8)
FINE = files.labels(100)
COARSE = {part: COARSE_OF_FINE[values] for part, values in FINE.items()}
TEN = [f"thing{i}" for i in range(10)]
HUNDRED, TWENTY = [f"kind{i}" for i in range(100)], [f"family{i}" for i in range(20)]


def ten_binary():
    thirds = np.array_split(np.arange(files.PARTS["train"]), 5)
    batches = {
        f"data_batch_{i}.bin": files.binary(COLOURS["train"][rows], DIGIT["train"][rows])
        for i, rows in enumerate(thirds, 1)
    }
    return {
        **batches,
        "test_batch.bin": files.binary(COLOURS["test"], DIGIT["test"]),
        "batches.meta.txt": "\n".join([*TEN, ""]).encode(),
    }


def ten_python():
    thirds = np.array_split(np.arange(files.PARTS["train"]), 5)
    x, y = COLOURS["train"], DIGIT["train"]
    batches = {
        f"data_batch_{i}": files.pickled(data=files.planes(x[rows]), labels=y[rows].tolist(), batch_label=b"some")
        for i, rows in enumerate(thirds, 1)
    }
    return {
        **batches,
        "test_batch": files.pickled(data=files.planes(COLOURS["test"]), labels=DIGIT["test"].tolist()),
        "batches.meta": files.pickled(label_names=[name.encode() for name in TEN], num_vis=3072),
    }


def hundred_binary():
    return {f"{p}.bin": files.binary(COLOURS[p], COARSE[p], FINE[p]) for p in files.PARTS} | {
        "fine_label_names.txt": "\n".join(HUNDRED).encode(),
        "coarse_label_names.txt": "\n".join(TWENTY).encode(),
    }


def hundred_python():
    names = {"fine_label_names": HUNDRED, "coarse_label_names": TWENTY}
    return {
        p: files.pickled(data=files.planes(COLOURS[p]), fine_labels=FINE[p].tolist(), coarse_labels=COARSE[p].tolist())
        for p in files.PARTS
    } | {"meta": files.pickled(**{key: [name.encode() for name in value] for key, value in names.items()})}


def below(folder, made):
    return {f"{folder}/{name}": data for name, data in made.items()}


DIGITS_NPZ = files.npz(**files.arrays(DIGITS, y=DIGIT))
TEN_NPZ = files.npz(**files.arrays(COLOURS, y=DIGIT), classes=np.array(TEN))
HUNDRED_NPZ = files.npz(
    **files.arrays(COLOURS, y=FINE, coarse=COARSE), classes=np.array(HUNDRED), coarse_classes=np.array(TWENTY)
)
FORMS = {
    "mnist": [
        {"mnist.npz": DIGITS_NPZ},
        {"mnist/mnist.npz": DIGITS_NPZ},
        files.idx_files(DIGITS, DIGIT),
        files.idx_files(DIGITS, DIGIT, ".gz"),
        below("MNIST/raw", files.idx_files(DIGITS, DIGIT)),
    ],
    "fashion_mnist": [
        {"fashion_mnist.npz": DIGITS_NPZ},
        below("FashionMNIST/raw", files.idx_files(DIGITS, DIGIT, ".gz")),
    ],
    "cifar10": [
        {"cifar10.npz": TEN_NPZ},
        {"cifar-10-binary.tar.gz": files.tar_gz("cifar-10-batches-bin", ten_binary())},
        below("cifar-10-batches-bin", ten_binary()),
        {"cifar-10-python.tar.gz": files.tar_gz("cifar-10-batches-py", ten_python())},
        below("cifar-10-batches-py", ten_python()),
        ten_python(),
    ],
    "cifar100": [
        {"cifar100.npz": HUNDRED_NPZ},
        {"cifar-100-binary.tar.gz": files.tar_gz("cifar-100-binary", hundred_binary())},
        below("cifar-100-binary", hundred_binary()),
        {"cifar-100-python.tar.gz": files.tar_gz("cifar-100-python", hundred_python())},
        below("cifar-100-python", hundred_python()),
    ],
}
CASES = [(name, form) for name, forms in FORMS.items() for form in forms]


@pytest.mark.parametrize(("name", "form"), CASES, ids=[f"{name}-{next(iter(form))}" for name, form in CASES])
def test_every_form_says_the_same(tmp_path, name, form):
    files.write(tmp_path, form)
    samples = sources.SOURCES[name].load(folder=tmp_path)
    x = COLOURS if name.startswith("cifar") else DIGITS
    y = FINE if name == "cifar100" else DIGIT
    assert samples.x.dtype == np.uint8
    np.testing.assert_array_equal(samples.x, np.concatenate([x["train"], x["test"]]))
    np.testing.assert_array_equal(samples.y, np.concatenate([y["train"], y["test"]]))
    assert samples.test.tolist() == [False] * 20 + [True] * 7
    assert len(samples.classes) == (100 if name == "cifar100" else 10)
    assert samples.name == name
    assert "Licence" in samples.source
    assert samples.subset.startswith("20 of ")
    assert sources.locate(name, tmp_path).origin == "folder"
    assert all(path.exists() for path in sources.locate(name, tmp_path).paths)


@pytest.mark.parametrize("form", FORMS["cifar100"], ids=lambda form: next(iter(form)))
def test_superclasses_are_a_column_and_can_be_the_labels(tmp_path, form):
    files.write(tmp_path, form)
    fine, coarse = (sources.cifar100(labels, tmp_path) for labels in ("fine", "coarse"))
    assert fine.classes == tuple(HUNDRED)
    assert coarse.classes == tuple(TWENTY)
    for samples in (fine, coarse):
        np.testing.assert_array_equal(samples.column("coarse"), np.concatenate([COARSE["train"], COARSE["test"]]))
        np.testing.assert_array_equal(samples.column("fine"), fine.y)
    np.testing.assert_array_equal(coarse.y, fine.column("coarse"))
    with pytest.raises(UsageError, match=r"(?s)no labels 'fin'.*Did you mean 'fine'"):
        sources.cifar100("fin", tmp_path)


def test_clothes_have_names(tmp_path):
    files.write(tmp_path, FORMS["fashion_mnist"][0])
    assert sources.fashion_mnist(tmp_path).classes[9] == "Ankle boot"


class Malicious:
    """Calls a function when it is unpickled."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("archive", [True, False])
def test_a_malicious_pickle_is_refused_and_not_run(tmp_path, archive):
    harm = tmp_path / "harm"
    bad = files.pickled(data=Malicious(os.mkdir, str(harm)), labels=[])
    made = ten_python() | {"data_batch_3": bad}
    files.write(tmp_path, {"cifar-10-python.tar.gz": files.tar_gz("cifar-10-batches-py", made)} if archive else made)
    with pytest.raises(UsageError, match=r"cannot be read: it asks for (posix|nt).mkdir"):
        sources.cifar10(tmp_path)
    assert not harm.exists()
    pickle.loads(bad)  # which would have been enough
    assert harm.exists()


@pytest.mark.parametrize("function", [getattr, eval, codecs.lookup, np.load, np.fromfile, pickle.loads, type])
def test_nothing_but_arrays_is_looked_up(function):
    with pytest.raises(pickle.UnpicklingError, match="it asks for"):
        unpickled(io.BytesIO(files.pickled(data=Malicious(function, "x"))))
    with pytest.raises(pickle.UnpicklingError, match="codec 'zlib'"):
        unpickled(io.BytesIO(files.pickled(data=Malicious(codecs.encode, "x", "zlib"))))


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("mnist", {"mnist.npz": b""}, "mnist.npz cannot be read"),
        ("mnist", {"mnist.npz": DIGITS_NPZ[:5000]}, "mnist.npz cannot be read"),
        ("mnist", {"mnist.npz": DIGITS_NPZ[:-3000] + bytes(2000) + DIGITS_NPZ[-1000:]}, "mnist.npz cannot be read"),
        ("mnist", {"mnist.npz": files.npz(x_train=DIGITS["train"])}, "lacks y_train, x_test, y_test; it has x_train"),
        (
            "mnist",
            {"mnist.npz": files.npz(**files.arrays(COLOURS, y=DIGIT))},
            r"train images are uint8 \(20, 32, 32, 3\)",
        ),
        ("mnist", {"mnist.npz": files.npz(**files.arrays(DIGITS, y=FINE))}, "label .* is outside 0 to 9"),
        (
            "mnist",
            {"mnist.npz": files.npz(**files.arrays(DIGITS, y={p: v[1:] for p, v in DIGIT.items()}))},
            "20 train images and 19 labels",
        ),
        (
            "mnist",
            {"mnist.npz": files.npz(**files.arrays({p: v.astype(object) for p, v in DIGITS.items()}, y=DIGIT))},
            "mnist.npz cannot be read.*pickle",
        ),
        ("cifar10", {"cifar-10-binary.tar.gz": b"no archive at all"}, "binary.tar.gz cannot be read"),
        ("cifar10", {"cifar-10-binary.tar.gz": b""}, "binary.tar.gz cannot be read"),
        (
            "cifar10",
            {"cifar-10-binary.tar.gz": FORMS["cifar10"][1]["cifar-10-binary.tar.gz"][:30_000]},
            "binary.tar.gz cannot be read",
        ),
        (
            "cifar10",
            {"cifar-10-binary.tar.gz": files.tar_gz("x", {"data_batch_1.bin": b""})},
            "it lacks data_batch_2.bin",
        ),
        ("cifar10", ten_binary() | {"test_batch.bin": bytes(5000)}, "5,000 bytes are no whole number of images"),
        ("cifar10", ten_python() | {"test_batch": b"\x80\x02"}, "test_batch cannot be read"),
        ("cifar10", ten_python() | {"test_batch": files.pickled(data=1)}, "cannot be read: 'labels'"),
        ("cifar10", ten_python() | {"test_batch": b"\x80\x02]."}, "holds a list and no dictionary"),
    ],
)
def test_damaged_files_are_named(tmp_path, name, change, message):
    files.write(tmp_path, change)
    with pytest.raises(UsageError, match=rf"(?s){message}"):
        sources.SOURCES[name].load(folder=tmp_path)


@pytest.mark.parametrize(
    ("suffix", "damage", "message"),
    [
        ("", lambda data: data[:-1], r"5487 bytes follow the header, but its shape is \(7, 28, 28\)"),
        ("", lambda data: data[:9], "9 bytes are too few"),
        ("", lambda _: b"", "0 bytes are too few"),
        ("", lambda data: b"\0\0\x0d" + data[3:], "it begins with 00 00 0d 03 and not with 00 00 08 03"),
        (".gz", lambda data: data[:-1], "Compressed file ended"),
        (".gz", lambda data: data[:9], "Compressed file ended"),
        (".gz", lambda _: b"", "0 bytes are too few"),
        (".gz", lambda _: b"plain", "Not a gzipped file"),
        (".gz", lambda data: data[:200] + bytes(9) + data[209:], "Error -3|CRC check failed"),
    ],
)
def test_damaged_idx_files_are_named(tmp_path, suffix, damage, message):
    made = files.idx_files(DIGITS, DIGIT, suffix)
    name = f"t10k-images-idx3-ubyte{suffix}"
    files.write(tmp_path, made | {name: damage(made[name])})
    with pytest.raises(UsageError, match=f"{name} cannot be read: ({message})"):
        sources.mnist(tmp_path)


def test_a_subset_is_told_from_the_whole():
    whole = np.arange(60_000) >= 50_000
    assert sources.SOURCES["cifar100"].subset(whole) == ""
    part = np.arange(28_000) >= 23_000
    told = "23,000 of 50,000 to train on and 5,000 of 10,000 to test on"
    assert sources.SOURCES["cifar100"].subset(part) == told
    assert sources.SOURCES["omniglot"].subset(part) == ""  # of which no numbers are published here
