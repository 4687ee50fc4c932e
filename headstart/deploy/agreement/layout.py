"""What is settled before rows are split: how they are stored, and who the clients are."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from headstart.data.samples import Samples, TargetScale
from headstart.data.tables import Encoding
from headstart.errors import UsageError

__all__ = ["Layout"]


@dataclass(frozen=True)
class Layout:
    """How rows are stored at every site, and the clients of all sites by number."""

    names: tuple[str, ...]
    """Those that train, then those for validation, then those that are new."""
    trained: int
    validation: int
    classes: tuple[str, ...] | None
    encoding: Encoding | None
    """The columns of a table, not fitted yet; ``None`` where samples are arrays that are taken as they are."""
    shape: tuple[int, ...]
    """Of one stored row."""
    dtype: str
    offset: float = 0.0
    """What targets are stored less of."""

    @property
    def total(self) -> int:
        """How many clients there are."""
        return len(self.names)

    def samples(self, name: str, encoding: Encoding | None, target: TargetScale) -> Samples:
        """Samples of which there are none, as a model's shapes and file need them."""
        y = np.zeros(0, np.float32 if self.classes is None else np.int32)
        return Samples(
            name,
            np.zeros((0, *self.shape), self.dtype),
            y,
            self.classes,
            transform=encoding,
            features=None if encoding is None else encoding.features,
            target=target,
        )

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "names": list(self.names),
            "trained": self.trained,
            "validation": self.validation,
            "classes": None if self.classes is None else list(self.classes),
            "encoding": None if self.encoding is None else self.encoding.to_json(),
            "shape": list(self.shape),
            "dtype": self.dtype,
            "offset": self.offset,
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Layout":
        """From plain values."""
        try:
            classes, encoding = content["classes"], content["encoding"]
            return cls(
                names=tuple(map(str, content["names"])),
                trained=int(content["trained"]),
                validation=int(content["validation"]),
                classes=None if classes is None else tuple(map(str, classes)),
                encoding=None if encoding is None else Encoding.from_json(encoding),
                shape=tuple(map(int, content["shape"])),
                dtype=np.dtype(content["dtype"]).name,
                offset=float(content["offset"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(f"This is no agreed layout: {error}.", "Let the sites agree again.") from error
