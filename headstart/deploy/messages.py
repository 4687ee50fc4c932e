"""What passes between server and sites: a versioned header as JSON, and named arrays as one block without pickle.

    4 bytes  "HSFM"
    2 bytes  version of the format
    4 bytes  length of the header
    ...      the header: whom and what it is about, and what is said, as JSON
    ...      arrays, as safetensors; types that NumPy does not have itself, such as bfloat16, as their bits

Imports nothing that imports JAX.
"""

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

__all__ = ["LARGEST_MESSAGE", "Fault", "Garbled", "Head", "Kind", "Message", "Reason", "Tag", "difference"]

MAGIC, VERSION = b"HSFM", 1
PREFIX = struct.Struct(">4sHI")
LARGEST_MESSAGE = 2**30
"""Bytes of a message, unless a federation says otherwise."""

Kind = Literal["agree", "begin", "work", "evaluate", "model", "fault"]
"""What is asked: a step of the agreement; to take part in a run; a phase of a round; scores; to keep the trained model.
An answer is of the kind of its question, or a fault."""

Reason = Literal[
    "absent",  # not connected
    "silent",  # no answer in time
    "slow",  # the site itself gave up at its deadline
    "unreachable",  # the site's messenger found no worker
    "garbled",  # not a message of ours
    "stale",  # an answer to something else than was asked
    "arrays",  # other arrays, shapes or types than were asked for
    "not finite",
    "too large",
    "memory",  # the site has not the memory that the round starts from
    "unknown run",  # the site has not begun this run
    "refused",  # the site will not do what was asked
    "error",  # the site's work failed
]

FOREIGN = ("bfloat16", "float8_e4m3fn", "float8_e5m2")
"""Types of arrays that travel as bits."""
TYPES = "types"
"""The key of the header that says which arrays are bits, and of what."""


class Garbled(ValueError):
    """Bytes that are no message, and why."""


class Fault(NamedTuple):
    """Why a site's answer is left out."""

    reason: Reason
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}" if self.detail else self.reason


class Tag(NamedTuple):
    """Which answer of a site: of which round, of which attempt at it, in which phase."""

    round: int
    attempt: int
    phase: str

    def __str__(self) -> str:
        return f"{self.round:09d}-{self.attempt:06d}-{self.phase}"


@dataclass(frozen=True)
class Head:
    """Whom and what a message is about; an answer repeats its question's."""

    kind: Kind
    run: str
    """The federation's run; another one has other memories."""
    digest: str
    """Of the experiment and of the agreement on the data."""
    site: str
    """Whom it is for. Who an answer is from is known from the key of its sender, never from this."""
    method: str = ""
    round: int = 0
    attempt: int = 0
    phase: str = ""
    deadline: float = 0.0
    """Seconds after which the site is to give up."""


@dataclass(frozen=True)
class Message:
    """A question or an answer."""

    head: Head
    said: Mapping[str, Any] = field(default_factory=dict)
    """JSON."""
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)

    def pack(self) -> bytes:
        """As bytes."""
        bits, types = {}, {}
        for name, array in self.arrays.items():
            array = np.asarray(array)
            if array.dtype.isbuiltin != 1:
                types[name], array = array.dtype.name, array.view(f"u{array.dtype.itemsize}")
            # ascontiguousarray makes an array of one axis of a number.
            bits[name] = np.ascontiguousarray(array).reshape(array.shape)
        header = json.dumps({"head": asdict(self.head), "said": self.said, TYPES: types}).encode()
        return PREFIX.pack(MAGIC, VERSION, len(header)) + header + save(bits)

    @classmethod
    def unpack(cls, content: bytes, largest: int = LARGEST_MESSAGE, with_arrays: bool = True) -> "Message":
        """From bytes that anyone may have sent; on request without its arrays."""
        if len(content) > largest:
            raise Garbled(f"it has {len(content)} bytes, more than {largest}")
        if len(content) < PREFIX.size:
            raise Garbled("it is too short")
        magic, version, length = PREFIX.unpack_from(content)
        if magic != MAGIC:
            raise Garbled("it is no message of a federation")
        if version != VERSION:
            raise Garbled(f"it is of version {version}, and this is version {VERSION}")
        if PREFIX.size + length > len(content):
            raise Garbled("it ends too early")
        body = memoryview(content)[PREFIX.size :]
        try:
            header = json.loads(bytes(body[:length]))
            head, said, types = _head(header["head"]), header["said"], header[TYPES]
            if not isinstance(said, dict) or not isinstance(types, dict):
                raise Garbled("its header is malformed")
            if not with_arrays:
                return cls(head, said)
            arrays = load(bytes(body[length:]))
            for name, dtype in types.items():
                if dtype not in FOREIGN:
                    raise Garbled(f"it has an array of type {dtype!r}")
                arrays[name] = arrays[name].view(_foreign(dtype))
        except Garbled:
            raise
        except (ValueError, KeyError, TypeError, RecursionError, SafetensorError) as error:
            raise Garbled(f"it cannot be read ({type(error).__name__})") from error
        return cls(head, said, arrays)

    def answer(self, said: Mapping[str, Any] | None = None, arrays: Mapping[str, Any] | None = None) -> "Message":
        """An answer to this question."""
        return Message(self.head, said or {}, arrays or {})

    def fault(self, fault: Fault) -> "Message":
        """The answer that there is none, and why."""
        return Message(replace(self.head, kind="fault"), {"reason": fault.reason, "detail": fault.detail})


def difference(answer: Head, question: Head) -> str | None:
    """How an answer's head differs from that of its question; ``None`` where it does not."""
    for part in fields(Head):
        got, wanted = getattr(answer, part.name), getattr(question, part.name)
        if got != wanted and not (part.name == "kind" and got == "fault"):
            return f"its {part.name} is {_short(got)}, not {_short(wanted)}"
    return None


def _head(told: Mapping[str, Any]) -> Head:
    wanted = {part.name: part.type for part in fields(Head)}
    if set(told) != set(wanted):
        raise Garbled("its header is malformed")
    for name, kind in wanted.items():
        if name == "deadline":
            good = isinstance(told[name], (int, float)) and math.isfinite(told[name])
        else:
            good = isinstance(told[name], int if kind is int else str) and not isinstance(told[name], bool)
        if not good:
            raise Garbled(f"its {name} is {_short(told[name])}")
    if told["kind"] not in get_args(Kind):
        raise Garbled(f"it is of the unknown kind {_short(told['kind'])}")
    return Head(**told)


def _foreign(name: str) -> np.dtype:
    import ml_dtypes  # where bfloat16 and its like come from

    return np.dtype(getattr(ml_dtypes, name))


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
