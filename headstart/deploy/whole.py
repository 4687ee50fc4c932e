"""Small files that are either whole or not there, for processes that do without JAX and arrays."""

import os
import tempfile
from pathlib import Path

from headstart.errors import CannotWrite, UsageError

__all__ = ["write_secret", "write_whole"]


def write_whole(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Write beside ``path`` and rename into place: kill -9 leaves the old file or the new one."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".partial", dir=path.parent)
        temporary = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.chmod(mode)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise CannotWrite(
            f"{path} cannot be written: {error.strerror}.", "Make room or mend the permissions, and try again."
        ) from error


def write_secret(path: Path, content: bytes) -> None:
    """Write a new file that only its owner may read, from its first byte on; one that is there is never replaced."""
    if path.exists():
        raise UsageError(f"{path} is there already.", "Keep it, or remove the file first.")
    write_whole(path, content, mode=0o600)
