"""What only one process at a time may do with a folder."""

from pathlib import Path

from filelock import FileLock, Timeout

from headstart.errors import CannotWrite, UsageError

__all__ = ["has", "sole"]

PATIENCE = 0.5
"""Seconds for whoever only looks whether there is one."""


def sole(folder: Path, what: str) -> FileLock:
    """A lock that shows that a folder has such a process; it ends with the process, whatever way that ends."""
    lock = FileLock(folder / f".{what}.lock")
    try:
        lock.acquire(timeout=PATIENCE)
    except Timeout as error:
        raise UsageError(f"{folder} has a {what} already, in another process.", "Stop that one first.") from error
    except OSError as error:
        raise CannotWrite(
            f"{folder} cannot be written to: {error.strerror}.", "Mend its permissions, or run this as its owner."
        ) from error
    return lock


def has(folder: Path, what: str) -> bool:
    """Whether a folder has such a process now; yes, if that cannot be told."""
    try:
        with FileLock(folder / f".{what}.lock", timeout=0):
            return False
    except (Timeout, OSError):
        return True
