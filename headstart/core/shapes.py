"""Shapes in place of data: what a server, which has none, knows of its clients' samples."""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from headstart.core.batch import FULL, Batch, Sides, Size

__all__ = ["ShapedSamples", "Shapes"]


class Shapes(NamedTuple):
    """The structure, shapes and types of a pytree; equal ones are equal, and they can be hashed."""

    structure: Any
    leaves: tuple[tuple[tuple[int, ...], str], ...]

    @classmethod
    def of(cls, value: Any) -> "Shapes":
        """Those of arrays, or of what ``jax.eval_shape`` gives."""
        leaves, structure = jax.tree.flatten(value)
        return cls(structure, tuple((jnp.shape(leaf), jnp.result_type(leaf).name) for leaf in leaves))

    def zeros(self) -> Any:
        """A zero of these shapes."""
        return jax.tree.unflatten(self.structure, [jnp.zeros(shape, dtype) for shape, dtype in self.leaves])

    def nbytes(self) -> int:
        """Bytes of all leaves."""
        return sum(math.prod(shape) * jnp.dtype(dtype).itemsize for shape, dtype in self.leaves)


class ShapedSamples(eqx.Module):
    """Samples that are all zero, of the shapes that one row of a batch has; keeps the ``ClientTasks`` contract."""

    row: Shapes = eqx.field(static=True)

    def sample(self, key: Array, size: Size) -> Batch:
        """So many zeros; one for a client's whole data, whose number is not known."""
        number = 1 if size == FULL else size
        return jax.tree.map(lambda zero: jnp.broadcast_to(zero, (number, *zero.shape)), self.row.zeros())

    def episode(self, key: Array) -> Sides:
        """Both sides are alike."""
        return Sides(self, self)

    @property
    def task_count(self) -> int:
        """One."""
        return 1

    def task(self, number: Array | int) -> "ShapedSamples":
        """Tasks are alike."""
        return self
