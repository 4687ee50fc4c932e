"""Objectives that are a function of an expectation: ``f(E g(x; xi); zeta)``."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import jax
import jax.numpy as jnp
from jax import Array

from headstart.core import tree
from headstart.core.batch import Batch, Loss, Params
from headstart.core.curvature import Curvature

__all__ = ["Composition", "MeanComposition", "MetaComposition", "Objective", "UserComposition", "as_composition"]

Inner: TypeAlias = Any
"""A value of the inner function: any pytree."""


class Composition(Protocol):
    """``f(g(x))`` of one client, each level seen through batches of its own."""

    def inner(self, x: Params, batch: Batch) -> Inner:
        """``g(x; xi)``, whose mean over batches is ``g(x)``."""
        ...

    def outer(self, u: Inner, batch: Batch) -> Array:
        """``f(u; zeta)``."""
        ...

    def pull(self, x: Params, batch: Batch, v: Inner) -> Params:
        """``grad g(x; xi)^T v``, never forming the Jacobian."""
        ...


@dataclass(frozen=True)
class UserComposition:
    """A composition of two given functions."""

    inner_fn: Callable[[Params, Batch], Inner]
    outer_fn: Callable[[Inner, Batch], Array]
    personal: bool = False
    """Whether ``g(x)`` of a client's support data is the client's own model, as it is in meta-learning."""

    def inner(self, x: Params, batch: Batch) -> Inner:
        """``g(x; xi)``."""
        return self.inner_fn(x, batch)

    def outer(self, u: Inner, batch: Batch) -> Array:
        """``f(u; zeta)``."""
        return self.outer_fn(u, batch)

    def pull(self, x: Params, batch: Batch, v: Inner) -> Params:
        """One vector-Jacobian product."""
        _, pullback = jax.vjp(lambda p: self.inner_fn(p, batch), x)
        (pulled,) = pullback(v)
        return pulled


@dataclass(frozen=True)
class MetaComposition:
    """Meta-learning as a composition, gao (8): ``g(x; xi) = x - lambda grad L(x; xi)`` and ``f = L``."""

    loss: Loss
    lr: Array | float
    curvature: Curvature

    def inner(self, x: Params, batch: Batch) -> Params:
        """The adapted model."""
        return tree.add_scaled(x, -self.lr, jax.grad(self.loss)(x, batch))

    def outer(self, u: Params, batch: Batch) -> Array:
        """The loss of the adapted model."""
        return self.loss(u, batch)

    def pull(self, x: Params, batch: Batch, v: Params) -> Params:
        """``(I - lambda H(x; xi)) v``; the Hessian is symmetric, so a Jacobian-vector product serves."""
        return self.curvature.pull(lambda p: jax.grad(self.loss)(p, batch), x, self.lr, v)


@dataclass(frozen=True)
class MeanComposition:
    """Several tasks as one composition: both levels are means over the tasks. A batch has a leading axis of tasks."""

    each: Composition

    def inner(self, x: Params, batch: Batch) -> Inner:
        """The mean of the tasks' ``g``."""
        return tree.mean(jax.vmap(lambda b: self.each.inner(x, b))(batch))

    def outer(self, u: Inner, batch: Batch) -> Array:
        """The mean of the tasks' ``f``, all at one ``u``."""
        return jnp.mean(jax.vmap(lambda b: self.each.outer(u, b))(batch))

    def pull(self, x: Params, batch: Batch, v: Inner) -> Params:
        """The mean of the tasks' pullbacks of ``v``."""
        return tree.mean(jax.vmap(lambda b: self.each.pull(x, b, v))(batch))


Objective: TypeAlias = Any
"""What a client minimises: a ``Loss``, or a `Composition` for methods that can work on one."""


def as_composition(objective: Objective, lr: Array | float, curvature: Curvature) -> Composition:
    """A composition as it is; a plain loss as meta-learning with inner step size ``lr``."""
    return objective if isinstance(objective, UserComposition) else MetaComposition(objective, lr, curvature)
