"""Labelled samples before anybody owns them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import jax.numpy as jnp
import numpy as np
import pyarrow as pa

from headstart.core import Batch
from headstart.data.blocks import in_blocks
from headstart.errors import UsageError, did_you_mean
from headstart.problems import Examples, SupervisedTask

__all__ = [
    "PIXELS",
    "Pixels",
    "Samples",
    "TargetScale",
    "fingerprint",
    "plain_examples",
    "signed_images",
    "unit_images",
]

Pixels = Literal["unit", "signed"]
PIXELS: tuple[Pixels, ...] = ("unit", "signed")
"""Images as numbers in [0, 1] or in [-1, 1]."""


@dataclass(frozen=True)
class TargetScale:
    """Targets of a regression: stored less ``offset``, and given to a model as ``(stored - center) / scale``.

    The offset keeps large targets that differ little apart in single precision.
    """

    offset: float = 0.0
    center: float = 0.0
    scale: float = 1.0

    @property
    def mean(self) -> float:
        """What a model's output of 0 stands for."""
        return self.offset + self.center


@dataclass(frozen=True)
class _Scaled:
    """A transform, and targets scaled after it. Equal ones share compiled programs."""

    transform: Callable[[Batch], Batch]
    target: TargetScale

    def __call__(self, batch: Examples) -> Examples:
        x, y = self.transform(batch)
        return Examples(x, (y - self.target.center) / self.target.scale)


@dataclass(frozen=True, eq=False)
class Samples:
    """Samples with their labels and whatever else is known of each; a partition deals them out to clients.

    Nothing is copied or converted until a batch is drawn: ``x`` may be uint8 or memory-mapped, and ``transform``
    turns drawn rows into what a loss takes.
    """

    name: str
    x: np.ndarray
    y: np.ndarray
    """Class numbers 0 to C-1, or targets of a regression."""
    classes: tuple[str, ...] | None = None
    """What the class numbers stand for; ``None`` for a regression."""
    test: np.ndarray | None = None
    """True for rows of the source's own test set, where it has one."""
    columns: Mapping[str, np.ndarray | pa.DictionaryArray] = field(default_factory=dict)
    """What else is known of each row, by name: who it is from, when, in which recording."""
    transform: Callable[[Batch], Batch] | None = None
    subset: str = ""
    """In what the samples are fewer than the published ones; empty where they are all."""
    source: str = ""
    """Where the samples come from, and under which licence."""
    features: tuple[str, ...] | None = None
    """What the inputs of a model are called, where they have names."""
    target: TargetScale = field(default_factory=TargetScale)
    """How targets of a regression are stored and scaled."""
    known_fingerprints: np.ndarray | None = None
    """The rows' fingerprints, where they have been computed before."""

    def __post_init__(self) -> None:
        for name, values in {"y": self.y, "test": self.test, **self.columns}.items():
            if values is not None and len(values) != len(self.x):
                raise UsageError(
                    f"{self.name}: {name} has {len(values)} rows, but x has {len(self.x)}.",
                    "Give every column one value a sample.",
                )

    def __len__(self) -> int:
        return len(self.x)

    @property
    def kind(self) -> Literal["classification", "regression"]:
        """What there is to predict."""
        return "regression" if self.classes is None else "classification"

    @property
    def task(self) -> SupervisedTask:
        """What a model for these samples has to look like."""
        outputs = len(self.classes) if self.classes is not None else int(np.prod(self.y.shape[1:], dtype=int))
        batch = self.to_examples(Examples(self.x[:1], self.y[:1]))
        return SupervisedTask(self.kind, tuple(batch.x.shape[1:]), outputs, self.target.mean, self.target.scale)

    @property
    def to_examples(self) -> Callable[[Batch], Batch]:
        """From drawn rows to what a loss takes."""
        plain = unit_images if self.x.dtype == np.uint8 else plain_examples
        transform = plain if self.transform is None else self.transform
        scaled = self.classes is None and self.target != TargetScale()
        return _Scaled(transform, self.target) if scaled else transform

    def column(self, name: str) -> np.ndarray | pa.DictionaryArray:
        """A column by name."""
        if name not in self.columns:
            raise UsageError(f"{self.name} has no column {name!r}.", did_you_mean(name, list(self.columns)))
        return self.columns[name]

    @cached_property
    def fingerprints(self) -> np.ndarray:
        """A number for each row that depends on its contents alone."""
        if self.known_fingerprints is not None:
            return self.known_fingerprints
        prints = fingerprint(self.x)
        low, high = (0, -1) if self.classes is None else (self.y.min(initial=0), self.y.max(initial=0))
        if self.y.dtype.kind in "iu" and self.y.ndim == 1 and low == 0 <= high < 2**16:
            # There are few labels: each is hashed once.
            hashes = _mixed(fingerprint(np.arange(high + 1, dtype=self.y.dtype)))
            for start in range(0, len(self), SHARE_ROWS):
                prints[start : start + SHARE_ROWS] ^= hashes[self.y[start : start + SHARE_ROWS]]
        else:
            prints ^= _mixed(fingerprint(self.y))
        return prints

    def keys(self, seed: int, purpose: str = "") -> np.ndarray:
        """Random numbers, one a row, that depend on the seed, the purpose and the row's contents.

        Sorting rows by them shuffles the rows in a way that does not depend on the order in which they came.
        """
        words = np.frombuffer(f"{seed}/{purpose}".encode().ljust(64, b"\0")[:64], np.uint64)[None]
        return _mixed(self.fingerprints, int(fingerprint(words)[0]))

    def shuffled(self, rows: np.ndarray, seed: int, purpose: str = "") -> np.ndarray:
        """Some rows in random order."""
        return rows[np.argsort(self.keys(seed, purpose)[rows], kind="stable")]

    def with_pixels(self, pixels: Pixels) -> "Samples":
        """The same images as numbers in [0, 1] (``unit``) or in [-1, 1] (``signed``)."""
        if pixels not in PIXELS:
            raise UsageError(f"pixels = {pixels!r} is not a way to scale images.", did_you_mean(str(pixels), PIXELS))
        return replace(self, transform=signed_images) if pixels == "signed" else self

    def with_columns(self, **columns: np.ndarray) -> "Samples":
        """The same samples with more known of each."""
        return replace(self, columns={**self.columns, **columns})


def unit_images(batch: Examples) -> Examples:
    """Bytes as numbers in [0, 1]."""
    return Examples(batch.x.astype(jnp.result_type(float)) / 255, _labels(batch.y))


def signed_images(batch: Examples) -> Examples:
    """Bytes as numbers in [-1, 1]."""
    unit = unit_images(batch)
    return Examples(2 * unit.x - 1, unit.y)


def plain_examples(batch: Examples) -> Examples:
    """Numbers as they are, in the precision of the run."""
    return Examples(batch.x.astype(jnp.result_type(float)), _labels(batch.y))


def _labels(y):  # type: ignore[no-untyped-def]
    if jnp.issubdtype(y.dtype, jnp.integer):
        return y.astype(jnp.int32)
    y = y.astype(jnp.result_type(float))
    return y if y.ndim > 1 else y[:, None]


BLOCK_BYTES = 2**19
"""What is hashed at a time; it should stay in a core's cache."""

SHARE_ROWS = 2**18
"""Rows that a thread takes on at a time."""


def fingerprint(values: np.ndarray) -> np.ndarray:
    """A 64-bit hash of every row's bytes: a random linear function of its words, each mixed first.

    Rows of equal bytes have equal hashes; of n others, two share one with a probability of about n^2 / 2^64.
    """
    count = len(values)
    result = np.empty(count, np.uint64)
    width = values.dtype.itemsize * int(np.prod(values.shape[1:], dtype=np.int64))
    word = np.dtype(f"u{max(size for size in (1, 2, 4, 8) if width % size == 0)}") if width else np.dtype("u1")
    words = width // word.itemsize
    factors = np.random.default_rng(words).integers(0, 2**63, words, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    # Sums over a short last axis are slow: narrow rows are turned, so that whole columns are added.
    narrow = words <= 64
    step = max(1, BLOCK_BYTES // max(8 * words, 1))

    def hash_share(share: slice) -> None:
        # Fresh memory costs more than the arithmetic: one piece of it serves all blocks.
        room, spare = np.empty((2, step * words), np.uint64)
        for start in range(share.start, share.stop, step):
            block = np.ascontiguousarray(values[start : min(start + step, share.stop)])
            block = block.view(np.uint8).reshape(len(block), width).view(word)
            block = block.T if narrow else block
            mixed, shifted = (piece[: block.size].reshape(block.shape) for piece in (room, spare))
            np.add(block, np.uint64(1), out=mixed)
            mixed *= np.uint64(0x9E3779B97F4A7C15)
            mixed ^= np.right_shift(mixed, np.uint64(32), out=shifted)
            mixed *= factors[:, None] if narrow else factors
            out = result[start : start + len(block.T if narrow else block)]
            _mix(mixed.sum(axis=0 if narrow else 1, dtype=np.uint64, out=out))

    in_blocks(hash_share, count, max(1, SHARE_ROWS // step) * step)
    return result


def _mixed(values: np.ndarray, also: int = 0) -> np.ndarray:
    """Every value, mixed after an exclusive or with one number."""
    result = np.empty(len(values), np.uint64)

    def mix_share(share: slice) -> None:
        for start in range(share.start, share.stop, 2**14):
            part = slice(start, min(start + 2**14, share.stop))
            _mix(np.bitwise_xor(values[part], np.uint64(also), out=result[part]))

    in_blocks(mix_share, len(values), SHARE_ROWS)
    return result


def _mix(mixed: np.ndarray) -> None:
    """Splitmix64's finalizer, in place: every bit of the result depends on every bit of the value."""
    mixed += np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
