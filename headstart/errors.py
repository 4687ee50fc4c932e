"""Errors a user can cause, each saying what is wrong, where, why, and what to do about it."""

import difflib
from collections.abc import Iterable

__all__ = ["CannotWrite", "ClientFailure", "Diverged", "HeadstartError", "UsageError", "did_you_mean"]


class HeadstartError(Exception):
    """Base of every error this package raises on purpose; the command line prints it without a traceback."""


class UsageError(HeadstartError, ValueError):
    """Something the caller gave is wrong. ``remedy`` says what to do instead."""

    def __init__(self, problem: str, remedy: str = ""):
        self.problem = problem
        self.remedy = remedy
        super().__init__(f"{problem}\n  {remedy}" if remedy else problem)


class CannotWrite(UsageError):
    """A file cannot be written, for want of room or of permission; what was there before it is whole."""


class ClientFailure(HeadstartError, RuntimeError):
    """One client's local update raised or returned a value that is not finite (backend ``loop``)."""

    def __init__(self, client: str, round_: int, reason: str):
        self.client = client
        self.round = round_
        super().__init__(f"client {client} failed in round {round_}: {reason}")


class Diverged(HeadstartError, RuntimeError):
    """Training produced a loss that is not finite."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`` Did you mean 'x'?`` for a near miss, otherwise the list of what there is."""
    known = sorted(known)
    close = difflib.get_close_matches(word.lower(), known, n=1, cutoff=0.5)
    return f"Did you mean {close[0]!r}?" if close else f"Choose one of: {', '.join(known)}."
