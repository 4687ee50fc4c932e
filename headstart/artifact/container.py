"""The file itself: safetensors whose header is checked against the file before any of its arrays is read.

A safetensors file is eight bytes with the length of a header, the header as JSON, and the bytes of all tensors one
after the other. Ours has two entries of metadata: ``headstart``, which says in JSON what the tensors are, and
``digest``, the SHA-256 of that text, of the tensors' names, types and shapes, and of their bytes.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import jax.numpy as jnp
import numpy as np

from headstart.errors import UsageError
from headstart.simulate.files import write_bytes

__all__ = ["read_container", "write_container"]

DESCRIPTION, DIGEST = "headstart", "digest"
MAX_HEADER = 2**25
"""The longest header that is read, in bytes."""
MAX_TENSORS = 10_000
MAX_NAME = 500
MAX_AXES = 16
LENGTH_BYTES = 8
ALIGNMENT = 8

TYPES = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(jnp.bfloat16),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"),
    "I8": np.dtype("i1"),
    "U64": np.dtype("<u8"),
    "U32": np.dtype("<u4"),
    "U16": np.dtype("<u2"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}
NAMES = {dtype: name for name, dtype in TYPES.items()}


def write_container(path: Path, arrays: Mapping[str, np.ndarray], description: Mapping[str, Any]) -> str:
    """Write arrays and what is to be said of them; the file appears whole or not at all. Returns its digest."""
    text = json.dumps(description, sort_keys=True, allow_nan=False)
    tensors: dict[str, Any] = {}
    content, start = [], 0
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        if array.dtype not in NAMES:
            raise UsageError(f"{name} holds {array.dtype}, which a model file cannot.", "Use another type.")
        content.append(array.tobytes())
        end = start + len(content[-1])
        shape = list(arrays[name].shape)
        tensors[name] = {"dtype": NAMES[array.dtype], "shape": shape, "data_offsets": [start, end]}
        start = end
    found = _digest(text, tensors)
    for part in content:
        found.update(part)
    metadata = {DESCRIPTION: text, DIGEST: found.hexdigest()}
    header = json.dumps({"__metadata__": metadata, **tensors}).encode()
    header += b" " * (-len(header) % ALIGNMENT)
    if len(header) > MAX_HEADER:
        raise UsageError(f"{path}: what is to be said of the model takes {len(header):,} bytes.", "Use fewer columns.")
    write_bytes(path, b"".join([len(header).to_bytes(LENGTH_BYTES, "little"), header, *content]))
    return metadata[DIGEST]


def read_container(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any], str]:
    """Arrays, what is said of them, and the digest. Whatever is wrong with the file is found and said."""
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            length = int.from_bytes(file.read(LENGTH_BYTES), "little")
            if size < LENGTH_BYTES or length > min(MAX_HEADER, size - LENGTH_BYTES):
                _refuse(path, "its header is longer than the file or than any model file's")
            header = _json(path, file.read(length), "header")
            text, digest, tensors = _checked(path, header, size - LENGTH_BYTES - length)
            content = file.read()
    except FileNotFoundError as error:
        raise UsageError(f"There is no file {path}.", "Check the path.") from error
    except IsADirectoryError as error:
        raise UsageError(
            f"{path} is a folder.", "Name a file, such as DIR/METHOD/model.safetensors of a run."
        ) from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}.", "Check its permissions.") from error
    found = _digest(text, tensors)
    found.update(content)
    if found.hexdigest() != digest:
        _refuse(path, "its contents are not those that its digest was made of")
    description = _json(path, text.encode(), "description")
    return {name: _array(content, **tensor) for name, tensor in tensors.items()}, description, digest


def _refuse(path: Path, reason: str) -> NoReturn:
    raise UsageError(
        f"{path} is not a whole model file: {reason}.", "Get it anew from where it was made: `headstart run` writes it."
    )


def _json(path: Path, text: bytes, what: str) -> dict[str, Any]:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise ValueError("a key is there twice")
        return found

    def number(text: str) -> NoReturn:
        raise ValueError(f"{text} is no number")

    try:
        content = json.loads(text.decode(), object_pairs_hook=once, parse_constant=number)
    except (ValueError, RecursionError) as error:
        _refuse(path, f"its {what} cannot be read ({error})")
    if not isinstance(content, dict):
        _refuse(path, f"its {what} is no table")
    return content


def _checked(path: Path, header: dict[str, Any], size: int) -> tuple[str, str, dict[str, dict[str, Any]]]:
    """The description, the digest and the tensors of a header, once all of them fit the bytes that follow."""
    metadata = header.pop("__metadata__", None)
    if not isinstance(metadata, dict) or set(metadata) != {DESCRIPTION, DIGEST}:
        raise UsageError(
            f"{path} does not say what model it holds.",
            "Give a model.safetensors that `headstart run` or `headstart adapt` wrote.",
        )
    if not all(isinstance(value, str) for value in metadata.values()):
        _refuse(path, "its metadata are no texts")
    if len(header) > MAX_TENSORS:
        _refuse(path, f"it has {len(header):,} tensors, and {MAX_TENSORS:,} are the most")
    spans = sorted((_span(path, name, tensor), name) for name, tensor in header.items())
    end = 0
    for (start, stop), name in spans:
        if start != end:
            _refuse(path, f"the tensor {name!r} does not begin where the one before it ends")
        end = stop
    if end != size:
        _refuse(path, f"its tensors have {end:,} bytes and the file has {size:,} for them")
    return metadata[DESCRIPTION], metadata[DIGEST], header


def _span(path: Path, name: str, tensor: Any) -> tuple[int, int]:
    """Where a tensor's bytes are; as many as its shape and type need."""
    if len(name) > MAX_NAME or not name.isprintable():
        _refuse(path, "a tensor's name is no name")
    if not isinstance(tensor, dict) or set(tensor) != {"dtype", "shape", "data_offsets"}:
        _refuse(path, f"the tensor {name!r} is not described as tensors are")
    shape, offsets = tensor["shape"], tensor["data_offsets"]
    if not isinstance(tensor["dtype"], str) or tensor["dtype"] not in TYPES:
        _refuse(path, f"the tensor {name!r} is of no known type")
    for numbers, most in ((shape, MAX_AXES), (offsets, 2)):
        if not isinstance(numbers, list) or len(numbers) > most or not all(type(n) is int and n >= 0 for n in numbers):
            _refuse(path, f"the tensor {name!r} has a shape or place that is none")
    if len(offsets) != 2 or offsets[1] - offsets[0] != math.prod(shape) * TYPES[tensor["dtype"]].itemsize:
        _refuse(path, f"the tensor {name!r} has another number of bytes than its shape needs")
    return offsets[0], offsets[1]


def _digest(text: str, tensors: Mapping[str, Any]) -> Any:
    """A hash that has been given everything but the tensors' bytes."""
    return hashlib.sha256(json.dumps([text, tensors], sort_keys=True).encode())


def _array(content: bytes, dtype: str, shape: list[int], data_offsets: list[int]) -> np.ndarray:
    start, end = data_offsets
    return np.frombuffer(content[start:end], TYPES[dtype]).reshape(shape)
