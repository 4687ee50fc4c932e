"""Feature shift: every client sees its images turned by an angle of its own."""

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from headstart.core import checks
from headstart.data.partitions.partition import Partition, Partitioner
from headstart.data.partitions.sizes import IID
from headstart.data.rows import RowLists
from headstart.data.samples import Samples
from headstart.errors import UsageError

__all__ = ["Rotations"]

EVEN = IID()
"""What is turned unless another partition is given."""


@dataclass(frozen=True)
class Rotations(Partitioner):
    """Another partition whose clients see their images turned, each by one of some angles (degrees, anticlockwise).

    Angles are dealt evenly and at random. Quarter turns are exact; others interpolate and fill corners with zeros. The
    partition's samples are turned copies of the rows in use, with the angle in the column ``angle``.
    """

    base: Partitioner = EVEN
    angles: tuple[float, ...] = (0, 90, 180, 270)

    def __post_init__(self) -> None:
        if not self.angles:
            raise UsageError("angles is empty.", "Give one angle or more, in degrees.")
        for angle in self.angles:
            checks.at_least("angles", angle, -360)

    def __call__(self, samples: Samples, seed: int) -> Partition:
        if samples.x.ndim not in (3, 4):
            raise UsageError(
                f"{samples.name}: samples of shape {samples.x.shape[1:]} are no images.",
                "Rotations need images of height, width and, where there are any, channels.",
            )
        height, width = samples.x.shape[1:3]
        if height != width and any(angle % 180 for angle in self.angles):
            raise UsageError(
                f"{samples.name}: images of {height} by {width} cannot be turned by other angles than 180.",
                "Cut them square, or set angles to [0, 180].",
            )
        partition = self.base(samples, seed)
        clients = len(partition)
        turn = np.random.default_rng(seed).permutation(np.arange(clients) % len(self.angles))
        parts = [partition.train, partition.query, *([] if partition.support is None else [partition.support])]
        # A row that several clients see becomes a row for each angle it is seen at.
        seen = [lists.rows * len(self.angles) + np.repeat(turn, lists.counts) for lists in parts]
        copies, places = np.unique(np.concatenate(seen), return_inverse=True)
        rows, angle = np.divmod(copies, len(self.angles))
        flat = np.split(places, np.cumsum([len(these) for these in seen])[:-1])
        turned = [RowLists(place, lists.starts) for place, lists in zip(flat, parts, strict=True)]
        return replace(
            partition,
            samples=self._turned(partition.samples, rows, angle),
            train=turned[0],
            query=turned[1],
            support=None if partition.support is None else turned[2],
        )

    def _turned(self, samples: Samples, rows: np.ndarray, angle: np.ndarray) -> Samples:
        x = samples.x[rows]
        for number, degrees in enumerate(self.angles):
            mine = angle == number
            x[mine] = _rotated(x[mine], degrees)
        return replace(
            samples,
            x=x,
            y=samples.y[rows],
            test=None if samples.test is None else samples.test[rows],
            columns={name: _taken(values, rows) for name, values in samples.columns.items()}
            | {"angle": np.asarray(self.angles)[angle]},
            known_fingerprints=None,
        )


def _rotated(images: np.ndarray, degrees: float) -> np.ndarray:
    if degrees % 90 == 0:
        return np.rot90(images, int(degrees // 90), axes=(1, 2))
    from scipy import ndimage  # which takes half a second to import

    return ndimage.rotate(images, degrees, axes=(2, 1), reshape=False, order=1)


def _taken(values: np.ndarray | pa.DictionaryArray, rows: np.ndarray) -> np.ndarray | pa.DictionaryArray:
    return values[rows] if isinstance(values, np.ndarray) else values.take(pa.array(rows))
