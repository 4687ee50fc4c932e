"""Where a column's numbers lie, told no more closely than it takes to store them in single precision."""

import math
from dataclasses import dataclass

import numpy as np

__all__ = ["LARGEST", "LEAST_LEVEL", "Extent", "Span"]

LARGEST = 2.0**96
"""The largest magnitude of a number; above it are the infinities and, at a distance, what stands for a missing one."""

NARROW = 2.0**-12
"""A column whose range is a smaller part of its magnitude than this is stored less an offset."""

DIGITS = 52
"""Binary digits of a double behind its first."""

LEAST_LEVEL = -1074
"""The exponent of the smallest double."""


@dataclass(frozen=True)
class Span:
    """The least and greatest value of a column so far."""

    low: float = np.inf
    high: float = -np.inf

    @property
    def empty(self) -> bool:
        """Whether there has been no value."""
        return self.low > self.high

    def joined(self, other: "Span") -> "Span":
        """That of both."""
        return Span(min(self.low, other.low), max(self.high, other.high))

    def extent(self) -> "Extent":
        """The same, told coarsely."""
        return Extent.between(self.low, self.high)


@dataclass(frozen=True)
class Extent:
    """The one or two neighbouring cells of a grid in which all values of a column lie.

    The grid is the finest that has such cells among those of width ``2**level``, so that it says where the values are
    about as closely as they differ from each other, and the least and greatest value only of a constant column. Of
    extents alone, their common one can be told exactly.

    >>> Extent.between(1_700_000_000.0, 1_700_000_900.0).offset
    1700000768.0
    >>> Extent.between(5.0, 9.0).joined(Extent.between(-1.0, 6.0)) == Extent.between(-1.0, 9.0)
    True
    """

    level: int = 0
    low: int = 0
    high: int = -1
    """The numbers of the cells; the second is below the first where there is no value."""

    @classmethod
    def between(cls, low: float, high: float) -> "Extent":
        """Of values that reach from one to the other."""
        if low > high:
            return cls()
        largest = max(abs(low), abs(high))
        level = max(math.frexp(largest)[1] - 1 - DIGITS, LEAST_LEVEL) if largest else LEAST_LEVEL
        return cls(level, _cell(low, level), _cell(high, level))._coarsened()

    @property
    def empty(self) -> bool:
        """Whether there is no value."""
        return self.high < self.low

    @property
    def constant(self) -> bool:
        """Whether there is one value only: two fill two cells at least of the finest grid."""
        return self.low == self.high

    @property
    def wide(self) -> bool:
        """Whether the values are so far from each other that no offset is needed, whatever further ones there are."""
        largest = max(abs(self.low), abs(self.high)) + 1
        return self.high > self.low and 2 * NARROW * largest <= 1

    @property
    def offset(self) -> float:
        """What to store the column less of, so that single precision tells its values apart."""
        if self.empty:
            return 0.0
        # The border between two cells, which is in the middle; or the one value itself.
        middle = math.ldexp(self.high, self.level)
        return middle if math.ldexp(1.0, self.level) < NARROW * abs(middle) else 0.0

    def joined(self, other: "Extent") -> "Extent":
        """That of both columns together."""
        if self.empty or other.empty:
            return other if self.empty else self
        level = max(self.level, other.level)
        one, another = (extent._at(level) for extent in (self, other))
        return Extent(level, min(one.low, another.low), max(one.high, another.high))._coarsened()

    def _at(self, level: int) -> "Extent":
        steps = level - self.level
        return Extent(level, self.low >> steps, self.high >> steps)

    def _coarsened(self) -> "Extent":
        extent = self
        while extent.high - extent.low > 1:
            extent = extent._at(extent.level + 1)
        return extent


def _cell(value: float, level: int) -> int:
    """The number of a value's cell, computed without rounding."""
    numerator, denominator = float(value).as_integer_ratio()
    return (numerator << max(-level, 0)) // (denominator << max(level, 0))
