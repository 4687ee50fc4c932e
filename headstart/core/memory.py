"""Memories: running averages that clients keep, and how those of absent clients move without being touched."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from headstart.core import tree
from headstart.core.batch import Params

__all__ = ["Decay", "LazyMemory", "Memory", "RunningAverage", "recall", "refreshed", "remember"]

NEGLIGIBLE = 2.0**-40
"""A factor below which an offset no longer counts: 9.1e-13, far beneath a float32's last place."""


class Memory(NamedTuple):
    """A running average, and whether it has begun."""

    value: Params
    started: Array

    @classmethod
    def empty(cls, like: Params) -> "Memory":
        """One that has not begun."""
        return cls(tree.zeros_like(like), jnp.zeros((), bool))


def remember(memory: Memory, new: Params, averaging: Array | float) -> Memory:
    """``(1 - beta) u + beta new``; at the first visit ``new`` itself (wang, end of the proof of Lemma 2)."""
    beta = jnp.where(memory.started, averaging, 1.0)
    value = jax.tree.map(lambda u, v: (1 - beta) * u + beta * v, memory.value, new)
    return Memory(value, jnp.ones_like(memory.started))


class RunningAverage(NamedTuple):
    """``a_(t+1) = (1 - beta_t) a_t + beta_t w_t``, with what rounding lost of it."""

    value: Params
    lost: Params

    @classmethod
    def of(cls, start: Params) -> "RunningAverage":
        """The average before anything was added."""
        return cls(start, tree.zeros_like(start))

    def towards(self, new: Params, averaging: Array | float) -> "RunningAverage":
        """One step. Kahan's summation: a plain float32 average stands still once ``beta |w - a|`` is below its
        last place, which leaves an error of that over beta.
        """
        step = jax.tree.map(lambda a, w, lost: averaging * (w - a) - lost, self.value, new, self.lost)
        value = tree.add(self.value, step)
        return RunningAverage(value, tree.sub(tree.sub(value, self.value), step))


class Decay(NamedTuple):
    """The product of all ``1 - beta`` so far, as its value in the present epoch and at the end of the last one.

    An epoch ends when the product falls below ``NEGLIGIBLE``; the next one starts from 1. So it never underflows,
    and ratios keep full precision however many iterations pass.
    """

    scale: Array
    epoch: Array
    closing: Array

    @classmethod
    def none(cls) -> "Decay":
        """Before the first iteration."""
        return cls(jnp.ones(()), jnp.zeros((), jnp.int32), jnp.ones(()))

    def by(self, factor: Array | float) -> "Decay":
        """One iteration's decay."""
        scale = self.scale * factor
        ends = scale < NEGLIGIBLE
        return Decay(
            jnp.where(ends, 1.0, scale), self.epoch + ends.astype(jnp.int32), jnp.where(ends, scale, self.closing)
        )


class LazyMemory(NamedTuple):
    """A memory ``u = a + d`` of which the client keeps ``d`` as it was when last refreshed.

    MOML v2 moves every memory by ``u <- (1 - beta) u + beta w`` (wang (v2)). Where ``a`` is the running average
    of ``w``, that is ``d <- (1 - beta) d``: a factor, which can be made up for when the client is next looked at.
    """

    offset: Params
    scale: Array
    epoch: Array

    @classmethod
    def none(cls, like: Params) -> "LazyMemory":
        """``u = a``."""
        start = Decay.none()
        return cls(tree.zeros_like(like), start.scale, start.epoch)

    def decayed(self, decay: Decay) -> Params:
        """``d`` now. What is two epochs old has shrunk by more than ``NEGLIGIBLE`` and counts as 0."""
        passed = jnp.where(
            self.epoch == decay.epoch,
            decay.scale / self.scale,
            jnp.where(self.epoch == decay.epoch - 1, decay.closing / self.scale * decay.scale, 0.0),
        )
        return jax.tree.map(lambda d: passed.astype(d.dtype) * d, self.offset)


def recall(memory: LazyMemory, average: Params, decay: Decay) -> Params:
    """``u = a + d`` now."""
    return tree.add(average, memory.decayed(decay))


def refreshed(memory: LazyMemory, decay: Decay, added: Params) -> LazyMemory:
    """The memory with ``added`` to its ``d`` of now."""
    return LazyMemory(tree.add(memory.decayed(decay), added), decay.scale, decay.epoch)
