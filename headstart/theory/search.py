"""The smallest number of iterations or rounds that a bound lets reach an accuracy."""

from collections.abc import Callable

from headstart.errors import UsageError

__all__ = ["fewest"]

MOST = 10**30


def fewest(reaches: Callable[[int], bool], accuracy: float, needed_by: str) -> int:
    """The smallest count, of iterations or rounds, that reaches the accuracy; ``reaches`` must stay true once it is."""
    high = 1
    while not reaches(high):
        high *= 2
        if high > MOST:
            raise UsageError(
                f"{needed_by} reaches accuracy {accuracy:.6g} in no {MOST:.0e} iterations.",
                "Ask for a coarser accuracy, draw more samples, or lower inner_lr.",
            )
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reaches(middle) else (middle, high)
    return high
