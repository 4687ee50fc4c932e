"""Conditions of the theorems, each refused with its own formula and the largest value that it allows."""

from headstart.core.checks import any_whole, at_least
from headstart.errors import UsageError
from headstart.theory.constants import Constants

__all__ = ["at_most", "check_cohort", "check_inner_lr"]

ROUNDING = 1e-12
"""A value that was computed as the largest allowed one passes."""


def at_most(name: str, value: float, largest: float, formula: str, needed_by: str) -> None:
    """``value <= largest``, where ``formula`` says what ``largest`` is."""
    if value > largest * (1 + ROUNDING):
        raise UsageError(
            f"{needed_by} needs {name} <= {formula} = {largest:.6g}, and {name} is {value:.6g}.",
            f"Lower {name} to {largest:.6g} or less.",
        )


def check_inner_lr(constants: Constants, inner_lr: float, needed_by: str) -> None:
    """``0 <= alpha <= 1/L``."""
    at_least("inner_lr", inner_lr, 0)
    at_most("inner_lr", inner_lr, 1 / constants.smoothness, "1/L", needed_by)


def check_cohort(clients: int, cohort: int) -> None:
    """``1 <= cohort <= clients``."""
    any_whole("clients", clients, 1)
    any_whole("cohort", cohort, 1)
    if cohort > clients:
        raise UsageError(
            f"cohort = {cohort} is more than clients = {clients}.", "Give a cohort of at most all clients."
        )
