"""A bound on memory: what follows from it, and what compiled programs say that they take.

The bound is of one device. A compiled program says what its arguments, results and temporaries take there; beside it
lie the samples of the next chunk, where these are read from disk. Python, JAX and NumPy take some hundred MB of their
own.
"""

import re
from collections.abc import Callable
from typing import Any

import jax

from headstart.errors import UsageError

__all__ = ["Bound", "bytes_of", "largest_fitting", "program_bytes", "shown_bytes"]

UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}
SIZE = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([KMGT]?I?)B?\s*$", re.IGNORECASE)
LEAST = 2**24
"""A bound below this is a slip of the pen."""
ACCELERATOR_SHARE = 0.9
CHUNK_SHARE = 8
"""What a chunk reads from disk may take this part of the bound, for the next chunk's is there beside it."""


def bytes_of(name: str, size: str | int) -> int:
    """A number of bytes from a number, or from text with a unit.

    >>> bytes_of("memory_limit", "4GB"), bytes_of("memory_limit", "1.5 GiB")
    (4000000000, 1610612736)
    """
    found = SIZE.match(str(size))
    if found is None or isinstance(size, bool) or found[2].upper() not in UNITS:
        raise UsageError(f"{name} = {size!r} is no amount of memory.", "Give one such as 4GB, 500MB or 2GiB.")
    number = int(float(found[1]) * UNITS[found[2].upper()])
    if number < LEAST:
        raise UsageError(
            f"{name} = {size!r} is less than {shown_bytes(LEAST)}.", "Give what a device may use, such as 4GB."
        )
    return number


def shown_bytes(number: float) -> str:
    """An amount of memory as people write it.

    >>> shown_bytes(1_234_567_890), shown_bytes(20_000_000)
    ('1.23 GB', '20 MB')
    """
    for size, unit in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.0f} bytes"


class Bound:
    """What a device may use, and the parts of it that what is read from disk may take."""

    def __init__(self, limit: str | int):
        self.bytes = bytes_of("memory_limit", limit)

    @classmethod
    def of(cls, limit: str | int | None) -> "Bound | None":
        """The bound that was asked for; left out, most of what an accelerator has, and none on a CPU."""
        if limit is not None:
            return cls(limit)
        if jax.default_backend() == "cpu":
            return None
        told = (jax.local_devices()[0].memory_stats() or {}).get("bytes_limit")
        return None if told is None else cls(int(ACCELERATOR_SHARE * told))

    @property
    def chunk(self) -> int:
        """Bytes of samples, or of clients' memories, that a chunk may read from disk."""
        return self.bytes // CHUNK_SHARE


def program_bytes(compiled: Any) -> int:
    """What a compiled program takes on one device while it runs: arguments, results that are none, and the rest.

    >>> import jax, numpy as np
    >>> program_bytes(jax.jit(lambda x: 2 * x).lower(np.zeros(1000, np.float32)).compile()) >= 8000
    True
    """
    found = compiled.memory_analysis()
    if found is None:  # a platform that does not tell
        return 0
    return int(
        found.argument_size_in_bytes
        + found.output_size_in_bytes
        - found.alias_size_in_bytes
        + found.temp_size_in_bytes
        + found.generated_code_size_in_bytes
    )


def largest_fitting(bound: Bound, most: int, needed: Callable[[int], int], what: str, beside: int = 0) -> int:
    """The most that fit, of ``most``, half of it and so on; ``needed`` says how many bytes so many take.

    ``beside`` are bytes that lie there in any case. Refuses where not even one fits.
    """
    number = most
    while (takes := needed(number) + beside) > bound.bytes:
        if number == 1:
            raise UsageError(
                f"{what} takes {shown_bytes(takes)} on each device, but memory_limit is {shown_bytes(bound.bytes)}.",
                "Raise the limit, take a smaller model or smaller batches, or keep samples (`headstart data prepare`) "
                "and clients' memories (train.memory = 'disk') on disk.",
            )
        number = -(-number // 2)
    return number
