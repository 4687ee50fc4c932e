"""Matplotlib, for those who have it."""

from typing import Any

from headstart.errors import UsageError

__all__ = ["COLOURS", "pyplot"]

COLOURS = ("#0b6e99", "#d9730d", "#4d7c3f", "#9065b0", "#ad1a72", "#8c6d3f", "#37474f", "#c79a00")
"""Told apart by readers with any colour vision, and in print by their line styles."""


def pyplot() -> Any:
    """``matplotlib.pyplot``, drawing to files only."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise UsageError("Matplotlib is not installed.", "Install it: pip install 'headstart[plot]'.") from error
    return plt
