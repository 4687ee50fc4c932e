"""MNIST and Fashion-MNIST."""

from functools import partial
from pathlib import Path

from headstart.data.samples import Samples
from headstart.data.sources.formats import idx, npz
from headstart.data.sources.labelled import Labelled, labelled
from headstart.data.sources.locate import contents
from headstart.data.sources.source import Form, Remote, Source

__all__ = ["FASHION_MNIST", "MNIST", "fashion_mnist", "mnist"]

WHOLE = (60_000, 10_000)
DIGITS = tuple("0123456789")
CLOTHES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
SHAPE = (28, 28)
FILES = {"train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte")}
FILES["test"] = ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
IDX_FILES = (*FILES["train"], *FILES["test"])


def mnist(folder: str | Path | None = None) -> Samples:
    """70,000 handwritten digits of 28x28 bytes, the 10,000 of the test set last."""
    return _samples(MNIST, folder)


def fashion_mnist(folder: str | Path | None = None) -> Samples:
    """70,000 pictures of clothes of 28x28 bytes, the 10,000 of the test set last."""
    return _samples(FASHION_MNIST, folder)


def _samples(source: Source[Labelled], folder: str | Path | None) -> Samples:
    data = contents(source, folder)
    return Samples(
        source.name, data.x, data.labels["y"], data.classes["y"], data.test,
        subset=source.subset(data.test), source=source.origin,
    )  # fmt: skip


def _read_npz(name: str, classes: tuple[str, ...], folder: Path) -> Labelled:
    path = folder / name
    arrays = npz(path, "x_train", "y_train", "x_test", "y_test")
    images = {part: arrays[f"x_{part}"] for part in FILES}
    return labelled(path, SHAPE, images, {"y": {part: arrays[f"y_{part}"] for part in FILES}}, {"y": classes})


def _read_idx(suffix: str, classes: tuple[str, ...], folder: Path) -> Labelled:
    images = {part: idx(folder / f"{names[0]}{suffix}", 3) for part, names in FILES.items()}
    labels = {part: idx(folder / f"{names[1]}{suffix}", 1) for part, names in FILES.items()}
    return labelled(folder, SHAPE, images, {"y": labels}, {"y": classes})


def _forms(name: str, classes: tuple[str, ...]) -> tuple[Form[Labelled], ...]:
    return (
        Form((f"{name}.npz",), partial(_read_npz, f"{name}.npz", classes)),
        Form(IDX_FILES, partial(_read_idx, "", classes)),
        Form(tuple(f"{file}.gz" for file in IDX_FILES), partial(_read_idx, ".gz", classes)),
    )


def _remotes(mirrors: tuple[str, ...], checksums: tuple[tuple[str, int], ...]) -> tuple[Remote, ...]:
    return tuple(
        Remote(f"{name}.gz", tuple(f"{mirror}{name}.gz" for mirror in mirrors), f"sha256:{sha256}", size)
        for name, (sha256, size) in zip(IDX_FILES, checksums, strict=True)
    )


# Checksums as TensorFlow Datasets records them.
MNIST = Source(
    "mnist",
    mnist,
    "handwritten digits, 70,000 images of 28x28 in 10 classes",
    "LeCun, Bottou, Bengio, Haffner: Gradient-based learning applied to document recognition, Proc. IEEE 1998.",
    "CC BY-SA 3.0",
    _forms("mnist", DIGITS),
    ("MNIST/raw", "MNIST"),
    _remotes(
        ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
        (
            ("440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609", 9_912_422),
            ("3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c", 28_881),
            ("8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6", 1_648_877),
            ("f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6", 4_542),
        ),
    ),
    whole=WHOLE,
)

FASHION_MNIST = Source(
    "fashion_mnist",
    fashion_mnist,
    "pictures of clothes, 70,000 images of 28x28 in 10 classes",
    "Xiao, Rasul, Vollgraf: Fashion-MNIST: a novel image dataset for benchmarking machine learning algorithms, 2017.",
    "MIT",
    _forms("fashion_mnist", CLOTHES),
    ("FashionMNIST/raw", "FashionMNIST", "fashion-mnist"),
    _remotes(
        (
            "https://storage.googleapis.com/tensorflow/tf-keras-datasets/",
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        ),
        (
            ("3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84", 26_421_880),
            ("a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845", 29_515),
            ("346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073", 4_422_102),
            ("67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5", 5_148),
        ),
    ),
    whole=WHOLE,
)
