"""What a model predicts: classes by name, or numbers in their own units."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headstart.data.tables.reading import Source
from headstart.data.tables.roles import holding
from headstart.data.tables.spelling import number_of
from headstart.errors import UsageError

__all__ = ["Target", "class_names"]


@dataclass(frozen=True)
class Target:
    """The label: its column, its classes, or the units of its numbers (a model's outputs times scale plus mean)."""

    label: str | None = None
    classes: tuple[str, ...] | None = None
    """Left out for a regression, and where every client has classes of its own."""
    mean: float = 0.0
    scale: float = 1.0

    def names(self, numbers: np.ndarray) -> np.ndarray:
        """Classes by their numbers, as whole numbers or truth values where that is what they were."""
        if self.classes is None:
            return numbers
        return self.named_as_they_were[numbers]

    @property
    def named_as_they_were(self) -> np.ndarray:
        """The classes as labels of a table: texts, whole numbers or truth values."""
        classes = self.classes or ()
        if set(classes) <= {"True", "False"}:
            return np.array([name == "True" for name in classes])
        try:
            numbers = [int(name) for name in classes]
        except ValueError:
            return np.array(classes, object)
        whole = all(str(number) == name and abs(number) < 2**62 for number, name in zip(numbers, classes, strict=True))
        return np.array(numbers if whole else classes, np.int64 if whole else object)

    def units(self, outputs: np.ndarray) -> np.ndarray:
        """Outputs of a regression in the label's own units."""
        return np.asarray(outputs, np.float64) * self.scale + self.mean

    def standardised(self, labels: pa.Array, source: Source, rows: np.ndarray) -> np.ndarray:
        """Labels of a regression, all there, as the model was trained on them; ``rows`` are their places."""
        if holding(labels.type) == "texts":
            # As a frame has them whose numbers are written with signs between their digits or of money.
            spelt = [number_of(str(text), source.decimal) for text in labels.to_pylist()]
            if None not in spelt:
                labels = pa.array(spelt, pa.float64())
        if holding(labels.type) != "numbers":
            raise UsageError(
                f"{source.name}: the label {self.label!r} holds {labels.type}, no numbers.", "It did in training."
            )
        numbers = labels.cast(pa.float64()).to_numpy(zero_copy_only=False)
        bad = np.flatnonzero(~np.isfinite(numbers))
        if bad.size:
            raise UsageError(
                f"{source.place(int(rows[bad[0]]))} has the label {numbers[bad[0]]}.", "Leave the row out."
            )
        return ((numbers - self.mean) / self.scale).astype(np.float32)

    def coded(self, labels: pa.Array) -> np.ndarray:
        """Labels of a classification, all known, as numbers of classes."""
        number = {name: i for i, name in enumerate(self.classes or ())}
        return np.array([number[name] for name in class_names(labels)], np.int32)


def class_names(labels: pa.Array) -> list[str]:
    """The classes of rows, named as training names them."""
    if pa.types.is_floating(labels.type) or pa.types.is_decimal(labels.type):
        numbers = labels.cast(pa.float64()).to_numpy(zero_copy_only=False)
        return [str(int(value)) if float(value).is_integer() else str(value) for value in numbers]
    return [str(value) for value in labels.to_pylist()]
