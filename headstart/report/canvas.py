"""Matplotlib, for those who have it."""

from typing import Any

from headstart.errors import UsageError

__all__ = ["pyplot"]


def pyplot() -> Any:
    """``matplotlib.pyplot``, drawing to files only."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise UsageError("Matplotlib is not installed.", "Install it: pip install 'headstart[plot]'.") from error
    return plt
