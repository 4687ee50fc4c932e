"""Range checks shared by every constructor; traced values (a vmapped grid) pass unchecked."""

import math
from numbers import Real
from typing import Any

import numpy as np

from headstart.errors import UsageError

__all__ = ["any_whole", "at_least", "in_unit_interval", "number", "positive", "whole"]

MOST = 2**32 - 1
"""The largest count or seed: 32 bits have to do."""


def _concrete(name: str, value: Any) -> float | None:
    if isinstance(value, bool) or not (isinstance(value, (Real, np.generic)) or hasattr(value, "dtype")):
        raise UsageError(f"{name} = {value!r} is not a number.", f"Give {name} a number.")
    if not isinstance(value, (Real, np.generic)):
        return None
    number = float(value)
    if not math.isfinite(number):
        raise UsageError(f"{name} = {value} is not a finite number.", f"Give {name} a finite value.")
    return number


def number(name: str, value: Any) -> None:
    """A finite number."""
    _concrete(name, value)


def at_least(name: str, value: Any, least: float) -> None:
    """``value >= least``."""
    number = _concrete(name, value)
    if number is not None and number < least:
        raise UsageError(f"{name} = {value} is below {least:g}.", f"Give {name} a value of {least:g} or more.")


def positive(name: str, value: Any) -> None:
    """``value > 0``."""
    number = _concrete(name, value)
    if number is not None and number <= 0:
        raise UsageError(f"{name} = {value} is not above 0.", f"Give {name} a value above 0.")


def in_unit_interval(name: str, value: Any) -> None:
    """``0 < value <= 1``."""
    number = _concrete(name, value)
    if number is not None and not 0 < number <= 1:
        raise UsageError(f"{name} = {value} lies outside (0, 1].", f"Give {name} a value above 0 and at most 1.")


def any_whole(name: str, value: Any, least: int) -> None:
    """A whole number of at least ``least``, however large: a theorem may ask for more than a machine counts to."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise UsageError(
            f"{name} = {value!r} is not a whole number of {least} or more.", f"Set {name} to {least} or more."
        )


def whole(name: str, value: Any, least: int) -> None:
    """A whole number of at least ``least``; shapes depend on it, so it is never traced, and has to fit into 32 bits."""
    if isinstance(value, (int, np.integer)) and value > MOST:
        raise UsageError(f"{name} = {value} is more than {MOST:,}.", f"Set {name} to less.")
    any_whole(name, value, least)
