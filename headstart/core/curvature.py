"""How a vector is pulled back through one inner step: ``v -> (I - alpha H(w)) v``, never forming ``H``."""

from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax
from jax import Array

from headstart.core import checks, tree
from headstart.core.batch import Params
from headstart.errors import UsageError, did_you_mean

__all__ = ["CURVATURES", "Curvature", "Exact", "FirstOrder", "HessianFree", "as_curvature"]

Gradient = Callable[[Params], Params]


class Curvature(eqx.Module):
    """One way to apply ``I - lr * Hessian`` to a vector, given the gradient function on one batch."""

    needs_batches: ClassVar[bool]
    """Whether the pullback looks at data (and so wants the papers' second family of batches)."""
    gradients: ClassVar[int]
    """Gradient evaluations of one pullback."""
    products: ClassVar[int]
    """Hessian-vector products of one pullback."""

    @abstractmethod
    def pull(self, gradient: Gradient, w: Params, lr: Array | float, v: Params) -> Params:
        """``(I - lr H(w)) v`` where ``H`` is the Jacobian of ``gradient``."""


class Exact(Curvature):
    """The Hessian-vector product itself, as the jvp of the gradient: fallah (8), jamali (11)."""

    needs_batches: ClassVar[bool] = True
    gradients: ClassVar[int] = 0
    products: ClassVar[int] = 1

    def pull(self, gradient: Gradient, w: Params, lr: Array | float, v: Params) -> Params:
        _, product = jax.jvp(gradient, (w,), (v,))
        return tree.add_scaled(v, -lr, product)


class HessianFree(Curvature):
    """A central difference of gradients with radius delta: fallah (119)-(121), jamali (34)-(36).

    ``H v ~ (g(w + delta v) - g(w - delta v)) / (2 delta)``. The 2 is missing where fallah's section 5
    first states it; its (119) has it.
    """

    radius: Array | float = 1e-3

    needs_batches: ClassVar[bool] = True
    gradients: ClassVar[int] = 2
    products: ClassVar[int] = 0

    def __check_init__(self) -> None:
        checks.positive("radius", self.radius)

    def pull(self, gradient: Gradient, w: Params, lr: Array | float, v: Params) -> Params:
        ahead = gradient(tree.add_scaled(w, self.radius, v))
        behind = gradient(tree.add_scaled(w, -self.radius, v))
        return tree.add_scaled(v, -lr / (2 * self.radius), tree.sub(ahead, behind))


class FirstOrder(Curvature):
    """The second-order term left out: fallah (112), jamali (31)."""

    needs_batches: ClassVar[bool] = False
    gradients: ClassVar[int] = 0
    products: ClassVar[int] = 0

    def pull(self, gradient: Gradient, w: Params, lr: Array | float, v: Params) -> Params:
        return v


CURVATURES: dict[str, type[Curvature]] = {"exact": Exact, "first-order": FirstOrder, "hessian-free": HessianFree}
"""Every curvature by the name a configuration uses."""


def as_curvature(choice: Curvature | str) -> Curvature:
    """A curvature from its name, with its default settings; an instance passes through."""
    if isinstance(choice, str):
        if choice not in CURVATURES:
            raise UsageError(f"There is no curvature {choice!r}.", did_you_mean(choice, CURVATURES))
        return CURVATURES[choice]()
    return choice
