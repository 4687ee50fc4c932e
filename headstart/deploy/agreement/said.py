"""What crosses between a site and the server while they agree, and how the server reads what it is told."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from headstart.errors import UsageError

__all__ = ["Answer", "Said", "WrongAnswer"]

LONGEST_TEXT = 10_000
"""Characters of a name or a category."""


class WrongAnswer(UsageError):
    """An answer that cannot be right, whatever the other sites say; ``site`` is whose it is."""

    def __init__(self, site: str, problem: str, remedy: str):
        super().__init__(problem, remedy)
        self.site = site


class Said(NamedTuple):
    """A question or an answer: plain values and arrays."""

    said: dict[str, Any]
    arrays: dict[str, np.ndarray] = {}  # noqa: RUF012 - nobody writes to it


@dataclass(frozen=True)
class Answer:
    """A site's answer, of which nothing is believed before it was looked at."""

    site: str
    content: Said

    def __post_init__(self) -> None:
        if not isinstance(self.content.said, Mapping):
            raise self.refused("no table of values")

    def refused(self, why: str) -> WrongAnswer:
        """What is wrong with the answer, by the site's name."""
        return WrongAnswer(
            self.site,
            f"Site {self.site!r} answered with {why}.",
            "Check the data and the version of headstart there, or go on without the site.",
        )

    def has(self, key: str) -> bool:
        """Whether something is said at all."""
        return self.content.said.get(key) is not None

    def part(self, key: str) -> "Answer":
        """A table inside the answer."""
        value = self.content.said.get(key)
        if not isinstance(value, Mapping):
            raise self.refused(f"no {key}")
        return Answer(self.site, Said(dict(value), self.content.arrays))

    def keys(self) -> list[str]:
        """What is said, by name."""
        return self._texts(list(self.content.said), "names")

    def text(self, key: str) -> str:
        """A text."""
        return self._texts([self.content.said.get(key)], key)[0]

    def texts(self, key: str, most: int) -> list[str]:
        """At most so many different texts."""
        value = self.content.said.get(key)
        if not isinstance(value, list):
            raise self.refused(f"no list of {key}")
        if len(value) > most:
            raise self.refused(f"{len(value)} {key}, of which there are {most} at most")
        texts = self._texts(value, key)
        if len(set(texts)) < len(texts):
            raise self.refused(f"{key} that come twice")
        return texts

    def whole(self, key: str, least: int = 0, most: int = 2**53) -> int:
        """A whole number."""
        return self._whole(self.content.said.get(key), key, least, most)

    def wholes(self, key: str, length: int, least: int, most: int) -> list[int]:
        """So many whole numbers, of any size."""
        value = self.content.said.get(key)
        if not isinstance(value, list) or len(value) != length:
            raise self.refused(f"no {length} numbers as {key}")
        return [self._whole(number, key, least, most) for number in value]

    def counts(self, key: str, shape: tuple[int, ...]) -> np.ndarray:
        """Whole numbers that are not below 0."""
        array = self._array(key, shape)
        if array.dtype.kind not in "iu" or (array.size and array.min() < 0):
            raise self.refused(f"{key} that are no counts")
        return array.astype(np.int64)

    def numbers(self, key: str, shape: tuple[int, ...], *, least: float = -math.inf) -> np.ndarray:
        """Finite numbers."""
        array = self._array(key, shape)
        if array.dtype.kind not in "iuf" or not np.isfinite(array).all():
            raise self.refused(f"{key} that are not finite")
        if array.size and array.min() < least:
            raise self.refused(f"{key} below {least:g}")
        return array.astype(np.float64)

    def truths(self, key: str, length: int) -> np.ndarray:
        """So many times yes or no."""
        array = self._array(key, (length,))
        if array.dtype.kind not in "biu" or not np.isin(array, (0, 1)).all():
            raise self.refused(f"{key} that are neither yes nor no")
        return array.astype(bool)

    def _array(self, key: str, shape: tuple[int, ...]) -> np.ndarray:
        array = self.content.arrays.get(key)
        if not isinstance(array, np.ndarray):
            raise self.refused(f"no {key}")
        if array.shape != shape:
            raise self.refused(f"{key} of shape {list(array.shape)} instead of {list(shape)}")
        return array

    def _whole(self, value: Any, key: str, least: int, most: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.refused(f"{value!r:.50} as {key}")
        return value

    def _texts(self, values: list[Any], what: str) -> list[str]:
        for value in values:
            if not isinstance(value, str) or len(value) > LONGEST_TEXT:
                raise self.refused(f"{value!r:.50} among its {what}")
        return values
