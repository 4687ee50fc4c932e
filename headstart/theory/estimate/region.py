"""Where constants are to hold: convex sets of parameters that a search can start in and climb inside."""

from abc import abstractmethod
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree

from headstart.core import Params, checks
from headstart.errors import UsageError
from headstart.theory.estimate.lanczos import norm_or_one

__all__ = ["Ball", "Hull", "Region"]


ACROSS = 4.0
"""The length of a step of 1 in a ball, in radii."""


class Region(eqx.Module):
    """A convex set of parameters. Vectors are the parameters' leaves one after the other."""

    @property
    @abstractmethod
    def example(self) -> Params:
        """Some parameters in it, for their structure."""

    @abstractmethod
    def starts(self, count: int, key: Array) -> Array:
        """``count`` vectors in it, one a row, well spread."""

    @abstractmethod
    def move(self, here: Array, direction: Array, step: Array) -> Array:
        """A vector in it, from ``here`` along a direction: near it for small steps, across it for a step of 1."""


class Ball(Region):
    """All parameters within a Euclidean distance of ``center``."""

    center: Params
    radius: Array | float

    def __check_init__(self) -> None:
        checks.at_least("radius", self.radius, 0)
        _check_floating(self.center)

    @property
    def example(self) -> Params:
        return self.center

    def starts(self, count: int, key: Array) -> Array:
        """The center, and uniform draws."""
        center, _ = ravel_pytree(self.center)
        direction_key, radius_key = jax.random.split(key)
        directions = jax.random.normal(direction_key, (count, center.size), center.dtype)
        directions = directions / jnp.linalg.norm(directions, axis=1, keepdims=True)
        lengths = jax.random.uniform(radius_key, (count, 1), center.dtype) ** (1 / center.size)
        return center + self.radius * (lengths * directions).at[0].set(0)

    def move(self, here: Array, direction: Array, step: Array) -> Array:
        """Straight on and projected: a step of 1 ends close to the edge's farthest point in the direction."""
        center, _ = ravel_pytree(self.center)
        unit = direction / norm_or_one(jnp.linalg.norm(direction))
        offset = here + step * ACROSS * self.radius * unit - center
        return center + offset * jnp.minimum(1, self.radius / norm_or_one(jnp.linalg.norm(offset)))


class Hull(Region):
    """The convex hull of some points: a segment, or the models that a run has passed through."""

    points: Params
    """All points, stacked along a leading axis."""

    def __init__(self, points: Sequence[Params]):
        if not len(points):
            raise UsageError("The hull has no points.", "Give one pytree of parameters or more.")
        _check_floating(points[0])
        self.points = jax.tree.map(lambda *leaves: jnp.stack(leaves), *points)

    @property
    def example(self) -> Params:
        return jax.tree.map(lambda leaf: leaf[0], self.points)

    def starts(self, count: int, key: Array) -> Array:
        """The points themselves, evenly chosen where they are too many; where too few, random mixtures too."""
        vertices = self._vertices()
        if count <= len(vertices):
            return vertices[jnp.linspace(0, len(vertices) - 1, count).round().astype(int)]
        shares = jax.random.dirichlet(key, jnp.ones(len(vertices)), (count - len(vertices),)).astype(vertices.dtype)
        return jnp.concatenate([vertices, shares @ vertices])

    def move(self, here: Array, direction: Array, step: Array) -> Array:
        """Towards the point that lies farthest in the direction, which needs no projection (Frank-Wolfe)."""
        vertices = self._vertices()
        farthest = vertices[jnp.argmax(vertices @ direction)]
        return here + step * jnp.any(direction != 0) * (farthest - here)

    def _vertices(self) -> Array:
        return jax.vmap(lambda point: ravel_pytree(point)[0])(self.points)


def _check_floating(params: Params) -> None:
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        if not jnp.issubdtype(jnp.result_type(leaf), jnp.floating):
            raise UsageError(
                f"The parameter {jax.tree_util.keystr(path) or 'itself'} is not of floating point.",
                "Give parameters as problem.init makes them.",
            )
