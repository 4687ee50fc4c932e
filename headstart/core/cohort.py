"""Which clients take part in a round, and how much each one counts."""

import math
from typing import Literal

import jax
import jax.numpy as jnp
from jax import Array

from headstart.core import checks
from headstart.errors import UsageError

__all__ = ["Weighting", "cohort_size", "draw_cohort"]

Weighting = Literal["uniform", "samples"]
"""Every client alike (the papers), or in proportion to its number of training samples (FedAvg's original)."""


def cohort_size(cohort: float | int, clients: int) -> int:
    """The number of clients a round from a share in (0, 1] or a count; at least one.

    A share is a ``float`` (``1.0`` is everyone), a count an ``int``.
    """
    if isinstance(cohort, bool) or not isinstance(cohort, (int, float)):
        raise UsageError(f"cohort = {cohort!r} is not a number.", "Give a share in (0, 1] or a number of clients.")
    if isinstance(cohort, int):
        if not 1 <= cohort <= clients:
            raise UsageError(
                f"cohort = {cohort} clients of {clients}.", f"Give a count from 1 to {clients}, or a share in (0, 1]."
            )
        return cohort
    checks.in_unit_interval("cohort", cohort)
    return max(1, math.floor(cohort * clients + 0.5))


def draw_cohort(key: Array, clients: int, size: int) -> Array:
    """``size`` of ``clients`` uniformly without replacement, at a cost that does not grow with ``clients``.

    Floyd's algorithm: the j-th draw takes a number below ``clients - size + j + 1``, and its own upper end
    where that number is already in the cohort. Its ``size ** 2`` comparisons lose to a shuffle when the
    cohort is a large part of everyone.
    """
    if size == clients:
        return jnp.arange(clients)
    if size**2 > 32 * clients:
        return jax.random.permutation(key, clients)[:size]
    upper = jnp.arange(clients - size, clients)
    candidates = jax.random.randint(key, (size,), 0, upper + 1)

    def place(j: Array, chosen: Array) -> Array:
        taken = jnp.any(chosen == candidates[j])
        return chosen.at[j].set(jnp.where(taken, upper[j], candidates[j]))

    return jax.lax.fori_loop(0, size, place, jnp.full((size,), -1, candidates.dtype))
