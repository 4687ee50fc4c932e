"""The independent batches of one local step."""

from collections import Counter
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from headstart.core.batch import FULL, Batch, ClientSamples, Size, Weighted, check_size
from headstart.core.curvature import LooksAt
from headstart.errors import UsageError

__all__ = ["BatchSizes", "Episode"]

Sizes = Size | tuple[int, ...]


class Episode(NamedTuple):
    """The batches of one local step: ``2 nu + 1`` of them, or ``nu + 1`` where curvature needs none."""

    inner: Batch
    """Leading axis nu: jamali's D_0 .. D_(nu-1), fallah's D."""
    curvature: Batch
    """Leading axis nu: jamali's D'_0 .. D'_(nu-1), fallah's D''. ``inner`` again where the curvature looks there, and
    ``None`` for first order."""
    outer: Batch
    """Jamali's D_nu, fallah's D'."""


class BatchSizes(eqx.Module):
    """How many samples each batch of an episode holds, and whether they are independent.

    ``inner`` and ``curvature`` may be a tuple with one size an inner step (jamali's ``D_(i,j)``). With
    ``shared`` one batch of ``outer`` samples serves as every batch of the step: what much published code
    does, a different and biased estimator, so it has to be asked for.
    """

    outer: Size = eqx.field(static=True)
    inner: Sizes = eqx.field(static=True)
    curvature: Sizes = eqx.field(static=True)
    shared: bool = eqx.field(static=True)

    def __init__(self, outer: Size, inner: Sizes | None = None, curvature: Sizes | None = None, shared: bool = False):
        self.outer = outer
        self.inner = outer if inner is None else inner
        self.curvature = outer if curvature is None else curvature
        self.shared = shared
        check_size("batch_size", outer)
        for name, sizes in (("inner_batch_size", self.inner), ("curvature_batch_size", self.curvature)):
            for size in sizes if isinstance(sizes, tuple) else (sizes,):
                check_size(name, size)
            if isinstance(sizes, tuple) and FULL in sizes:
                raise UsageError(f"{name} = {sizes!r} mixes 'full' with numbers.", "List numbers only, or give 'full'.")
        if shared and not self.inner == self.curvature == outer:
            raise UsageError(
                "A shared batch has one size, but inner_batch_size or curvature_batch_size differs from batch_size.",
                "Leave both out, or set shared_batch to false.",
            )

    def check_steps(self, steps: int) -> None:
        """Reject a tuple of sizes that does not fit the number of inner steps."""
        for name, sizes in (("inner_batch_size", self.inner), ("curvature_batch_size", self.curvature)):
            if isinstance(sizes, tuple) and len(sizes) != steps:
                raise UsageError(
                    f"{name} lists {len(sizes)} sizes for {steps} inner steps.",
                    f"Give one size, or {steps} of them.",
                )

    def draw(self, client: ClientSamples, key: Array, steps: int, looks_at: LooksAt) -> Episode:
        """One episode, its batches drawn with keys of their own; ``looks_at`` says which of them the curvature sees."""
        outer_key, inner_key, curvature_key = jax.random.split(key, 3)
        data, judge = client.episode(key)
        one_draw = data is judge and self.inner == self.curvature == self.outer
        if one_draw and not self.shared and steps and looks_at == "own":
            # Equal batches in one draw: on a CPU every use of a key is a loop of its own, at microseconds each.
            keys = jax.vmap(lambda k: jax.random.split(k, steps))(jnp.stack([inner_key, curvature_key]))
            keys = jnp.concatenate([keys.reshape(2 * steps), outer_key[None]])
            every = jax.vmap(lambda k: data.sample(k, self.outer))(keys)
            return Episode(
                inner=jax.tree.map(lambda a: a[:steps], every),
                curvature=jax.tree.map(lambda a: a[steps : 2 * steps], every),
                outer=jax.tree.map(lambda a: a[2 * steps], every),
            )
        outer = judge.sample(outer_key, self.outer)
        if self.shared:
            every = jax.tree.map(lambda a: jnp.broadcast_to(a, (steps, *a.shape)), outer)
            return Episode(every, None if looks_at == "nothing" else every, outer)
        inner = _stacked(data, inner_key, self.inner, steps)
        if looks_at == "own":
            return Episode(inner, _stacked(data, curvature_key, self.curvature, steps), outer)
        return Episode(inner, inner if looks_at == "inner" else None, outer)

    def count(self, steps: int, looks_at: LooksAt) -> Counter[Size]:
        """How many batches of each size one episode draws."""
        sizes: list[Size] = [self.outer]
        if not self.shared:
            for family in (self.inner, self.curvature) if looks_at == "own" else (self.inner,):
                sizes += list(family) if isinstance(family, tuple) else [family] * steps
        return Counter(sizes)


def _stacked(client: ClientSamples, key: Array, sizes: Sizes, steps: int) -> Batch:
    """``steps`` independent batches with a leading axis; unequal sizes are filled up with weight zero."""
    if steps == 0:
        return None
    keys = jax.random.split(key, steps)
    if not isinstance(sizes, tuple):
        return jax.vmap(lambda k: client.sample(k, sizes))(keys)
    longest = max(sizes)
    samples = jax.vmap(lambda k: client.sample(k, longest))(keys)
    if min(sizes) == longest:
        return samples
    weight = jnp.arange(longest) < jnp.asarray(sizes)[:, None]
    return Weighted(samples, weight.astype(jnp.result_type(float)))
