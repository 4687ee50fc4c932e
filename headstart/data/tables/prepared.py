"""Data larger than memory: a table streamed into a folder of arrays, which stay on disk while clients train."""

import json
import os
import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from headstart.data.samples import Samples, TargetScale
from headstart.data.tables.encoding import Encoding
from headstart.data.tables.intake import take_in
from headstart.data.tables.labels import Kind
from headstart.data.tables.reading import Source
from headstart.data.tables.roles import Roles
from headstart.errors import UsageError

__all__ = ["MANIFEST", "is_prepared", "open_prepared", "prepared_roles", "write_prepared"]

MANIFEST = "manifest.json"
FORMAT = "headstart prepared data 2"


class MatrixFile:
    """Rows in a ``.npy`` file that grows."""

    def __init__(self, path: Path, columns: int):
        self.path, self.columns, self.rows = path, columns, 0
        self.file = path.open("wb+")
        self._header()

    def _header(self) -> None:
        # NumPy leaves room in the header for the number of rows to grow.
        self.file.seek(0)
        shape = (self.rows, self.columns)
        np.lib.format.write_array_header_1_0(self.file, {"descr": "<f4", "fortran_order": False, "shape": shape})

    def block(self, rows: int) -> np.ndarray:
        """Room for the next rows."""
        return np.empty((rows, self.columns), np.float32)

    def put(self, block: np.ndarray) -> None:
        """The room, filled."""
        self.file.write(block.data)
        self.rows += len(block)

    def whole(self) -> np.ndarray:
        """All rows that were put."""
        self._header()
        self.file.close()
        return np.load(self.path, mmap_mode="r+") if self.rows else np.zeros((0, self.columns), np.float32)


def write_prepared(
    source: Source, dest: Path, roles: Roles, kind: Kind, drop_missing: bool, notes: tuple[str, ...] = ()
) -> Path:
    """Stream a source into a folder of arrays, which is either whole or not there; notes are kept with it."""
    if dest.exists():
        raise UsageError(f"{dest} exists already.", "Remove it, or choose another folder.")
    dest.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{dest.name}.", suffix=".partial", dir=dest.parent))
    try:
        _write(source, temporary, roles, kind, drop_missing, notes)
        temporary.chmod(0o755)
        temporary.rename(dest)
    except OSError as error:
        raise UsageError(
            f"{dest} cannot be written: {error.strerror or error}.", "Make room or mend permissions."
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return dest


def _write(source: Source, folder: Path, roles: Roles, kind: Kind, drop_missing: bool, notes: tuple[str, ...]) -> None:
    taken = take_in(source, roles, MatrixFile(folder / "x.npy", len(roles.features)), kind, drop_missing)
    samples = taken.samples(source.name)
    np.save(folder / "y.npy", samples.y)
    np.save(folder / "fingerprints.npy", samples.fingerprints)
    columns: dict[str, Any] = {}
    for number, (name, values) in enumerate(taken.columns.items()):
        columns[name] = None
        if not isinstance(values, np.ndarray):
            columns[name], values = [str(v) for v in values.dictionary.to_pylist()], values.indices.to_numpy()
        np.save(folder / f"column{number}.npy", values)
    if isinstance(taken.x, np.memmap):
        taken.x.flush()
    manifest = {
        "format": FORMAT,
        "name": source.name,
        "rows": len(samples),
        "roles": {"client": roles.client, "label": roles.label, "group": roles.group, "order": roles.order},
        "classes": samples.classes,
        "target": asdict(samples.target),
        "columns": columns,
        "encoding": taken.encoding.to_json(),
        "notes": [*taken.notes, *notes],
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())


def is_prepared(path: Path) -> bool:
    """Whether a folder was made by `prepare`."""
    return (path / MANIFEST).is_file()


def open_prepared(path: str | Path) -> Samples:
    """A prepared folder's samples; the arrays stay on disk, and the transform is not fitted yet."""
    path = Path(path)
    manifest = _manifest(path)
    columns: dict[str, np.ndarray | pa.DictionaryArray] = {}
    for number, (name, values) in enumerate(manifest["columns"].items()):
        stored = _array(path, f"column{number}", manifest["rows"])
        columns[name] = (
            stored if values is None else pa.DictionaryArray.from_arrays(pa.array(np.asarray(stored)), pa.array(values))
        )
    classes = manifest["classes"]
    return Samples(
        manifest["name"],
        _array(path, "x", manifest["rows"]),
        _array(path, "y", manifest["rows"]),
        None if classes is None else tuple(classes),
        columns=columns,
        transform=Encoding.from_json(manifest["encoding"]),
        target=TargetScale(**manifest["target"]),
        known_fingerprints=_array(path, "fingerprints", manifest["rows"]),
    )


def prepared_roles(path: Path) -> tuple[Roles, tuple[str, ...]]:
    """Which columns a prepared folder was made with, and what was to be said."""
    manifest = _manifest(path)
    encoding = Encoding.from_json(manifest["encoding"])
    features = tuple(column.name for column in encoding.columns)
    return Roles(**manifest["roles"], features=features), tuple(manifest["notes"])


def _manifest(path: Path) -> dict[str, Any]:
    if not is_prepared(path):
        raise UsageError(f"{path} is no folder of prepared data.", "Make one with prepare(), or give the table itself.")
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
    except ValueError as error:
        raise UsageError(f"{path / MANIFEST} cannot be read: {error}.", "Prepare the data again.") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise UsageError(f"{path / MANIFEST} does not describe prepared data.", "Prepare the data again.")
    return manifest


def _array(path: Path, name: str, rows: int) -> np.ndarray:
    file = path / f"{name}.npy"
    try:
        array = np.load(file, mmap_mode="r")
    except (OSError, ValueError) as error:
        raise UsageError(f"{file} cannot be read: {error}.", "Prepare the data again.") from error
    if len(array) != rows:
        raise UsageError(f"{file} has {len(array)} rows rather than {rows}.", "Prepare the data again.")
    return array
