"""What happens in a federation, one JSON object per line, for whoever watches it or asks afterwards."""

import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

__all__ = ["Events", "read_events"]

FILE = "events.jsonl"


class Events:
    """The log of a server; without a folder nothing is written, and all is kept in ``told``."""

    def __init__(self, folder: Path | None = None):
        self._path = None if folder is None else folder / FILE
        self.told: list[dict[str, Any]] = []
        self._rest = b""
        if self._path is not None and self._path.exists():
            _end_last_line(self._path)

    def tell(self, event: str, **about: Any) -> None:
        """Something has happened."""
        line = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": event, **about}
        if self._path is None:
            self.told.append(line)
            return
        content = self._rest + (json.dumps(line) + "\n").encode()
        try:
            # One write of one line: readers see it whole or not at all.
            handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                written = os.write(handle, content)
            finally:
                os.close(handle)
        except OSError as error:
            # What is told is no reason to fail: a full disk is for whoever needs it for more than a log.
            print(f"{line} could not be logged: {error.strerror}", file=sys.stderr, flush=True)
            return
        self._rest = b"" if written == len(content) else b"\n"  # of a line that was cut short there


def read_events(folder: Path) -> list[dict[str, Any]]:
    """All that has been told so far; a line that a killed server has not ended is left out."""
    path = folder / FILE
    if not path.exists():
        return []
    events = []
    for line in path.read_text(errors="replace").splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict):
            events.append(event)
    return events


def _end_last_line(path: Path) -> None:
    """A killed server may have left half a line, to which the next would be added."""
    with path.open("rb+") as file:
        if file.seek(0, os.SEEK_END):
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")
