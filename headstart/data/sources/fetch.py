"""Download a public file: mirrors, resumption, checksum, and nothing under the final name until it is right."""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pooch
import requests
from filelock import FileLock
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from urllib3.exceptions import HTTPError

from headstart.data.sources.source import Remote
from headstart.errors import UsageError

__all__ = ["fetch", "one_at_a_time"]

ATTEMPTS = 5
"""How often in a row one mirror is asked before the next."""
WAIT_SECONDS = 0.5
"""Before the second attempt; doubled for each one after."""
TIMEOUT = (10, 60)
"""Seconds to connect, and to wait for more."""
CHUNK_BYTES = 2**18


class _CutOff(Exception):
    """A transfer ended early; what has arrived is on the disk."""


@contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Make a folder and keep other processes from downloading into it."""
    with ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(FileLock(folder / ".lock"))
        except OSError as error:
            raise _unwritable(folder, error) from error
        yield


def fetch(remote: Remote, folder: Path) -> Path:
    """A public file's path in a folder, once it is there and has the right checksum."""
    failures = []
    for url in remote.urls:
        for _ in range(2):
            transfer = _Transfer(folder / f"{remote.name}.partial", remote)
            try:
                return Path(pooch.retrieve(url, remote.checksum, remote.name, folder, downloader=transfer))
            except (requests.RequestException, HTTPError, _CutOff) as error:
                failures.append(f"{url}: {error}")
                break
            except OSError as error:
                raise _unwritable(folder, error) from error
            except UsageError:
                raise
            except ValueError as error:
                # pooch says which checksum it expected and which it got, and has removed the file.
                failures.append(f"{url}: {error}")
                if not transfer.resumed:
                    break  # else the mirror may be right, and what was there before it wrong
    kept = folder / f"{remote.name}.partial"
    remedy = "Check the network, or get the file in another way and put it into that folder."
    if kept.exists():
        remedy = (
            f"Try again: the {kept.stat().st_size:,} bytes that arrived are kept, and it goes on from there. {remedy}"
        )
    reasons = "\n    ".join(failures)
    raise UsageError(f"{remote.name} could not be downloaded into {folder}:\n    {reasons}", remedy)


def _unwritable(folder: Path, error: OSError) -> UsageError:
    return UsageError(f"{folder} cannot be written: {error}.", "Set HEADSTART_CACHE to a folder that can.")


class _Transfer:
    """Pooch's way to download, taking up where an earlier attempt ended."""

    def __init__(self, partial: Path, remote: Remote):
        self.partial, self.remote = partial, remote
        self.resumed = self.advanced = False

    def __call__(self, url: str, output_file: str, _: Any, check_only: bool = False) -> None:
        console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        with Progress(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal) as progress:
            bar = progress.add_task(self.remote.name, total=self.remote.size)
            for attempt in range(ATTEMPTS):
                try:
                    self._append(url, lambda done: progress.update(bar, completed=done))
                    break
                except (requests.ConnectionError, requests.Timeout, HTTPError, _CutOff):
                    # A mirror that has not sent a single byte is not worth the wait.
                    if attempt == ATTEMPTS - 1 or not self.advanced:
                        raise
                    time.sleep(WAIT_SECONDS * 2**attempt)
        self.partial.replace(output_file)

    def _have(self) -> int:
        return self.partial.stat().st_size if self.partial.exists() else 0

    def _append(self, url: str, report: Callable[[int], object]) -> None:
        have = self._have()
        # The file as it is: a server must not compress it, nor may a .gz be unpacked on the way.
        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
        with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as response:
            if response.status_code == 416:
                # No bytes beyond those here: either the file is complete, or what is here is of another one.
                self.resumed = True
                if response.headers.get("Content-Range") != f"bytes */{have}":
                    self.partial.unlink()
                    self._append(url, report)
                return
            response.raise_for_status()
            start = _start(response)
            if start not in (0, have):
                raise _CutOff(f"the server continued at byte {start} instead of {have}")
            self.resumed = start > 0
            length = response.headers.get("Content-Length")
            total = start + int(length) if length else self.remote.size
            have = self._write(response, "ab" if start else "wb", start, report)
            if have < total:
                raise _CutOff(f"the connection was cut after {have:,} of {total:,} bytes")

    def _write(self, response: requests.Response, mode: str, have: int, report: Callable[[int], object]) -> int:
        stream = response.raw.stream(CHUNK_BYTES, decode_content=False)
        try:
            with self.partial.open(mode) as file:
                for chunk in _until_cut(stream):
                    file.write(chunk)
                    have += len(chunk)
                    self.advanced = True
                    report(have)
        except OSError as error:
            raise UsageError(
                f"{self.partial} cannot be written after {have:,} of {self.remote.size:,} bytes: {error.strerror}.",
                "Free some space, or set HEADSTART_CACHE to a folder on another disk. What has arrived is kept.",
            ) from error
        return have


def _until_cut(stream: Iterator[bytes]) -> Iterator[bytes]:
    """Chunks up to a broken connection: an ``OSError`` of the loop that takes them is the disk's, not the network's."""
    try:
        yield from stream
    except (HTTPError, requests.RequestException, ConnectionError, TimeoutError):
        return


def _start(response: requests.Response) -> int:
    """The first byte that a response carries; a server that knows no ranges sends the whole file."""
    found = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    return int(found[1]) if response.status_code == 206 and found else 0
