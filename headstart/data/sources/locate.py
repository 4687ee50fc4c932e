"""Find a source's files: in a folder that the user names, then in the cache, then by download into the cache."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, TypeVar

from headstart.data.sources.source import Location, Source
from headstart.errors import UsageError

__all__ = ["cache_folder", "contents", "fetched", "find"]

Content = TypeVar("Content")
Origin = Literal["folder", "HEADSTART_DATA", "cache"]


def cache_folder() -> Path:
    """Where downloads are kept: HEADSTART_CACHE, or a folder in the user's own cache."""
    named = os.environ.get("HEADSTART_CACHE")
    return Path(named).expanduser() if named else Path.home() / ".cache" / "headstart" / "data"


def find(
    source: Source[Content], folder: str | Path | None = None, cache: Path | None = None
) -> Location[Content] | None:
    """Where a source's files are, without opening or downloading any; a folder that is given is the only one looked in.

    ``cache`` is where downloads are looked for, if not in `cache_folder`.

    >>> import tempfile
    >>> from headstart.data.sources import SOURCES
    >>> print(find(SOURCES["mnist"], tempfile.mkdtemp()))
    None
    """
    for origin, root in _roots(folder, cache):
        for place in source.folders(root):
            for form in source.forms:
                if not form.missing(place):
                    return Location(origin, place, form)
    return None


def contents(source: Source[Content], folder: str | Path | None = None) -> Content:
    """What a source's files say; they are downloaded if they are nowhere and no folder was given."""
    found = find(source, folder)
    if found is None and folder is not None:
        raise UsageError(
            f"{source.name}: its files are not in {folder}.{_almost(source, folder)}", _ways(source, folder)
        )
    if found is None:
        found = fetched(source, cache_folder())
    return found.form.read(found.folder)


def fetched(source: Source[Content], cache: Path) -> Location[Content]:
    """Where a source's files are, once they have been downloaded into ``cache`` if they are nowhere else."""
    found = find(source, cache=cache)
    if found is None:
        _download(source, cache)
        found = find(source, cache=cache)
    if found is None:
        raise AssertionError(f"the downloads of {source.name} are none of its forms")
    return found


def _roots(folder: str | Path | None, cache: Path | None = None) -> Iterator[tuple[Origin, Path]]:
    named = os.environ.get("HEADSTART_DATA")
    if folder is not None:
        yield "folder", _folder(Path(folder).expanduser(), "the folder given")
        return
    if named:
        yield "HEADSTART_DATA", _folder(Path(named).expanduser(), "HEADSTART_DATA")
    yield "cache", _folder(cache or cache_folder(), "the cache (HEADSTART_CACHE)")


def _folder(path: Path, what: str) -> Path:
    if path.exists() and not path.is_dir():
        raise UsageError(
            f"{path} is a file, but {what} has to be a folder.", f"Name the folder it is in: {path.parent}"
        )
    return path


def _download(source: Source[Content], cache: Path) -> None:
    """Get a source's public files into the cache, one process at a time."""
    target = cache / source.name
    reason = None
    if not source.downloads:
        reason = f"it has to be fetched by hand: {source.by_hand}"
    elif os.environ.get("HEADSTART_OFFLINE", "").lower() not in ("", "0", "false", "no"):
        reason = "HEADSTART_OFFLINE forbids to download it"
    if reason:
        looked = ", ".join(str(root) for _, root in _roots(None, cache))
        raise UsageError(f"{source.name} is in none of {looked}, and {reason}.", _ways(source, target))
    # Importing what downloads takes a fifth of a second, and most calls find their files.
    from headstart.data.sources.fetch import fetch, one_at_a_time

    with one_at_a_time(target):
        if find(source, cache=cache) is None:
            for remote in source.downloads:
                fetch(remote, target)


def _ways(source: Source[Content], folder: str | Path) -> str:
    forms = "\n".join(f"    - {form}" for form in source.forms)
    urls = "".join(f"\n    {remote.urls[0]}" for remote in source.downloads)
    origin = f"\n  The public files are:{urls}" if urls else f"\n  {source.by_hand}" if source.by_hand else ""
    below = ", ".join((source.name, *source.subfolders))
    return f"Put one of these into {folder} (or below it, into one of {below}):\n{forms}{origin}"


def _almost(source: Source[Content], folder: str | Path) -> str:
    """Which files are missing from a form that is there in part."""
    if not Path(folder).expanduser().exists():
        return " There is no such folder."
    for place in source.folders(Path(folder).expanduser()):
        for form in source.forms:
            missing = form.missing(place)
            if len(missing) < len(form.files):
                return f" {place} lacks {', '.join(missing)}."
    return ""
