"""What was learned about a table's columns, and how stored rows become what a model takes."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from headstart.data.samples import plain_examples
from headstart.errors import UsageError
from headstart.problems import Examples

__all__ = ["MISSING", "MISSING_CATEGORY", "CategoryColumn", "Encoding", "NumberColumn", "bent"]

MISSING = -(2.0**100)
"""How a missing number is stored: pools of samples hold finite numbers only, and so many of these add up to one."""

MISSING_CATEGORY = "(missing)"
"""What a missing text is called; it is a category like others."""


@dataclass(frozen=True)
class NumberColumn:
    """A column of numbers, stored less ``offset`` and given to a model as ``(stored - center) * scale``.

    The offset keeps numbers such as 1,700,000,000.25 apart in single precision. A missing number becomes ``fill``, the
    mean, and where ``indicated`` a further feature is 1. Where ``bend`` is not 0 the column has heavy tails, and
    ``arcsinh((stored - middle) / bend)`` takes the place of what is stored: the same near the middle, a logarithm far
    from it.
    """

    name: str
    offset: float = 0.0
    center: float = 0.0
    scale: float = 1.0
    fill: float = 0.0
    indicated: bool = False
    middle: float = 0.0
    bend: float = 0.0


def bent(values: Any, middle: Any, bend: Any, arcsinh: Callable[[Any], Any]) -> Any:
    """Numbers of heavy tails drawn in, by NumPy or JAX."""
    return arcsinh((values - middle) / bend)


@dataclass(frozen=True)
class CategoryColumn:
    """A column of texts, stored as the number of the category and given to a model as one feature a known one.

    ``known`` are the categories that training saw; all features of another are 0.
    """

    name: str
    categories: tuple[str, ...]
    known: tuple[str, ...] = ()


@dataclass(frozen=True)
class Encoding:
    """How stored rows become a model's inputs. It is hashable, so that equal encodings share compiled programs.

    Features come in this order: the numbers, the indicators of missing ones, the categories.

    >>> age, sex = NumberColumn("age", center=40.0, scale=0.1), CategoryColumn("sex", ("f", "m"), known=("f", "m"))
    >>> encoding = Encoding((age, sex))
    >>> encoding.features
    ('age', 'sex=f', 'sex=m')
    >>> encoding(Examples(np.array([[50.0, 1.0]]), np.array([0]))).x.tolist()
    [[1.0, 0.0, 1.0]]
    >>> Encoding.from_json(encoding.to_json()) == encoding
    True
    """

    columns: tuple[NumberColumn | CategoryColumn, ...]
    per_client: bool = False
    """Whether stored numbers are standardised already, with every client's own mean and deviation."""
    limit: float | None = None
    """How far from 0 a number may be that a model is given; what is further is moved there."""

    @property
    def numbers(self) -> tuple[tuple[int, NumberColumn], ...]:
        """The columns of numbers and where they are stored."""
        return tuple((i, column) for i, column in enumerate(self.columns) if isinstance(column, NumberColumn))

    @property
    def categories(self) -> tuple[tuple[int, CategoryColumn], ...]:
        """The columns of categories and where they are stored."""
        return tuple((i, column) for i, column in enumerate(self.columns) if isinstance(column, CategoryColumn))

    @property
    def features(self) -> tuple[str, ...]:
        """What a model's inputs are called."""
        return (
            *(column.name for _, column in self.numbers),
            *(f"{column.name} is missing" for _, column in self.numbers if column.indicated),
            *(f"{column.name}={value}" for _, column in self.categories for value in column.known),
        )

    def __call__(self, batch: Examples) -> Examples:
        """From stored rows to what a loss takes."""
        batch = plain_examples(Examples(jnp.asarray(batch.x), jnp.asarray(batch.y)))
        parts = []
        if self.numbers:
            stored = batch.x[:, np.array([i for i, _ in self.numbers])]
            center, scale, fill, middle, bend = (
                np.array([getattr(column, what) for _, column in self.numbers], stored.dtype)
                for what in ("center", "scale", "fill", "middle", "bend")
            )
            missing = stored == MISSING
            values = jnp.where(missing, fill, stored)
            if bend.any():
                values = jnp.where(bend > 0, bent(values, middle, np.where(bend > 0, bend, 1), jnp.arcsinh), values)
            values = (values - center) * scale
            parts.append(values if self.limit is None else jnp.clip(values, -self.limit, self.limit))
            indicated = [k for k, (_, column) in enumerate(self.numbers) if column.indicated]
            if indicated:
                parts.append(missing[:, np.array(indicated)].astype(stored.dtype))
        for i, column in self.categories:
            known = np.array([column.categories.index(value) for value in column.known], batch.x.dtype)
            parts.append((batch.x[:, i, None] == known).astype(batch.x.dtype))
        return Examples(jnp.concatenate(parts, axis=1), batch.y)

    def to_json(self) -> dict[str, Any]:
        """As plain values, for a file."""
        kinds = {NumberColumn: "number", CategoryColumn: "category"}
        columns = [{"kind": kinds[type(column)], **asdict(column)} for column in self.columns]
        return {"columns": columns, "per_client": self.per_client, "limit": self.limit}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Encoding":
        """From plain values."""
        try:
            columns = tuple(_column(dict(column)) for column in content["columns"])
            return cls(columns, bool(content["per_client"]), content["limit"])
        except (KeyError, TypeError) as error:
            raise UsageError(f"This is not an encoding: {error}.", "Give what Encoding.to_json made.") from error


def _column(content: dict[str, Any]) -> NumberColumn | CategoryColumn:
    if content.pop("kind") == "number":
        return NumberColumn(**content)
    return CategoryColumn(content["name"], tuple(content["categories"]), tuple(content["known"]))
