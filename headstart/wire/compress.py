"""Fewer bytes for an update: codes of its leaves, chained, with error feedback around them."""

import math
from abc import abstractmethod
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from headstart.core import checks, tree
from headstart.errors import UsageError
from headstart.wire.part import Sent, WirePart
from headstart.wire.payload import Payload, leaf_names
from headstart.wire.vector import working_dtype

__all__ = ["Code", "Compress", "Compression", "Quantize", "TopK"]


class Code(NamedTuple):
    """What stands for a vector."""

    values: Array | None
    """Floats that go as they are, or through the next compression; ``None`` where nothing is left of them."""
    side: dict[str, Array]
    """All else that it takes to decode them."""


class Compression(eqx.Module):
    """A code for one leaf of an update, given as a vector. Shapes depend on the vector's length only.

    ``feedback`` says whether a client keeps what a round's code lost and adds it to its next update.
    """

    feedback: eqx.AbstractVar[bool]

    kind: ClassVar[str] = "compress"
    name: ClassVar[str]
    shortens: ClassVar[bool]
    """Whether a decoded vector never has a larger norm than the original."""
    last: ClassVar[bool] = False
    """Whether its code has no values left for a next compression."""

    @abstractmethod
    def encode(self, values: Array, key: Array) -> Code:
        """The code of a vector."""

    @abstractmethod
    def decode(self, code: Code, like: jax.ShapeDtypeStruct) -> Array:
        """The vector that a code stands for."""

    def pack(self, side: dict[str, Array], like: jax.ShapeDtypeStruct) -> dict[str, Array]:
        """``side`` as it goes over a network, in as few bytes as there are."""
        return side

    def unpack(self, packed: dict[str, Array], like: jax.ShapeDtypeStruct) -> dict[str, Array]:
        """The reverse of ``pack``."""
        return packed


class Quantize(Compression):
    """Whole numbers of ``bits`` bits, rounded at random so that the mean is right: E[decode(encode(x))] = x.

    A leaf is ``step`` (sent in single precision) times numbers from ``-(2^(bits-1) - 1)`` to ``2^(bits-1) - 1``, and
    zero stays zero. QSGD's rounding (Alistarh et al. 2017, section 3.1) with the largest magnitude as the scale.
    """

    bits: int = eqx.field(static=True, default=8)
    feedback: bool = eqx.field(static=True, default=False)

    name: ClassVar[str] = "quantize"
    shortens: ClassVar[bool] = False
    last: ClassVar[bool] = True

    def __check_init__(self) -> None:
        checks.whole("compress.bits", self.bits, 2)
        if self.bits > 16:
            raise UsageError(f"compress.bits = {self.bits} is above 16.", "Give 2 to 16 bits, or leave quantize out.")
        _check_feedback(self.feedback)

    @property
    def levels(self) -> int:
        """The largest number of the code."""
        return 2 ** (self.bits - 1) - 1

    def encode(self, values: Array, key: Array) -> Code:
        values = values.astype(working_dtype(values))
        step = (jnp.max(jnp.abs(values), initial=0) / self.levels).astype(jnp.float32)
        exact = values / jnp.where(step == 0, 1, step).astype(values.dtype)
        below = jnp.floor(exact)
        number = below + (jax.random.uniform(key, values.shape) < exact - below)
        return Code(None, {"codes": jnp.clip(number, -self.levels, self.levels).astype(jnp.int32), "step": step})

    def decode(self, code: Code, like: jax.ShapeDtypeStruct) -> Array:
        dtype = working_dtype(like)
        return (code.side["codes"].astype(dtype) * code.side["step"].astype(dtype)).astype(like.dtype)

    def pack(self, side: dict[str, Array], like: jax.ShapeDtypeStruct) -> dict[str, Array]:
        digits = (side["codes"] + self.levels)[:, None] >> jnp.arange(self.bits)
        return side | {"codes": jnp.packbits((digits & 1).astype(jnp.uint8))}

    def unpack(self, packed: dict[str, Array], like: jax.ShapeDtypeStruct) -> dict[str, Array]:
        digits = jnp.unpackbits(packed["codes"], count=like.shape[0] * self.bits).reshape(-1, self.bits)
        numbers = jnp.sum(digits.astype(jnp.int32) << jnp.arange(self.bits), axis=1)
        return packed | {"codes": numbers - self.levels}


class TopK(Compression):
    """The ``share`` largest magnitudes of each leaf; the others are zero.

    Of each leaf and not of the whole update, because the leaves of an update need not have one unit: some methods send
    a model's difference beside a memory or a gradient, and the larger of them would crowd the other out.

    Alone it is biased and can stall, so feedback is on unless it is turned off: Stich et al. 2018, Algorithm 1.
    Places go as 4-byte numbers or as one bit per coordinate, whichever is less.
    """

    share: float = eqx.field(static=True, default=0.1)
    feedback: bool = eqx.field(static=True, default=True)

    name: ClassVar[str] = "top-k"
    shortens: ClassVar[bool] = True

    def __check_init__(self) -> None:
        checks.in_unit_interval("compress.share", self.share)
        _check_feedback(self.feedback)

    def kept(self, length: int) -> int:
        """How many values of a vector are sent: at least one of each leaf."""
        return min(length, max(1, math.ceil(self.share * length)))

    def encode(self, values: Array, key: Array) -> Code:
        kept = self.kept(values.shape[0])
        if kept == values.shape[0]:
            return Code(values, {})
        places = jnp.sort(jax.lax.top_k(jnp.abs(values), kept)[1])
        return Code(values[places], {"places": places.astype(jnp.int32)})

    def decode(self, code: Code, like: jax.ShapeDtypeStruct) -> Array:
        assert code.values is not None
        if not code.side:
            return code.values
        return jnp.zeros(like.shape, like.dtype).at[code.side["places"]].set(code.values, unique_indices=True)

    def pack(self, side: dict[str, Array], like: jax.ShapeDtypeStruct) -> dict[str, Array]:
        if not side or not self._as_bitmap(like):
            return side
        return {"places": jnp.packbits(jnp.zeros(like.shape, bool).at[side["places"]].set(True))}

    def unpack(self, packed: dict[str, Array], like: jax.ShapeDtypeStruct) -> dict[str, Array]:
        if not packed or not self._as_bitmap(like):
            return packed
        here = jnp.unpackbits(packed["places"], count=like.shape[0])
        return {"places": jnp.nonzero(here, size=self.kept(like.shape[0]))[0].astype(jnp.int32)}

    def _as_bitmap(self, like: jax.ShapeDtypeStruct) -> bool:
        return math.ceil(like.shape[0] / 8) < 4 * self.kept(like.shape[0])


def _check_feedback(feedback: Any) -> None:
    if not isinstance(feedback, bool):
        raise UsageError(f"compress.feedback = {feedback!r} is neither true nor false.", "Give true or false.")


class Compress(WirePart):
    """Compressions one after the other, each on the values that the one before it left.

    With feedback a client sends ``C(up + residual)`` and keeps ``up + residual - C(up + residual)``: nothing is lost,
    some of it comes later (Stich et al. 2018; Karimireddy et al. 2019, Algorithm 1). ``send`` gives the decoded update,
    ``encode`` the bytes of the same.
    """

    stages: tuple[Compression, ...]

    kind: ClassVar[str] = "compress"
    name: ClassVar[str] = "chain"

    def __check_init__(self) -> None:
        for before, after in pairwise(self.stages):
            if before.last:
                raise UsageError(
                    f"compress = {after.name!r} cannot follow {before.name!r}, which leaves packed numbers behind.",
                    f"Put {before.name!r} last.",
                )

    @property
    def feedback(self) -> bool:
        """Whether clients keep what was lost."""
        return any(stage.feedback for stage in self.stages)

    def labels(self) -> tuple[tuple[str, str], ...]:
        return tuple((stage.kind, stage.name) for stage in self.stages)

    def may_lengthen(self) -> str | None:
        if self.feedback:
            return "what error feedback adds to an update comes after the clipping"
        if not all(stage.shortens for stage in self.stages):
            return "its rounding may make an update longer than the clipping norm"
        return None

    def init_client(self, like: Any) -> Any:
        return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), like) if self.feedback else ()

    def send(self, up: Any, announced: Any, own: Any, key: Array) -> Sent:
        return self._compressed(up, own, key)[1]

    def payload_bytes(self, like: Any, before: int) -> int:
        packed, _ = jax.eval_shape(self.encode, like, self.init_client(like), jax.random.key(0))
        return before - tree.nbytes(like) + tree.nbytes(packed)

    def encode(self, up: Any, own: Any, key: Array) -> tuple[Payload, Sent]:
        """Packed arrays by the names of the leaves, and what ``send`` would give."""
        codes, sent = self._compressed(up, own, key)
        packed: Payload = {}
        for name, code in zip(leaf_names(up, "up"), codes, strict=True):
            if code.values is not None:
                packed[f"{name}:values"] = code.values
            for stage, side, like in zip(self.stages, code.sides, code.likes, strict=True):
                packed |= {f"{name}:{stage.name}:{item}": array for item, array in stage.pack(side, like).items()}
        return packed, sent

    def decode(self, packed: Payload, like: Any) -> Any:
        """The update whose packed arrays these are."""

        def leaf_of(name: str, leaf: Any) -> Array:
            likes = self._likes(leaf)
            sides = [
                stage.unpack(_below(f"{name}:{stage.name}:", packed), like)
                for stage, like in zip(self.stages, likes, strict=True)
            ]
            return self._decode(_LeafCode(_below(f"{name}:", packed).get("values"), sides, likes), leaf)

        leaves, structure = jax.tree.flatten(like)
        return jax.tree.unflatten(structure, map(leaf_of, leaf_names(like, "up"), leaves))

    def _compressed(self, up: Any, own: Any, key: Array) -> tuple[list["_LeafCode"], Sent]:
        whole = tree.add(up, own) if self.feedback else up
        leaves, structure = jax.tree.flatten(whole)
        codes = [self._encode(*each) for each in zip(leaves, jax.random.split(key, max(1, len(leaves))), strict=False)]
        sent = jax.tree.unflatten(structure, map(self._decode, codes, leaves))
        return codes, Sent(sent, tree.sub(whole, sent) if self.feedback else own)

    def _encode(self, leaf: Any, key: Array) -> "_LeafCode":
        values: Array | None = jnp.ravel(leaf)
        sides = []
        for stage, stage_key in zip(self.stages, jax.random.split(key, len(self.stages)), strict=True):
            assert values is not None
            values, side = stage.encode(values, stage_key)
            sides.append(side)
        return _LeafCode(values, sides, self._likes(leaf))

    def _decode(self, code: "_LeafCode", leaf: Any) -> Array:
        values = code.values
        for stage, side, like in reversed(list(zip(self.stages, code.sides, code.likes, strict=True))):
            values = stage.decode(Code(values, side), like)
        assert values is not None
        return values.reshape(jnp.shape(leaf))

    def _likes(self, leaf: Any) -> list[jax.ShapeDtypeStruct]:
        """Shapes of the vectors that the stages are given for a leaf."""
        likes = [jax.ShapeDtypeStruct((math.prod(jnp.shape(leaf)),), jnp.result_type(leaf))]
        for stage in self.stages[:-1]:
            likes.append(jax.eval_shape(stage.encode, likes[-1], jax.random.key(0)).values)
        return likes


class _LeafCode(NamedTuple):
    """What all stages made of one leaf: the values left over, each stage's side, and shapes of what they were given."""

    values: Array | None
    sides: list[dict[str, Array]]
    likes: list[jax.ShapeDtypeStruct]


def _below(prefix: str, packed: Payload) -> Payload:
    return {name.removeprefix(prefix): jnp.asarray(a) for name, a in packed.items() if name.startswith(prefix)}
