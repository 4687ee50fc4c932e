"""Which run is this: digests of all that decides a run, so that no other one goes on from its checkpoint."""

import dataclasses
import enum
import functools
import hashlib
import re
import types
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from headstart.data import Federation, shared_clients
from headstart.errors import UsageError

__all__ = ["Identity", "data_digest", "digest", "refuse_another"]

Identity = Mapping[str, str]
"""A digest for each thing that decides a run, such as its data, by what people call it."""

DIGITS = 16
MAPPED_BYTES = 2**26
"""How much is read of an array that stays on disk: evenly spaced blocks, the first and the last among them."""
BLOCK_BYTES = 2**20
ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def digest(thing: Any) -> str:
    """The same for equal things in every process, and another for any that differs.

    Arrays count by their contents, objects by their type and fields, functions by their code and by what they
    close over.

    >>> digest({"lr": 0.1}) == digest({"lr": 0.1}), digest({"lr": 0.1}) == digest({"lr": 0.2})
    (True, False)
    """
    described = _Description()
    described.add(thing)
    return described.hash.hexdigest()[:DIGITS]


def data_digest(federation: Federation) -> str:
    """Of the clients, who they are and what they have; however their samples came to be dealt out."""
    shared = shared_clients(federation)
    if shared is not None:
        return shared.digest
    tasks = federation.tasks
    return digest(
        (federation.clients, federation.names, federation.total, federation.trained, tasks and data_digest(tasks))
    )


def refuse_another(found: Identity, wanted: Identity, where: Any) -> None:
    """Raise if a checkpoint was left by another run than the one that wants to go on from it."""
    differing = sorted(name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name))
    if differing:
        raise UsageError(
            f"{where} was left by another run: it differs in {', '.join(differing)}.",
            "Go on with what that run was started with, or start anew in another folder.",
        )


class _Description:
    """A hash that things are written to, each with its kind, so that no two different ones are written alike."""

    def __init__(self) -> None:
        self.hash = hashlib.sha256()
        self._open: set[int] = set()

    def add(self, thing: Any) -> None:
        if id(thing) in self._open:
            self._write("again")  # a function that closes over itself, say
            return
        self._open.add(id(thing))
        self._add(thing)
        self._open.discard(id(thing))

    def _add(self, thing: Any) -> None:
        if thing is None or isinstance(thing, (bool, int, float, complex, str, bytes)):
            self._write(type(thing).__name__, repr(thing))
        elif isinstance(thing, (np.ndarray, np.generic, jax.Array)):
            self._array(thing)
        elif isinstance(thing, enum.Enum):
            self._write("enum", str(thing))
        elif isinstance(thing, type):
            self._write("type", _name(thing))
        elif isinstance(thing, functools.partial):
            self._parts("partial", (thing.func, thing.args, thing.keywords))
        elif isinstance(thing, types.MethodType):
            self._parts("method", (thing.__func__, thing.__self__))
        elif isinstance(thing, types.FunctionType):
            cells = [cell.cell_contents for cell in thing.__closure__ or ()]
            self._parts("function", (_name(thing), thing.__code__, cells, thing.__defaults__, thing.__kwdefaults__))
        elif isinstance(thing, types.CodeType):
            self._parts("code", (thing.co_code, thing.co_names, thing.co_consts))
        elif hasattr(thing, "__wrapped__"):
            self._parts("wrapped", (thing.__wrapped__,))
        elif isinstance(thing, Mapping):
            self._parts("mapping", [part for item in thing.items() for part in item])
        elif isinstance(thing, (set, frozenset)):
            self._parts("set", sorted(digest(part) for part in thing))
        elif isinstance(thing, (list, tuple)):
            self._parts(_name(type(thing)), thing)
        elif dataclasses.is_dataclass(thing):
            self._fields(thing, {field.name: getattr(thing, field.name) for field in dataclasses.fields(thing)})
        elif ADDRESS.search(text := repr(thing)) and hasattr(thing, "__dict__"):
            self._fields(thing, vars(thing))
        else:
            self._write(_name(type(thing)), ADDRESS.sub("", text))

    def _fields(self, thing: Any, fields: Mapping[str, Any]) -> None:
        self._parts(_name(type(thing)), [part for name in sorted(fields) for part in (name, fields[name])])

    def _parts(self, kind: str, parts: Any) -> None:
        self._write(kind, str(len(parts)))
        for part in parts:
            self.add(part)

    def _array(self, array: Any) -> None:
        if isinstance(array, jax.Array) and jax.numpy.issubdtype(array.dtype, jax.dtypes.prng_key):
            array = jax.random.key_data(array)
        values = array if isinstance(array, np.memmap) else np.asarray(array)
        self._write("array", str(values.dtype), str(values.shape))
        if isinstance(values, np.memmap) and values.nbytes > MAPPED_BYTES:
            rows = max(1, BLOCK_BYTES * len(values) // values.nbytes)
            for start in np.linspace(0, len(values) - rows, MAPPED_BYTES // BLOCK_BYTES).astype(int):
                self.hash.update(np.ascontiguousarray(values[start : start + rows]).data.cast("B"))
        elif values.size:
            self.hash.update(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)

    def _write(self, *words: str) -> None:
        for word in words:
            encoded = word.encode()
            self.hash.update(f"{len(encoded)}:".encode() + encoded)


def _name(thing: Any) -> str:
    return f"{thing.__module__}.{thing.__qualname__}"
