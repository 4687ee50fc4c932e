"""The data sets by name: which there are, where their files are, and how to have them or one's own prepared."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from headstart.data import sources
from headstart.data.samples import Samples
from headstart.data.sources.locate import fetched
from headstart.data.tables import prepare as prepare_table
from headstart.data.tables.labels import Kind
from headstart.errors import UsageError

__all__ = ["NamedData", "is_named_source", "list_data", "load_source", "prepare"]


class NamedData(NamedTuple):
    """A data set that an experiment can name."""

    name: str
    description: str
    download: int | None
    """Bytes; 0 where there is nothing to download, ``None`` where it has to be fetched by hand."""
    files: str
    """Where its files are."""


def list_data() -> list[NamedData]:
    """The named data sets: what they are, how large, and whether their files are here.

    >>> [data.name for data in list_data()][:3]
    ['mnist-small', 'sine', 'mnist']
    """
    found = [
        NamedData("mnist-small", "6,000 handwritten digits, a part of MNIST.", 0, "in the package"),
        NamedData("sine", "Sine waves of many amplitudes and phases.", 0, "generated"),
    ]
    for name, source in sources.SOURCES.items():
        location = sources.locate(name)
        where = "not here" if location is None else f"{location.folder} ({location.origin})"
        size = source.size if source.downloads else None
        found.append(NamedData(name.replace("_", "-"), source.description, size, where))
    return [
        *found,
        NamedData("own", "Your own: a table, a folder of client files, a tree of images.", 0, "--data PATH"),
    ]


def is_named_source(data: str | Path) -> bool:
    """Whether this names a data set that has files of its own, and nothing that lies at a path."""
    return str(data).replace("-", "_") in sources.SOURCES and not Path(data).exists()


def load_source(data: str, folder: str | Path) -> Samples:
    """The samples of a named data set whose files are in a folder."""
    return sources.SOURCES[data.replace("-", "_")].load(folder=folder)


def prepare(
    data: str | Path,
    out: str | Path,
    *,
    label: str | None = None,
    client: str | None = None,
    features: Sequence[str] | None = None,
    kind: Kind = "auto",
    group: str | None = None,
    order: str | None = None,
    drop_missing: bool = False,
) -> Path:
    """Fetch a named data set into a folder, or turn a table larger than memory into one whose samples stay on disk.

    Of a table file, or a folder of table files of clients, only the numbers of clients, groups and labels, what
    orders rows, and fingerprints are ever in memory; the result is what `prepared` opens. A CSV file's first 16 MB
    decide what its columns hold. Returns the folder with the files.
    """
    if is_named_source(data):
        Path(out).mkdir(parents=True, exist_ok=True)
        return fetched(sources.SOURCES[str(data).replace("-", "_")], Path(out)).folder
    if label is None:
        raise UsageError("Which column is to be predicted?", "Name it with label.")
    return prepare_table(
        data, out, label=label, client=client, features=features, kind=kind, group=group, order=order,
        drop_missing=drop_missing,
    )  # fmt: skip
