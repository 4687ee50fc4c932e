"""Files that are either whole or not there: every write goes to a temporary name and is renamed into place."""

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from headstart.errors import CannotWrite, UsageError

__all__ = [
    "PARTIAL",
    "in_structure_of",
    "named_leaves",
    "read_arrays",
    "read_tree",
    "write_arrays",
    "write_bytes",
    "write_json",
    "write_parquet",
    "write_tree",
]

PARTIAL = ".*.partial"
"""What files look like that a killed process was writing."""
TYPE = "dtype of "
"""Before an array's name in the metadata: which type its bits are of, where safetensors may not know it."""


def write_json(path: Path, content: Any, indent: int | None = 2) -> None:
    """Write JSON, indented for people unless ``indent`` is ``None``."""
    _atomically(path, lambda temporary: temporary.write_text(json.dumps(content, indent=indent) + "\n"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write bytes as they are."""
    _atomically(path, lambda temporary: temporary.write_bytes(content))


def write_parquet(path: Path, table: pa.Table) -> None:
    """Write a table."""
    _atomically(path, lambda temporary: pq.write_table(table, temporary))


def write_arrays(path: Path, arrays: dict[str, np.ndarray], metadata: dict[str, str]) -> None:
    """Write named arrays as safetensors; those of types that NumPy does not have itself, such as bfloat16, as bits."""
    foreign = {name: array.dtype for name, array in arrays.items() if array.dtype.isbuiltin != 1}
    bits = {name: arrays[name].view(f"u{dtype.itemsize}") for name, dtype in foreign.items()}
    types = {f"{TYPE}{name}": dtype.name for name, dtype in foreign.items()}
    _atomically(path, lambda temporary: save_file(arrays | bits, temporary, metadata=metadata | types))


def read_arrays(path: Path, prefix: str = "") -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Read named arrays back, those whose names begin so."""
    with safe_open(path, framework="numpy") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys() if name.startswith(prefix)}  # noqa: SIM118
        metadata = file.metadata() or {}
    for key in [key for key in metadata if key.startswith(TYPE)]:
        name, dtype = key.removeprefix(TYPE), np.dtype(metadata.pop(key))
        if name in arrays:
            arrays[name] = arrays[name].view(dtype)
    return arrays, metadata


def write_tree(path: Path, tree: Any, metadata: dict[str, str]) -> None:
    """Write a pytree's arrays by their paths, as safetensors."""
    write_arrays(path, {name: np.asarray(leaf) for name, leaf in named_leaves(tree)}, metadata)


def read_tree(path: Path, template: Any) -> tuple[Any, dict[str, str]]:
    """Read arrays back into the structure of ``template``, checking that paths, shapes and types agree."""
    stored, metadata = read_arrays(path)
    return in_structure_of(template, stored, path), metadata


def in_structure_of(template: Any, stored: dict[str, np.ndarray], path: Path) -> Any:
    """Named arrays in the structure of ``template``, once paths, shapes and types agree."""
    wanted = named_leaves(template)
    if set(stored) != {name for name, _ in wanted}:
        differing = sorted(set(stored) ^ {name for name, _ in wanted})
        raise UsageError(
            f"{path} holds other arrays than this model has; the first that differs is {differing[0]}.",
            "Resume with the configuration that the run was started with.",
        )
    for name, leaf in wanted:
        if stored[name].shape != leaf.shape or stored[name].dtype != leaf.dtype:
            raise UsageError(
                f"{path}: {name} is {stored[name].dtype}{stored[name].shape}, "
                f"but this model wants {leaf.dtype}{leaf.shape}.",
                "Resume with the configuration that the run was started with.",
            )
    # Copied: JAX may otherwise use NumPy's own memory, which a program that is given the buffers would write to.
    leaves = [jax.numpy.array(stored[name], copy=True) for name, _ in wanted]
    return jax.tree.unflatten(jax.tree.structure(template), leaves)


def named_leaves(tree: Any) -> list[tuple[str, Any]]:
    """Every array of a pytree with its path as a name."""
    return [(jax.tree_util.keystr(path), leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)]


def _atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Write beside ``path``, flush to the disk, rename, and flush the rename: kill -9 leaves old or new, never half."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".partial", dir=path.parent)
        temporary = Path(name)
        try:
            write(temporary)
            os.fsync(handle)
            temporary.chmod(0o644)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        finally:
            os.close(handle)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except (OSError, SafetensorError) as error:  # safetensors tells of a full disk in its own way
        reason = error.strerror if isinstance(error, OSError) else None
        raise CannotWrite(
            f"{path} cannot be written: {reason or error}.",
            "Make room or mend the permissions; what was written before is whole and can be resumed.",
        ) from error
