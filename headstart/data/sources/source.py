"""What a named source of samples is made of."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, Literal, TypeVar

import numpy as np

from headstart.data.samples import Samples

__all__ = ["Form", "Location", "Remote", "Source"]

Content = TypeVar("Content")


@dataclass(frozen=True)
class Remote:
    """A public file: what it is called, where it can be had, and how to know that it is the right one."""

    name: str
    urls: tuple[str, ...]
    """Mirrors, tried in order."""
    checksum: str
    """``algorithm:hexadecimal``."""
    size: int
    """Bytes."""


@dataclass(frozen=True)
class Form(Generic[Content]):
    """One way in which a source's files may lie in a folder."""

    files: tuple[str, ...]
    """Files or folders that must all be there."""
    read: Callable[[Path], Content] = field(repr=False)
    """From the folder they lie in to what they say."""

    def __str__(self) -> str:
        return ", ".join(self.files)

    def missing(self, folder: Path) -> list[str]:
        """Those of its files that a folder lacks."""
        return [name for name in self.files if not (folder / name).exists()]


@dataclass(frozen=True)
class Source(Generic[Content]):
    """A named source of samples, and everything to say about it without having it."""

    name: str
    load: Callable[..., Samples]
    description: str
    """One line."""
    citation: str
    licence: str
    forms: tuple[Form[Content], ...]
    """What it can be read from, the preferred one first."""
    subfolders: tuple[str, ...] = ()
    """Where other tools put its files, below the folder they were told."""
    downloads: tuple[Remote, ...] = ()
    """Files of one of its forms; empty where none can be told from a wrong one."""
    whole: tuple[int, int] | None = None
    """The published numbers of samples to train on and to test on."""
    by_hand: str = ""
    """Where to get it, if it cannot be downloaded from here."""

    @property
    def origin(self) -> str:
        """What to write beside results obtained from it."""
        return f"{self.citation} Licence: {self.licence}"

    def subset(self, test: np.ndarray) -> str:
        """In what samples, of which these are to test on, are fewer than the published ones; empty if in nothing."""
        found = (int((~test).sum()), int(test.sum()))
        if self.whole is None or found == self.whole:
            return ""
        counts = zip(found, self.whole, ("train", "test"), strict=True)
        return " and ".join(f"{have:,} of {want:,} to {use} on" for have, want, use in counts)

    @property
    def size(self) -> int:
        """Bytes to download."""
        return sum(remote.size for remote in self.downloads)

    def folders(self, root: Path) -> list[Path]:
        """Where below a folder its files are looked for."""
        return [root, *(root / below for below in (self.name, *self.subfolders))]


@dataclass(frozen=True)
class Location(Generic[Content]):
    """Where the files of a source are."""

    origin: Literal["folder", "HEADSTART_DATA", "cache"]
    """Whether the caller, the environment or the cache named the place."""
    folder: Path
    form: Form[Content]

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files themselves."""
        return tuple(self.folder / name for name in self.form.files)
