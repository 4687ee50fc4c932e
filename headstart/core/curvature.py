"""How a vector is pulled back through one inner step: ``v -> (I - alpha H(w)) v``, never forming ``H``."""

from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar, Literal, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from headstart.core import checks, tree
from headstart.core.batch import Params
from headstart.errors import UsageError, did_you_mean

__all__ = [
    "CURVATURES",
    "Automatic",
    "Curvature",
    "Exact",
    "FirstOrder",
    "HessianFree",
    "LooksAt",
    "as_curvature",
    "check_curvature_size",
]

Gradient = Callable[[Params], Params]

LooksAt: TypeAlias = Literal["nothing", "own", "inner"]
"""The batches of a pullback: none, a family of its own (the papers' second), or those of the inner steps again."""


class Curvature(eqx.Module):
    """One way to apply ``I - lr * Hessian`` to a vector, given the gradient function on one batch."""

    looks_at: ClassVar[LooksAt]
    """Which batches the pullback sees."""
    gradients: ClassVar[int]
    """Gradient evaluations of one pullback."""
    products: ClassVar[int]
    """Hessian-vector products of one pullback."""

    @abstractmethod
    def pull(self, gradient: Gradient, w: Params, lr: Array | float, v: Params) -> Params:
        """``(I - lr H(w)) v`` where ``H`` is the Jacobian of ``gradient``."""


class Exact(Curvature):
    """The Hessian-vector product itself, as the jvp of the gradient: fallah (8), jamali (11)."""

    looks_at: ClassVar[LooksAt] = "own"
    gradients: ClassVar[int] = 0
    products: ClassVar[int] = 1

    def pull(self, gradient: Gradient, w: Params, lr: Array | float, v: Params) -> Params:
        return _exact_pull(gradient, w, lr, v)


class Automatic(Curvature):
    r"""The exact product on the batch of the inner step itself: what differentiating through the inner steps gives.

    With ``S_2 = S_1`` and an independent ``S_3``, :math:`(I - \alpha \nabla^2 L(w, S_1)) \nabla L(u, S_3)` with
    :math:`u = w - \alpha \nabla L(w, S_1)` is the gradient of :math:`L(w - \alpha \nabla L(w, S_1), S_3)`. So it is
    unbiased for :math:`F_K(w) = \mathbb E\, L(w - \alpha \nabla L(w, S_1))`, the loss after a step on K samples, and
    biased for the papers' :math:`F(w) = L(w - \alpha \nabla L(w))`: beside the bias that every estimator with
    few samples has (the adapted model is off) stands :math:`-\alpha\, \text{Cov}(\nabla^2 L(w, S_1), \nabla L(u))`, at
    most :math:`\alpha^2 L \sigma_G \sigma_H / K`. It is what most code computes. Where a batch is steep, with an
    eigenvalue :math:`\lambda > 1 / \alpha`, it pulls back by about :math:`(1 - \alpha \lambda)^2`, which keeps the
    direction, and a batch of its own by :math:`(1 - \alpha \lambda_1)(1 - \alpha \lambda_2)`, which need not.
    """

    looks_at: ClassVar[LooksAt] = "inner"
    gradients: ClassVar[int] = 0
    products: ClassVar[int] = 1

    def pull(self, gradient: Gradient, w: Params, lr: Array | float, v: Params) -> Params:
        return _exact_pull(gradient, w, lr, v)


class HessianFree(Curvature):
    r"""A central difference of gradients: fallah (119)-(121), jamali (34)-(36).

    ``H v ~ (g(w + delta v) - g(w - delta v)) / (2 delta)``. The 2 is missing where fallah's section 5 first states it;
    its (119) has it.

    ``radius`` is the papers' delta, one number for the whole run. With it the points lie :math:`\delta \|v\|` apart:
    as the gradient v shrinks in training they come together, and in single precision rounding takes over (with delta =
    0.001 the product is off by more than its own size once :math:`\|v\|` is near 0.002). So, left out, the radius
    follows the model and the vector, :math:`\delta = c\, (1 + \|w\|) / \|v\|`, with c a fifth of the cube root of the
    precision: 0.001 in single precision.
    """

    radius: Array | float | None = None

    looks_at: ClassVar[LooksAt] = "own"
    gradients: ClassVar[int] = 2
    products: ClassVar[int] = 0

    def __check_init__(self) -> None:
        if self.radius is not None:
            checks.positive("radius", self.radius)

    def pull(self, gradient: Gradient, w: Params, lr: Array | float, v: Params) -> Params:
        radius = _relative_radius(w, v) if self.radius is None else self.radius
        ahead = gradient(tree.add_scaled(w, radius, v))
        behind = gradient(tree.add_scaled(w, -radius, v))
        return tree.add_scaled(v, -lr / (2 * radius), tree.sub(ahead, behind))


class FirstOrder(Curvature):
    """The second-order term left out: fallah (112), jamali (31)."""

    looks_at: ClassVar[LooksAt] = "nothing"
    gradients: ClassVar[int] = 0
    products: ClassVar[int] = 0

    def pull(self, gradient: Gradient, w: Params, lr: Array | float, v: Params) -> Params:
        return v


CURVATURES: dict[str, type[Curvature]] = {
    "exact": Exact,
    "automatic": Automatic,
    "first-order": FirstOrder,
    "hessian-free": HessianFree,
}
"""Every curvature by the name a configuration uses."""


def as_curvature(choice: Curvature | str) -> Curvature:
    """A curvature from its name, with its default settings; an instance passes through."""
    if isinstance(choice, str):
        if choice not in CURVATURES:
            raise UsageError(f"There is no curvature {choice!r}.", did_you_mean(choice, CURVATURES))
        return CURVATURES[choice]()
    return choice


def check_curvature_size(curvature: Curvature, size: object) -> None:
    """Reject a size of a batch that the curvature does not draw."""
    if size is not None and curvature.looks_at == "inner":
        raise UsageError(
            f"curvature_batch_size = {size!r} is set, but this curvature looks at the batch of the inner step again.",
            "Leave curvature_batch_size out, or set curvature = 'exact' for a batch of its own.",
        )


def _exact_pull(gradient: Gradient, w: Params, lr: Array | float, v: Params) -> Params:
    _, product = jax.jvp(gradient, (w,), (v,))
    return tree.add_scaled(v, -lr, product)


def _relative_radius(w: Params, v: Params) -> Array:
    """The radius with which the points lie a small share of the model's size apart."""
    length = tree.norm(v)
    share = jnp.finfo(length.dtype).eps ** (1 / 3) / 5
    return share * (1 + tree.norm(w)) / jnp.where(length > 0, length, 1.0)
