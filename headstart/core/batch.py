"""Batches: what a loss is given, and what an algorithm asks a client for."""

import inspect
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import equinox as eqx
import jax
from jax import Array

from headstart.core import tree
from headstart.errors import UsageError

__all__ = [
    "FULL",
    "Batch",
    "ClientSamples",
    "Keyed",
    "KeyedSamples",
    "Loss",
    "Params",
    "Sides",
    "Size",
    "Weighted",
    "check_size",
    "takes",
    "weighing",
]

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


class Keyed(NamedTuple):
    """A batch with the key of all that is random in its loss.

    One batch has one key, so its loss, its gradient and its Hessian-vector products see the same dropout.
    """

    samples: Batch
    """Plain or `Weighted`."""
    key: Array


class KeyedSamples(eqx.Module):
    """A client's data whose batches are `Keyed`; keeps the contracts ``ClientSamples`` and ``ClientTasks``."""

    samples: Any

    def sample(self, key: Array, size: Size) -> Keyed:
        """The same draws, with a key of their own."""
        return Keyed(self.samples.sample(key, size), jax.random.fold_in(key, LOSS_KEY))

    def episode(self, key: Array) -> Sides:
        """The same sides; one object where they are one."""
        inner, outer = self.samples.episode(key)
        keyed = KeyedSamples(inner)
        return Sides(keyed, keyed if inner is outer else KeyedSamples(outer))

    @property
    def task_count(self) -> Array | int:
        """How many tasks the client has."""
        count: Array | int = self.samples.task_count
        return count

    def task(self, number: Array | int) -> "KeyedSamples":
        """The samples of one task."""
        return KeyedSamples(self.samples.task(number))


LOSS_KEY = 0x6C6F7373
"""What is folded into the key of a draw for the loss. Large, for the keys of a small number are those of a split."""


def takes(function: Callable[..., Any], name: str) -> bool:
    """Whether a function of two arguments has to be given a third, or can be given one of this name.

    >>> takes(lambda params, batch, key: 0.0, "key"), takes(lambda params, batch, *, scale=1.0: 0.0, "key")
    (True, False)
    """
    parameters = inspect.signature(function).parameters
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [p for p in parameters.values() if p.kind in kinds and p.default is inspect.Parameter.empty]
    return len(needed) > 2 or name in parameters


def weighing(function: Callable[..., Any]) -> Callable[[Params, Batch], Any]:
    """Let a mean-of-a-batch ``function(params, batch)`` take `Weighted` and `Keyed` batches too.

    A weighted batch is scored sample by sample and averaged by weight, so a user's plain
    ``loss(params, batch)`` never hears of padding. XLA turns the map over samples back into one matmul.
    The key of a keyed batch is handed on as ``function(params, batch, key)``.
    """

    def weighed(params: Params, batch: Batch) -> Any:
        samples, weight, key = _unwrapped(batch)
        keys = () if key is None else (key,)
        if weight is None:
            return function(params, samples, *keys)
        keys = () if key is None else (jax.random.split(key, weight.shape[0]),)

        def alone(sample: Batch, *key: Array) -> Any:
            return function(params, jax.tree.map(lambda a: a[None], sample), *key)

        each = jax.vmap(alone)(samples, *keys)
        return tree.weighted_mean(weight, each)

    return weighed


def _unwrapped(batch: Batch) -> tuple[Batch, Array | None, Array | None]:
    """Samples, weight and key of a batch, whichever of the two it was given first."""
    weight = key = None
    while isinstance(batch, (Weighted, Keyed)):
        if isinstance(batch, Weighted):
            batch, weight = batch.samples, batch.weight
        else:
            batch, key = batch.samples, batch.key
    return batch, weight, key
