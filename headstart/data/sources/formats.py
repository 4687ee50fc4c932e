"""Read the file formats that data sets are published in, trusting none of them."""

import gzip
import pickle
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any

import numpy as np

from headstart.errors import UsageError

__all__ = ["idx", "members", "npz", "reading", "unpickled", "within"]

UNREADABLE = (
    OSError,
    EOFError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    zlib.error,
    zipfile.BadZipFile,
    tarfile.TarError,
    pickle.UnpicklingError,
)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Say which file it was that could not be read."""
    try:
        yield
    except UsageError:
        raise
    except UNREADABLE as error:
        raise UsageError(
            f"{path} cannot be read: {str(error) or type(error).__name__}.",
            "It may be damaged or cut short. Delete it, and get it again.",
        ) from error


def npz(path: Path, *names: str) -> dict[str, np.ndarray]:
    """Arrays of an ``.npz`` file by name."""
    with reading(path), np.load(path, allow_pickle=False) as file:
        if isinstance(file, np.ndarray):
            raise ValueError("it is a single array and no .npz archive")
        missing = [name for name in names if name not in file.files]
        if missing:
            raise UsageError(
                f"{path} lacks {', '.join(missing)}; it has {', '.join(sorted(file.files)) or 'nothing'}.",
                f"It needs the arrays {', '.join(names)}.",
            )
        return {name: file[name] for name in names}


IDX_UNSIGNED_BYTE = 8


def idx(path: Path, dimensions: int) -> np.ndarray:
    """An array of bytes in MNIST's IDX format, compressed if its name ends in ``.gz``.

    Two zero bytes, the type, the number of dimensions, each dimension as a big-endian integer, and the bytes.
    """
    with reading(path), (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
        data = file.read()
        head = 4 + 4 * dimensions
        if len(data) < head:
            raise ValueError(f"{len(data)} bytes are too few for an IDX file")
        if data[:4] != bytes((0, 0, IDX_UNSIGNED_BYTE, dimensions)):
            raise ValueError(f"it begins with {data[:4].hex(' ')} and not with 00 00 08 {dimensions:02x}")
        shape = tuple(int(n) for n in np.frombuffer(data, ">u4", dimensions, 4))
        values = np.frombuffer(data, np.uint8, offset=head)
        if values.size != np.prod(shape, dtype=np.int64):
            raise ValueError(f"{values.size} bytes follow the header, but its shape is {shape}")
        return values.reshape(shape)


def members(path: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, IO[bytes]]]:
    """Files of a folder, a ``.zip`` or a ``.tar.gz``, each by its path within; archives are never unpacked to disk."""
    if path.is_dir():
        for file in sorted(path.rglob("*")):
            name = file.relative_to(path).as_posix()
            if wanted(name) and file.is_file():
                with file.open("rb") as opened:
                    yield name, opened
    elif path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            for name in sorted(filter(wanted, archive.namelist())):
                with archive.open(name) as unzipped:
                    yield name, unzipped
    else:
        with tarfile.open(path, "r|gz") as tar:  # as a stream: going back would unpack everything again
            for member in tar:
                if wanted(member.name) and (unpacked := tar.extractfile(member)) is not None:
                    yield member.name, unpacked


def within(path: Path, names: tuple[str, ...], read: Callable[[IO[bytes]], Any]) -> dict[str, Any]:
    """What the files of these names say: those directly in a folder, or those anywhere in an archive."""
    with reading(path):
        found = {}
        if path.is_dir():
            for name in names:
                with reading(path / name), (path / name).open("rb") as file:
                    found[name] = read(file)
            return found
        for member, stream in members(path, lambda member: PurePosixPath(member).name in names):
            found[PurePosixPath(member).name] = read(stream)
        missing = [name for name in names if name not in found]
        if missing:
            raise ValueError(f"it lacks {', '.join(missing)}")
        return found


def unpickled(stream: IO[bytes]) -> Mapping[str, Any]:
    """A pickled dictionary of plain values and NumPy arrays; anything else in it is refused and never called."""
    content = _PlainUnpickler(stream, encoding="bytes").load()
    if not isinstance(content, dict):
        raise ValueError(f"it holds a {type(content).__name__} and no dictionary")
    return {key.decode() if isinstance(key, bytes) else str(key): value for key, value in content.items()}


def _latin1_bytes(text: str, encoding: str) -> bytes:
    """How pickles of the old protocols spell bytes; no other codec is looked up."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"it asks for the codec {encoding!r}")
    return text.encode("latin1")


class _PlainUnpickler(pickle.Unpickler):
    """Builds numbers, strings, bytes, lists, dictionaries and NumPy arrays, and looks nothing else up."""

    def find_class(self, module: str, name: str) -> Any:
        if module == "numpy" and name in ("ndarray", "dtype"):
            return getattr(np, name)
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "_reconstruct":
            return _reconstruct
        if (module, name) == ("_codecs", "encode"):
            return _latin1_bytes
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no data set needs; it may be malicious")


_reconstruct = np.empty(0).__reduce__()[0]
"""NumPy's own function that begins an array; where it lives has changed with NumPy's versions."""
