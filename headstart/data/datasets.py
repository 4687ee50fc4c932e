"""The named federations: a source, and a way to deal its samples out that can be changed."""

from collections.abc import Callable
from functools import wraps
from typing import Literal, ParamSpec

from headstart.data import sources
from headstart.data.embedded import mnist_small, sine
from headstart.data.federation import Federation
from headstart.data.partitions import Alphabets, Natural, Partition, Partitioner, TwoGroups
from headstart.data.samples import Pixels, Samples
from headstart.data.tables import open_data

__all__ = ["DATASETS", "cifar10", "cifar100", "fashion_mnist", "har", "mnist", "omniglot", "own", "shakespeare"]

P = ParamSpec("P")

FALLAH_MNIST = TwoGroups(a=196, test_a=34)
FALLAH_CIFAR10 = TwoGroups(a=68, test_a=34)
WANG_CIFAR100 = TwoGroups(a=68, test_a=15)
BY_PERSON = Natural("person", group="segment", shots=5)
BY_ROLE = Natural("role")
GAO_OMNIGLOT = Alphabets()


def mnist(
    *,
    partition: Partitioner = FALLAH_MNIST,
    pixels: Pixels = "unit",
    held_out: int | float = 0,
    validation: int | float = 0,
    folder: str | None = None,
    seed: int = 0,
) -> Federation:
    """Handwritten digits, by default in fallah's two groups of 50 clients."""
    return _dealt(sources.mnist(folder).with_pixels(pixels), partition, held_out, seed, validation)


def fashion_mnist(
    *,
    partition: Partitioner = FALLAH_MNIST,
    pixels: Pixels = "unit",
    held_out: int | float = 0,
    validation: int | float = 0,
    folder: str | None = None,
    seed: int = 0,
) -> Federation:
    """Pieces of clothing in the format of MNIST, by default in fallah's two groups of 50 clients."""
    return _dealt(sources.fashion_mnist(folder).with_pixels(pixels), partition, held_out, seed, validation)


def cifar10(
    *,
    partition: Partitioner = FALLAH_CIFAR10,
    pixels: Pixels = "unit",
    held_out: int | float = 0,
    validation: int | float = 0,
    folder: str | None = None,
    seed: int = 0,
) -> Federation:
    """Small colour images of 10 kinds, by default in fallah's two groups of 50 clients."""
    return _dealt(sources.cifar10(folder).with_pixels(pixels), partition, held_out, seed, validation)


def cifar100(
    *,
    labels: Literal["fine", "coarse"] = "coarse",
    partition: Partitioner = WANG_CIFAR100,
    pixels: Pixels = "unit",
    held_out: int | float = 0,
    validation: int | float = 0,
    folder: str | None = None,
    seed: int = 0,
) -> Federation:
    """Small colour images of 100 kinds in 20 superclasses, by default those in wang's two groups of 50 clients."""
    return _dealt(sources.cifar100(labels, folder).with_pixels(pixels), partition, held_out, seed, validation)


def omniglot(
    *,
    partition: Partitioner = GAO_OMNIGLOT,
    held_out: int | float = 0,
    validation: int | float = 0,
    folder: str | None = None,
    seed: int = 0,
) -> Federation:
    """Handwritten characters, by default gao's 33 alphabets as clients and 600 tasks of 12 others to be judged by."""
    return _dealt(sources.omniglot(folder), partition, held_out, seed, validation)


def har(
    *,
    partition: Partitioner = BY_PERSON,
    held_out: int | float = 9,
    validation: int | float = 0,
    folder: str | None = None,
    seed: int = 0,
) -> Federation:
    """Smartphone recordings of 30 people's activities; 9 of them never train, and adapt on 5 windows an activity.

    Windows of one recorded segment overlap, so that a segment is either for training and support or for scores.
    """
    return _dealt(sources.har(folder), partition, held_out, seed, validation)


def shakespeare(
    *,
    context: int = 10,
    min_samples: int = 100,
    max_samples: int | None = 500,
    partition: Partitioner = BY_ROLE,
    held_out: int | float = 0.2,
    validation: int | float = 0,
    folder: str | None = None,
    seed: int = 0,
) -> Federation:
    """Roles of Shakespeare's plays, who predict their next character; a fifth of them never train.

    Of a longer role ``max_samples`` windows are taken, evenly spaced; ``None`` takes all, of which some roles have tens
    of thousands.
    """
    return _dealt(sources.shakespeare(context, min_samples, folder, max_samples), partition, held_out, seed, validation)


def _federated(deal: Callable[P, Partition]) -> Callable[P, Federation]:
    """The same call, whose result can be trained on."""

    @wraps(deal)
    def federation(*args: P.args, **options: P.kwargs) -> Federation:
        return deal(*args, **options).federation()

    return federation


own = _federated(open_data)
"""A user's own data, wherever ``path`` points: a table, a folder of client files, a tree of images, prepared data."""


def _dealt(
    samples: Samples, partition: Partitioner, held_out: int | float, seed: int, validation: int | float = 0
) -> Federation:
    """The samples dealt out; clients are held out beside those that the partition itself holds out."""
    dealt = partition(samples, seed)
    return (dealt.holding_out(held_out, seed, validation) if held_out or validation else dealt).federation()


DATASETS: dict[str, Callable[..., Federation]] = {
    "mnist-small": mnist_small,
    "sine": sine,
    "mnist": mnist,
    "fashion-mnist": fashion_mnist,
    "cifar10": cifar10,
    "cifar100": cifar100,
    "omniglot": omniglot,
    "har": har,
    "shakespeare": shakespeare,
    "own": own,
}
"""Every federation a configuration can ask for, by name."""
