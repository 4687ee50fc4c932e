"""Who is told how far reading has come, where somebody watches."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["Told", "watcher", "watching"]

Told = Callable[[str, float | None], None]
"""Takes what is being done, and the share of it that is; ``None`` where nobody knows how much there is."""

_WATCHER: ContextVar[Told | None] = ContextVar("watcher", default=None)


@contextmanager
def watching(told: Told) -> Iterator[None]:
    """Tell somebody of all reading and predicting in this block.

    >>> with watching(lambda what, share: print(what, share)):
    ...     watcher()("reading", 0.5)
    reading 0.5
    """
    token = _WATCHER.set(told)
    try:
        yield
    finally:
        _WATCHER.reset(token)


def watcher() -> Told | None:
    """Whoever watches, or ``None``."""
    return _WATCHER.get()
