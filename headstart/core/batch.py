"""Batches: what a loss is given, and what an algorithm asks a client for."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import jax
import jax.numpy as jnp
from jax import Array

from headstart.errors import UsageError

__all__ = ["FULL", "Batch", "ClientSamples", "Loss", "Params", "Sides", "Size", "Weighted", "check_size", "weighing"]

Params: TypeAlias = Any
"""Any pytree of floating-point arrays."""

Batch: TypeAlias = Any
"""Any pytree of arrays with one leading axis of samples."""

Loss: TypeAlias = Callable[[Params, Batch], Array]
"""Mean loss of a batch."""

FULL: Literal["full"] = "full"
"""The batch size that means all of a client's samples."""

Size: TypeAlias = int | Literal["full"]
"""A number of samples, or ``"full"``."""


class Weighted(NamedTuple):
    """A batch whose samples count unequally: weight zero fills a short client up to the common shape."""

    samples: Batch
    weight: Array


class ClientSamples(Protocol):
    """One client's data as an algorithm sees it: something to draw batches from."""

    def sample(self, key: Array, size: Size) -> Batch:
        """``size`` independent draws (with replacement), or every sample once for ``"full"``."""
        ...

    def episode(self, key: Array) -> "Sides":
        """What one local step draws from: all of the data, or the two sides of a task that the key chooses."""
        ...


class Sides(NamedTuple):
    """The data that one local step adapts on and the data that judges the result; often they are the same."""

    inner: ClientSamples
    outer: ClientSamples


def check_size(name: str, size: Size) -> None:
    """Reject a batch size that is neither a positive whole number nor ``"full"``."""
    if size != FULL and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
        raise UsageError(
            f"{name} = {size!r} is not a batch size.",
            "Give a whole number of samples, 1 or more, or 'full' for a client's whole data.",
        )


def weighing(function: Callable[[Params, Batch], Any]) -> Callable[[Params, Batch], Any]:
    """Let a mean-of-a-batch ``function`` take `Weighted` batches too.

    A weighted batch is scored sample by sample and averaged by weight, so a user's plain
    ``loss(params, batch)`` never hears of padding. XLA turns the map over samples back into one matmul.
    """

    def weighed(params: Params, batch: Batch) -> Any:
        if not isinstance(batch, Weighted):
            return function(params, batch)
        each = jax.vmap(lambda sample: function(params, jax.tree.map(lambda a: a[None], sample)))(batch.samples)
        share = batch.weight / jnp.sum(batch.weight)
        return jax.tree.map(lambda values: jnp.tensordot(share.astype(values.dtype), values, 1), each)

    return weighed
