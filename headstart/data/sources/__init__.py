"""Named sources of samples, from files that the user has, from the cache or by download."""

from pathlib import Path
from typing import Any

from headstart.data.sources.cifar import CIFAR10, CIFAR100, cifar10, cifar100
from headstart.data.sources.digits import FASHION_MNIST, MNIST, fashion_mnist, mnist
from headstart.data.sources.har import HAR, har
from headstart.data.sources.huggingface import from_huggingface
from headstart.data.sources.locate import cache_folder, find
from headstart.data.sources.omniglot import OMNIGLOT, omniglot
from headstart.data.sources.shakespeare import SHAKESPEARE, shakespeare
from headstart.data.sources.source import Form, Location, Remote, Source
from headstart.errors import UsageError, did_you_mean

SOURCES: dict[str, Source[Any]] = {
    source.name: source for source in (MNIST, FASHION_MNIST, CIFAR10, CIFAR100, OMNIGLOT, HAR, SHAKESPEARE)
}
"""Every named source."""


def locate(name: str, folder: str | Path | None = None) -> Location[Any] | None:
    """Where the files of a named source are, or ``None``; nothing is opened or downloaded."""
    if name not in SOURCES:
        raise UsageError(f"There is no source {name!r}.", did_you_mean(name, SOURCES))
    return find(SOURCES[name], folder)


__all__ = [
    "SOURCES",
    "Form",
    "Location",
    "Remote",
    "Source",
    "cache_folder",
    "cifar10",
    "cifar100",
    "fashion_mnist",
    "from_huggingface",
    "har",
    "locate",
    "mnist",
    "omniglot",
    "shakespeare",
]
