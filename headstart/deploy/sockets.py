"""Ports that are free, and sockets in folders of any depth."""

import errno
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headstart.errors import UsageError

__all__ = ["SOCKET_LIMIT", "can_name", "check_free", "socket_name"]

SOCKET_LIMIT = 100
"""Bytes of the longest path that a socket can have everywhere."""
ENDING_SECONDS = 10.0
"""For so long the processes of a server or site that was killed may still be ending."""


def check_free(host: str, port: int, setting: str) -> None:
    """Refuse a port that another process has, and keeps; ``setting`` says where it was chosen."""
    end = time.monotonic() + ENDING_SECONDS
    while (error := _taken(host, port)) is not None:
        if error.errno != errno.EADDRINUSE or time.monotonic() > end:
            raise UsageError(
                f"Port {port} of {host} cannot be used: {error.strerror}.",
                f"End what is using it, or choose another in {setting}.",
            ) from error
        time.sleep(0.2)


def _taken(host: str, port: int) -> OSError | None:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error
    return None


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
