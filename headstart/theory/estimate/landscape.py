"""What is climbed in search of a supremum, and the climb."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from headstart.core import checks
from headstart.theory.estimate.losses import ClientLosses
from headstart.theory.estimate.region import Region

__all__ = ["Effort", "Landscape", "Peak", "Quantity", "climb", "perturbed", "vectors_at_once"]


@dataclass(frozen=True)
class Effort:
    """How hard to search. Suprema that are found by search are lower bounds; more effort brings them closer."""

    starts: int = 8
    """Points of the region where a search starts; the spread of their ends is part of the standard error."""
    climbs: int = 2
    """From each start, how many clients' values are climbed: those largest at the start."""
    steps: int = 30
    """Steps of a climb, each a gradient and the quantity itself at a new point."""
    products: int = 16
    """Hessian-vector products for each spectral norm (Lanczos steps)."""
    samples: int | None = 64
    """Samples a client whose own Hessians are looked at; ``None`` for all."""

    def __post_init__(self) -> None:
        checks.whole("starts", self.starts, 2)
        checks.whole("climbs", self.climbs, 0)
        checks.whole("steps", self.steps, 0)
        checks.whole("products", self.products, 2)
        if self.samples is not None:
            checks.whole("samples", self.samples, 2)


class Landscape(NamedTuple):
    """A height over the parameters: a weighted sum of ``terms``, maximal over auxiliary unit vectors.

    By the envelope theorem the height's gradient is that of the terms with the vectors held.
    """

    vectors: Any
    """Where the vectors start."""
    refine: Callable[[Array, Any, Array], Any]
    """Better vectors at ``w``, from older ones and a key."""
    terms: Callable[[Array, Any], Array]
    """What is averaged at ``w`` given the vectors; squares, so that it is smooth."""
    weights: Array
    """The weight of each term; zero for terms that only fill up."""


class Quantity(eqx.Module):
    """One constant, as something to climb."""

    @abstractmethod
    def landscape(self, losses: ClientLosses, place: Array, start: Array, key: Array) -> Landscape:
        """The landscape of one client, or of the clients listed in ``place``, to be climbed from ``start``."""


class Peak(NamedTuple):
    """Where a climb ended."""

    height: Array
    terms: Array
    weights: Array
    w: Array


@jax.jit
def climb(
    quantity: Quantity, losses: ClientLosses, region: Region, place: Array, start: Array, steps: Array, key: Array
) -> Peak:
    """Ascent from ``start``; a step that does not climb is taken back and halved.

    Even where the height does not depend on the point, each step improves the auxiliary vectors.
    """
    first_key, key = jax.random.split(key)
    landscape = quantity.landscape(losses, place, start, first_key)

    def height(w: Array, vectors: Any) -> tuple[Array, Array]:
        terms = landscape.terms(w, vectors)
        return jnp.vdot(landscape.weights.astype(terms.dtype), terms), terms

    def step(number: Array, state: Any) -> Any:
        here, length = state
        w, vectors, value, _ = here
        # A mere look at the start needs no slope; it is part of the loop so as to be compiled once.
        slope = jax.lax.cond(number > 0, lambda: jax.grad(height, has_aux=True)(w, vectors)[0], lambda: 0 * w)
        w = region.move(w, slope, length)
        vectors = landscape.refine(w, vectors, jax.random.fold_in(key, number))
        there = (w, vectors, *height(w, vectors))
        higher = there[2] >= value
        kept = jax.tree.map(partial(jnp.where, higher), there, here)
        return kept, jnp.where(higher, jnp.minimum(2 * length, 1), length / 2)

    lowest = jnp.full((), -jnp.inf, start.dtype)
    nothing = (start, landscape.vectors, lowest, jnp.zeros(landscape.weights.shape, start.dtype))
    (w, _, value, terms), _ = jax.lax.fori_loop(0, steps + 1, step, (nothing, jnp.ones((), start.dtype)))
    return Peak(value, terms, landscape.weights, w)


def perturbed(vector: Array, key: Array) -> Array:
    """A vector with a little of every direction, so that an iteration from it can leave a stationary point."""
    noise = jax.random.normal(key, vector.shape, vector.dtype)
    return vector + 0.1 * jnp.linalg.norm(vector) / jnp.linalg.norm(noise) * noise


LIVE_NUMBERS = 2**18
"""About how many numbers the vectors that are worked on together may hold. More saves no time once one vector has
this many, as then every operation is long."""


def vectors_at_once(size: int, each: int = 1) -> int:
    """How many problems to work on together, where each keeps ``each`` vectors of ``size`` numbers."""
    return max(1, min(64, LIVE_NUMBERS // (size * each)))
