"""How a client makes the model its own: by which method's rule, in how many steps of which size, on which batches."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from headstart import algorithms
from headstart.algorithms import MetaFL
from headstart.config import plan
from headstart.core import FULL, Algorithm, Size
from headstart.errors import UsageError, did_you_mean

__all__ = ["AdaptationRule", "rule_of"]

METHODS: Mapping[str, type[Algorithm]] = {
    name: kind
    for name in algorithms.__all__
    if isinstance(kind := getattr(algorithms, name), type) and issubclass(kind, Algorithm)
}
"""The bundled methods: those that a file can ask for."""


@dataclass(frozen=True)
class AdaptationRule:
    """The method's own way from the shared model to a client's."""

    method: str
    """What the method was called in its run."""
    algorithm: str
    """The class that has the rule; plain gradient steps for a method of the user's own."""
    settings: Mapping[str, Any]
    steps: int = 1
    """As many as served best in the run."""
    lr: float | None = None
    """The size of a step; left out for methods that adapt in a way of their own."""
    batch_size: Size = FULL

    def __post_init__(self) -> None:
        counts = [self.steps, self.batch_size, *self.settings.values()]
        if not all(0 <= count <= MOST for count in counts if isinstance(count, int)):
            raise UsageError(f"adaptation: a number of steps or of samples is below 0 or above {MOST:,}.")
        if self.lr is not None and not 0 <= self.lr < math.inf:
            raise UsageError(f"adaptation.lr = {self.lr} is no step size.")

    def build(self) -> Algorithm:
        """The method, as far as adapting goes."""
        if self.algorithm not in METHODS:
            raise UsageError(f"There is no method {self.algorithm!r}.", did_you_mean(self.algorithm, METHODS))
        method: Algorithm = plan(METHODS[self.algorithm], self.settings, "adaptation").build()
        return method if self.lr is None else method.adapting(self.lr)

    def changed(self, steps: int, lr: float | None) -> "AdaptationRule":
        """The rule with what was chosen for a client."""
        return replace(self, steps=steps, lr=lr)


PLAIN_STEP = 0.01
"""The step size for a method of the user's own that has none."""
MOST = 1_000_000
"""The most steps and samples of a batch that a file can ask for."""


def rule_of(algorithm: Algorithm, method: str, steps: int, batch_size: Size) -> AdaptationRule:
    """What a file says of a method that adapts as this one does."""
    settings = {
        field.name: said
        for field in fields(algorithm)
        if not field.name.startswith("_") and (said := _said(algorithm, field.name)) is not None
    }
    lr = None if algorithm.adapts_by is None else float(settings[algorithm.adapts_by])
    name = type(algorithm).__name__
    if METHODS.get(name) is not type(algorithm):
        name, settings, lr = MetaFL.__name__, {}, PLAIN_STEP if lr is None else lr
    return AdaptationRule(method, name, settings, steps, lr, batch_size)


def _said(algorithm: Algorithm, field: str) -> Any:
    """A setting as plain values; what local steps alone depend on, such as an optimizer, is left out."""
    value = vars(algorithm)[field]
    if hasattr(value, "dtype") and hasattr(value, "shape") and value.shape == ():
        value = value.item()
    if isinstance(value, tuple) and all(isinstance(item, int) for item in value):
        return list(value)
    return value if isinstance(value, (bool, int, float, str)) else None
