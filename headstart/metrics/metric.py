"""A metric: what is measured, how samples are summed up, which way is better, and how it is shown."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from headstart.core import checks, takes
from headstart.errors import UsageError

__all__ = ["Metric", "average", "measure", "without_filling"]

Measure = Callable[[Any, Any, Array], Array]
"""``(outputs, targets, weight) -> number`` of a whole set of samples."""

PERCENT = "%"
SIGNIFICANT = 4
"""Digits of a number that may be of any size; one less where it begins with a zero."""
LONGEST = 7
"""So many digits before the point are shorter than an exponent."""


@dataclass(frozen=True)
class Metric:
    """One number for a client's samples, from the model's outputs for them and their targets.

    >>> halved = Metric.from_function("half error", lambda outputs, targets: abs(outputs - targets) / 2, unit="cm")
    >>> halved.title, halved.show(1.23456)
    ('half error, cm', '1.235')
    """

    name: str
    measure: Measure | None = None
    """``None`` for what only a problem can compute, such as its loss."""
    higher_is_better: bool = False
    unit: str = ""
    """In which it is shown; ``"%"`` shows a share as a percentage."""
    decimals: int | None = None
    """As many are shown; left out, one of a percentage, and of anything else three or four significant digits."""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise UsageError(f"A metric cannot be called {self.name!r}.", "Name it by a word or two.")
        if self.name in RESERVED:
            raise UsageError(
                f"A metric cannot be called {self.name!r}: tables of scores have a column of that name.",
                "Call it something else.",
            )
        if self.decimals is not None:
            checks.whole("decimals", self.decimals, 0)

    @classmethod
    def from_function(
        cls,
        name: str,
        function: Callable[..., Any],
        *,
        higher_is_better: bool = False,
        unit: str = "",
        decimals: int | None = None,
    ) -> "Metric":
        """A metric of one's own.

        ``function(outputs, targets)`` gives a value for every sample, of which the metric is the mean;
        ``function(outputs, targets, weight)`` gives the number of the whole set, where a sample of weight zero must
        not count.
        """
        summed = _Whole if takes(function, "weight") else _Mean
        return cls(name, summed(name, function), higher_is_better, unit, decimals)

    @property
    def title(self) -> str:
        """The name, with the unit that shown values have."""
        return f"{self.name}, {self.unit}" if self.unit else self.name

    @property
    def scale(self) -> float:
        """What a value is multiplied with to be shown."""
        return 100.0 if self.unit == PERCENT else 1.0

    def show(self, value: float, beside: float | None = None) -> str:
        """A value in the metric's unit; with as many decimals as another value that it stands ``beside``."""
        if not math.isfinite(value):
            return "∞" if value == math.inf else "-∞" if value == -math.inf else "none"
        if self.decimals is not None or self.unit == PERCENT:
            return f"{self.scale * value:.{1 if self.decimals is None else self.decimals}f}"
        largest = abs(value) if beside is None or not math.isfinite(beside) else abs(beside)
        size = math.floor(math.log10(largest)) if largest else 0
        if -SIGNIFICANT < size < LONGEST:
            digits = SIGNIFICANT if size >= 0 else SIGNIFICANT - 1
            return f"{value:.{max(0, digits - 1 - size)}f}"
        return f"{value:.{SIGNIFICANT - 2}e}"

    def better(self, value: float, than: float) -> bool:
        """Whether one value is better than another; anything is better than NaN."""
        if math.isnan(value) or math.isnan(than):
            return not math.isnan(value)
        return value > than if self.higher_is_better else value < than

    def description(self) -> dict[str, Any]:
        """What a record keeps of it, as plain values."""
        return {
            "name": self.name,
            "higher_is_better": self.higher_is_better,
            "unit": self.unit,
            "decimals": self.decimals,
        }


RESERVED = frozenset({"round", "client", "held_out", "validation", "steps", "run", "algorithm", "seed"})
"""Columns of tables of scores that say what a row is of."""


def measure(metrics: tuple[Metric, ...], outputs: Any, targets: Any, weight: Array | None) -> dict[str, Array]:
    """Every metric of outputs and targets; rows of weight zero count in none, whatever they hold.

    Outputs that are not numbers have no score: every metric of theirs is NaN.
    """
    outputs = jax.tree.map(_precise, outputs)
    if weight is None:
        weight = jnp.ones(jax.tree.leaves(outputs)[0].shape[0], _float(outputs))
    else:
        outputs, targets = without_filling((outputs, targets), weight)
    weight = weight.astype(_float(outputs))
    broken = jnp.any(jnp.stack([jnp.any(jnp.isnan(leaf)) for leaf in jax.tree.leaves(outputs)]))
    return {
        metric.name: jnp.where(broken, jnp.nan, metric.measure(outputs, targets, weight))
        for metric in metrics
        if metric.measure is not None
    }


def average(values: Array, weight: Array) -> Array:
    """The mean of values by weight; those of weight zero may be anything, NaN too."""
    return jnp.sum(jnp.where(weight > 0, weight * values, 0)) / jnp.sum(weight)


@dataclass(frozen=True)
class _Mean:
    """The mean of a user's value for every sample, which may be a whole number or a truth value."""

    name: str
    function: Callable[[Any, Any], Any]

    def __call__(self, outputs: Any, targets: Any, weight: Array) -> Array:
        values = jnp.asarray(self.function(outputs, targets))
        if values.shape != weight.shape:
            raise UsageError(
                f"The metric {self.name!r} gives values of shape {list(values.shape)} for {weight.size} samples.",
                "Return one value per sample, or take (outputs, targets, weight) and return one number.",
            )
        return average(values.astype(weight.dtype), weight)


@dataclass(frozen=True)
class _Whole:
    """A user's number for a whole set of samples."""

    name: str
    function: Callable[[Any, Any, Array], Any]

    def __call__(self, outputs: Any, targets: Any, weight: Array) -> Array:
        value = jnp.asarray(self.function(outputs, targets, weight))
        if value.shape != ():
            raise UsageError(
                f"The metric {self.name!r} takes weights and gives values of shape {list(value.shape)}.",
                "Return one number for the whole set, or take (outputs, targets) and return one per sample.",
            )
        return value.astype(weight.dtype)


def without_filling(rows: Any, weight: Array) -> Any:
    """Rows with the first one that counts in place of those of weight zero, for zero times NaN is NaN."""
    counts = weight > 0
    first = jnp.argmax(counts)

    def fill(leaf: Array) -> Array:
        return jnp.where(counts.reshape(-1, *[1] * (leaf.ndim - 1)), leaf, leaf[first])

    return jax.tree.map(fill, rows)


def _precise(leaf: Array) -> Array:
    """Numbers of at least single precision, for a mean of many in half precision is wrong in the second digit."""
    return leaf.astype(jnp.promote_types(leaf.dtype, jnp.float32)) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf


def _float(outputs: Any) -> Any:
    """The type in which metrics of these outputs are computed."""
    return jnp.promote_types(jnp.result_type(*jax.tree.leaves(outputs)), jnp.float32)
