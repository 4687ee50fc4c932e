"""A folder with one file a client."""

from collections.abc import Callable
from pathlib import Path

from headstart.data.tables.reading import TABLE_ENDINGS, ChainedSource, Source, ending
from headstart.errors import UsageError

__all__ = ["client_files", "client_source", "has_client_files"]

ENDINGS = (*TABLE_ENDINGS, ".npz")


def has_client_files(path: Path) -> bool:
    """Whether a folder holds files that could be clients'."""
    return any(_is_client_file(child) for child in path.iterdir())


def client_files(path: Path) -> dict[str, Path]:
    """The files of a folder by client, whose name is the file's without its ending."""
    if not path.is_dir():
        there = "is a file" if path.exists() else "is not there"
        raise UsageError(f"{path} {there}; a folder with one file a client is needed.", "Use table() for one file.")
    files: dict[str, Path] = {}
    seen: dict[str, Path] = {}
    for file in sorted(child for child in path.iterdir() if _is_client_file(child)):
        name = file.name[: -len(ending(file))].strip()
        # Names that differ in case or blanks are most likely one client's; on some systems they are one file.
        if (twin := seen.setdefault(name.casefold(), file)) is not file:
            raise UsageError(
                f"{twin} and {file.name} are both of client {name!r}.", "Join them into one file, or rename one."
            )
        files[name] = file
    if not files:
        raise UsageError(f"{path} has no file of a client.", f"Add files that end in {', '.join(ENDINGS)}.")
    mixed = {file.suffix.lower() == ".npz" for file in files.values()}
    if len(mixed) > 1:
        raise UsageError(f"{path} has npz files and tables.", "Keep to one of them.")
    return files


def client_source(path: Path, column: str, read: Callable[[Path], Source]) -> ChainedSource:
    """The tables of a folder as one, with a column that says whose each row is."""
    files = client_files(path)
    npz = next((file for file in files.values() if file.suffix.lower() == ".npz"), None)
    if npz is not None:
        raise UsageError(f"{npz} is no table.", "Save it as Parquet.")
    return ChainedSource(path.name, [read(file) for file in files.values()], column, list(files))


def _is_client_file(path: Path) -> bool:
    return path.is_file() and ending(path) in ENDINGS and not path.name.startswith(".")
