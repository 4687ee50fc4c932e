"""Sockets in folders of any depth."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["SOCKET_LIMIT", "can_name", "socket_name"]

SOCKET_LIMIT = 100
"""Bytes of the longest path that a socket can have everywhere."""


def can_name(path: Path) -> bool:
    """Whether a socket can be at this path."""
    return len(os.fsencode(path)) <= SOCKET_LIMIT or sys.platform == "linux"


@contextmanager
def socket_name(path: Path) -> Iterator[str]:
    """By which name to bind or connect a socket at this path; Linux has a short one for it while its folder is open."""
    if len(os.fsencode(path)) <= SOCKET_LIMIT or sys.platform != "linux":
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
