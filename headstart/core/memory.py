"""Memories: running averages that clients keep, and how those of absent clients move without being touched."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from headstart.core import tree
from headstart.core.batch import Params

__all__ = ["Decay", "LazyMemory", "Memory", "Trail", "recall", "refreshed", "remember"]

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
    return Memory(tree.mix(memory.value, new, beta), jnp.ones_like(memory.started))


class Trail(NamedTuple):
    """The running average ``a_(t+1) = (1 - beta_t) a_t + beta_t w_t`` of a moving ``w``, kept as ``a_t - w_t``.

    The lag is small and each step enters it once, so it stays exact where a float32 average would stand still: that
    one does not move once ``beta |w - a|`` is below its last place, which leaves an error of that over beta.
    """

    lag: Params

    @classmethod
    def start(cls, w: Params) -> "Trail":
        """``a_0 = w_0``."""
        return cls(tree.zeros_like(w))

    def average(self, w: Params, averaging: Array | float) -> Params:
        """``a_(t+1)``, which needs ``w_t`` and ``beta_t`` only."""
        return tree.add(w, self._faded(averaging))

    def moved(self, w: Params, new: Params, averaging: Array | float) -> "Trail":
        """The lag behind ``w_(t+1)``: what was left of it, less the step that was taken."""
        return Trail(tree.sub(self._faded(averaging), tree.sub(new, w)))

    def _faded(self, averaging: Array | float) -> Params:
        # Not as a product with 1 - beta, whose rounding would be the same in every iteration and add up.
        return tree.add_scaled(self.lag, -averaging, self.lag)


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

    def by(self, averaging: Array | float) -> "Decay":
        """After one more factor ``1 - beta``."""
        scale = self.scale - averaging * self.scale
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
