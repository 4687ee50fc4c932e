"""Where a table's rows are stored as they are read."""

from typing import Protocol

import numpy as np

__all__ = ["BLOCK_ROWS", "Matrix", "RowSink"]

BLOCK_ROWS = 8192
"""Rows that are written at a time: columns of them, one after the other, while the block stays in the cache."""


class RowSink(Protocol):
    """Where stored rows go."""

    def block(self, rows: int) -> np.ndarray:
        """Room for the next rows."""

    def put(self, block: np.ndarray) -> None:
        """The room, filled."""

    def whole(self) -> np.ndarray:
        """All rows that were put, to read and to write."""


class Matrix:
    """Rows in memory; there is room for as many as were announced."""

    def __init__(self, rows: int, columns: int):
        # JAX uses NumPy's memory as it is where it begins at a multiple of 64 bytes, and copies it elsewhere.
        room = np.empty(rows * columns + 16, np.float32)
        first = -room.ctypes.data % 64 // 4
        self.values, self.filled = room[first : first + rows * columns].reshape(rows, columns), 0

    def block(self, rows: int) -> np.ndarray:
        """Room for the next rows."""
        return self.values[self.filled : self.filled + rows]

    def put(self, block: np.ndarray) -> None:
        """The room, filled."""
        self.filled += len(block)

    def whole(self) -> np.ndarray:
        """All rows that were put."""
        return self.values[: self.filled]
