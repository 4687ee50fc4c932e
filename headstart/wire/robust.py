"""Aggregates that a few poisoned updates cannot take over. Every client counts once."""

import math
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from headstart.core import Weighting, checks
from headstart.errors import UsageError
from headstart.wire.part import Aggregator
from headstart.wire.vector import is_number, working_dtype

__all__ = ["CoordinateMedian", "Krum", "TrimmedMean"]


class CoordinateMedian(Aggregator):
    """The median of every coordinate: right as long as more than half of the cohort is honest.

    Yin et al. 2018, Definition 1 (Algorithm 1, option I).
    """

    name: ClassVar[str] = "median"

    def combine(self, stacked: Any, weights: Array) -> Any:
        def middle(ordered: Array, rank: Array, members: Array) -> Array:
            # Not halved sums of two gathered rows: a mask keeps infinities of the others out.
            taken = (rank == (members - 1) // 2) | (rank == members // 2)
            return _mean_where(taken, ordered)

        return _by_rank(middle, stacked, weights)

    def check(self, weighting: Weighting, members: int) -> None:
        _refuse_weights(self, weighting)


class TrimmedMean(Aggregator):
    """The mean of every coordinate without its ``share`` largest and its ``share`` smallest values.

    ``floor(share * members)`` values go on each side; right as long as no more clients than that are poisoned.
    Yin et al. 2018, Definition 2 (Algorithm 1, option II).
    """

    share: Array | float = 0.1

    name: ClassVar[str] = "trimmed-mean"

    def __check_init__(self) -> None:
        checks.positive("aggregate.share", self.share)
        if is_number(self.share) and self.share >= 0.5:
            raise UsageError(
                f"aggregate.share = {self.share:g} leaves nothing: it is trimmed on both sides.",
                "Give a share below 0.5, or choose the median.",
            )

    def combine(self, stacked: Any, weights: Array) -> Any:
        def inner(ordered: Array, rank: Array, members: Array) -> Array:
            trimmed = jnp.minimum(jnp.floor(self.share * members + ROUNDING).astype(rank.dtype), (members - 1) // 2)
            return _mean_where((rank >= trimmed) & (rank < members - trimmed), ordered)

        return _by_rank(inner, stacked, weights)

    def check(self, weighting: Weighting, members: int) -> None:
        _refuse_weights(self, weighting)
        if is_number(self.share) and math.floor(self.share * members + ROUNDING) < 1:
            raise UsageError(
                f"aggregate.share = {self.share:g} of a cohort of {members} trims nobody.",
                f"Give a share of at least {1 / members:.2g}, or draw larger cohorts.",
            )


ROUNDING = 1e-4
"""Keeps a share such as 0.29 of 100 from trimming 28 in single precision."""


class Krum(Aggregator):
    """The update whose ``members - attackers - 2`` nearest others are nearest; the mean of the ``keep`` best ones.

    Blanchard et al. 2017, section 4 (Krum) and section 6 (Multi-Krum, ``keep > 1``). It needs cohorts of at least
    ``2 attackers + 3``.
    """

    attackers: int = eqx.field(static=True)
    keep: int = eqx.field(static=True, default=1)

    name: ClassVar[str] = "krum"

    def __check_init__(self) -> None:
        checks.whole("aggregate.attackers", self.attackers, 0)
        checks.whole("aggregate.keep", self.keep, 1)

    def combine(self, stacked: Any, weights: Array) -> Any:
        real = weights > 0
        squares = sum((_square_distances(leaf, real) for leaf in jax.tree.leaves(stacked)), jnp.zeros(()))
        # What is not finite is infinitely far from everything, and nobody is a neighbour of oneself.
        others = real[None, :] & ~jnp.eye(real.shape[0], dtype=bool)
        squares = jnp.sort(jnp.where(others & jnp.isfinite(squares), squares, jnp.inf), axis=1)
        nearest = jnp.arange(real.shape[0]) < jnp.sum(real) - self.attackers - 2
        scores = jnp.sum(jnp.where(nearest, squares, 0), axis=1)
        best_first = jnp.lexsort((scores, ~real))
        chosen = jnp.zeros_like(real).at[best_first[: self.keep]].set(True) & real
        return jax.tree.map(lambda leaf: _mean_where(_along(chosen, leaf), leaf), stacked)

    def check(self, weighting: Weighting, members: int) -> None:
        _refuse_weights(self, weighting)
        if members < 2 * self.attackers + 3:
            raise UsageError(
                f"Krum against {self.attackers} attackers needs cohorts of at least {2 * self.attackers + 3} clients, "
                f"not {members}.",
                "Draw larger cohorts or expect fewer attackers.",
            )
        if self.keep > members - self.attackers:
            raise UsageError(
                f"aggregate.keep = {self.keep} of {members} clients keeps some of the {self.attackers} attackers.",
                f"Keep at most {members - self.attackers}.",
            )


def _refuse_weights(aggregator: Aggregator, weighting: Weighting) -> None:
    if weighting != "uniform":
        raise UsageError(
            f"aggregate = {aggregator.name!r} counts every client once, and weighting = {weighting!r} does not: "
            "whoever claims many samples would own the result.",
            'Set weighting = "uniform".',
        )


def _along(members: Array, leaf: Array) -> Array:
    """A vector over members, shaped to broadcast over a stacked leaf."""
    return members.reshape(-1, *[1] * (leaf.ndim - 1))


def _mean_where(taken: Array, leaf: Array) -> Array:
    """The mean over the leading axis of what is taken; the rest may be anything."""
    values = jnp.where(taken, leaf, 0).astype(working_dtype(leaf))
    return (jnp.sum(values, axis=0) / jnp.sum(taken, axis=0)).astype(leaf.dtype)


def _by_rank(reduce: Callable[[Array, Array, Array], Array], stacked: Any, weights: Array) -> Any:
    """Reduce each coordinate's sorted values; those that fill a cohort up come last, as does a member's NaN."""
    real = weights > 0
    members = jnp.sum(real)

    def of_leaf(leaf: Array) -> Array:
        leaf = jnp.asarray(leaf)
        ordered = _sort_rows(jnp.where(_along(real, leaf) & ~jnp.isnan(leaf), leaf, jnp.inf))
        return reduce(ordered, _along(jnp.arange(real.shape[0]), leaf), members)

    return jax.tree.map(of_leaf, stacked)


def _sort_rows(leaf: Array) -> Array:
    """Every coordinate's values in order over the leading axis, by Batcher's bitonic network.

    Whole rows are compared with whole rows: on a CPU this takes a fifth of the time of XLA's sort along that axis.
    """
    members, rest = leaf.shape[0], leaf.shape[1:]
    width = 1 << (members - 1).bit_length()
    rows = jnp.concatenate([leaf, jnp.full((width - members, *rest), jnp.inf, leaf.dtype)])
    size = 2
    while size <= width:
        # Two sorted halves, one of them turned round, are merged at ever smaller distances.
        low, high = jnp.split(rows.reshape(width // size, size, *rest), 2, axis=1)
        rows = jnp.concatenate([jnp.minimum(low, high[:, ::-1]), jnp.maximum(low[:, ::-1], high)], axis=1)
        distance = size // 4
        while distance:
            low, high = jnp.split(rows.reshape(width // (2 * distance), 2 * distance, *rest), 2, axis=1)
            rows = jnp.concatenate([jnp.minimum(low, high), jnp.maximum(low, high)], axis=1)
            distance //= 2
        size *= 2
    return rows.reshape(width, *rest)[:members]


def _square_distances(leaf: Array, real: Array) -> Array:
    """Squared distances between all members' rows of a leaf.

    From differences and not from inner products, which lose the distance of near rows beside a far one.
    """
    rows = jnp.where(_along(real, leaf), leaf, 0).astype(working_dtype(leaf)).reshape(real.shape[0], -1)
    return jax.lax.map(lambda row: jnp.sum((rows - row) ** 2, axis=1), rows)
