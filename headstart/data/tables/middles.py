"""Medians by counting: the binary digits of the number in the middle are found a few at a time, from the first on.

Numbers of single precision, read as whole ones, sort as they do. How many values begin with the digits that are known,
by the next few, says which those of the median are. Counts of rows that lie apart add up.
"""

from dataclasses import dataclass

import numpy as np

__all__ = ["EXACT", "ROUGH", "STEP", "Descent", "lower_median"]

STEP = 8
"""How many binary digits are found at a time."""

EXACT, ROUGH = 32, 16
"""All digits of a number in single precision; its sign, its exponent and 7 more, which is 1%."""

TOP = np.uint32(2**31)


def _ordered(values: np.ndarray) -> np.ndarray:
    """Numbers of single precision as whole ones that sort alike; -0 is 0."""
    bits = (values.astype(np.float32) + np.float32(0)).view(np.uint32)
    return np.where(bits < TOP, bits | TOP, ~bits)


def _number(prefix: int, digits: int) -> float:
    """The number nearest to 0 among those that begin so."""
    rest = 32 - digits
    code = np.uint32(prefix << rest)
    # Those below 0 are in reverse.
    bits = code ^ TOP if code >= TOP else ~(code | np.uint32(2**rest - 1))
    return float(np.array(bits, np.uint32).view(np.float32))


def lower_median(values: np.ndarray, digits: int = EXACT) -> float:
    """The value in the middle, or of two the lower one, to so many binary digits.

    >>> lower_median(np.array([3.0, -1.0, 7.0, 4.0])), lower_median(np.array([1000.3]), ROUGH)
    (3.0, 1000.0)
    """
    codes = _ordered(values) >> np.uint32(32 - digits)
    middle = (len(codes) - 1) // 2
    return _number(int(np.partition(codes, middle)[middle]), digits)


@dataclass(frozen=True)
class Descent:
    """How far the digits of a column's median are known."""

    digits: int
    """How many are to be found."""
    known: int = 0
    prefix: int = 0
    rank: int | None = None
    """The median's place among the values that begin so; ``None`` before anything was counted."""

    @property
    def done(self) -> bool:
        """Whether all are found, or there is nothing to find."""
        return self.known == self.digits or self.rank == -1

    @property
    def median(self) -> float | None:
        """The number; ``None`` where there are no values."""
        return None if self.rank == -1 else _number(self.prefix, self.digits)

    def counts(self, values: np.ndarray) -> np.ndarray:
        """How many values that begin with the known digits have which as the next."""
        codes = _ordered(values)
        # A shift by all 32 digits is not defined.
        alike = codes if not self.known else codes[codes >> np.uint32(32 - self.known) == self.prefix]
        following = (alike >> np.uint32(32 - self.known - STEP)) & np.uint32(2**STEP - 1)
        return np.bincount(following, minlength=2**STEP)

    def after(self, counts: np.ndarray) -> "Descent":
        """With a few digits more, from how many values there are of each."""
        total = int(counts.sum())
        rank = (total - 1) // 2 if self.rank is None else self.rank
        if not total:
            return Descent(self.digits, self.known, self.prefix, -1)
        below = np.cumsum(counts)
        digit = int(np.searchsorted(below, rank, "right"))
        return Descent(
            self.digits,
            self.known + STEP,
            (self.prefix << STEP) + digit,
            rank - int(below[digit] - counts[digit]),
        )
