"""The suprema of one client's derivatives: gradient, Hessian and third derivative."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from headstart.theory.estimate.lanczos import norm_or_one, top_eigenvector
from headstart.theory.estimate.landscape import Landscape, Quantity, perturbed
from headstart.theory.estimate.losses import (
    ClientLosses,
    FlatLoss,
    hessian,
    quadratic_form,
    squared_norm,
    unit_vector,
)

__all__ = ["GradientNorm", "HessianNorm", "ThirdDerivativeNorm"]


class GradientNorm(Quantity):
    """``||grad f_i(w)||^2``: B^2 of fallah and jamali Assumption 2, G^2 of wang Assumption 4."""

    def landscape(self, losses: ClientLosses, place: Array, start: Array, key: Array) -> Landscape:
        loss = losses.on(losses.batch(place))
        return Landscape(
            vectors=(),
            refine=lambda w, vectors, key: (),
            terms=lambda w, vectors: squared_norm(jax.grad(loss)(w))[None],
            weights=jnp.ones(1),
        )


class HessianNorm(Quantity):
    """``||hess f_i(w)||^2``, spectral: L^2 of Assumption 2 (wang: Assumption 1)."""

    products: int = eqx.field(static=True)

    def landscape(self, losses: ClientLosses, place: Array, start: Array, key: Array) -> Landscape:
        loss = losses.on(losses.batch(place))

        def refine(w: Array, v: Array, key: Array) -> Array:
            return top_eigenvector(hessian(loss, w), perturbed(v, key), self.products)

        return Landscape(
            vectors=unit_vector(losses.example, key),
            refine=refine,
            terms=lambda w, v: quadratic_form(loss, w, v)[None] ** 2,
            weights=jnp.ones(1),
        )


ALTERNATIONS = 2
"""How often the two vectors of the third derivative's norm are improved in turn at each point."""


class ThirdDerivativeNorm(Quantity):
    """``||D^3 f_i(w)||^2``: rho^2 of Assumption 3 (wang: Assumption 1), as a Hessian is as Lipschitz as its derivative.

    ``max |D^3 f[v, v, u]|`` over unit vectors by turns: ``v`` is the top eigenvector of ``D^3 f[., ., u]``, then ``u``
    the direction of ``D^3 f[v, v, .]``. Neither turn can lower it.
    """

    products: int = eqx.field(static=True)

    def landscape(self, losses: ClientLosses, place: Array, start: Array, key: Array) -> Landscape:
        loss = losses.on(losses.batch(place))

        def refine(w: Array, vectors: tuple[Array, Array], key: Array) -> tuple[Array, Array]:
            def turn(number: int, vectors: tuple[Array, Array]) -> tuple[Array, Array]:
                v, u = vectors
                guess = perturbed(v, jax.random.fold_in(key, number))
                v = top_eigenvector(_derivative_of_hessian(loss, w, u), guess, self.products)
                return v, _steepest(loss, w, v)

            return jax.lax.fori_loop(0, ALTERNATIONS, turn, vectors)

        def terms(w: Array, vectors: tuple[Array, Array]) -> Array:
            v, u = vectors
            return jax.jvp(lambda at: quadratic_form(loss, at, v), (w,), (u,))[1][None] ** 2

        # In many dimensions a random direction says little: so half of it is how the largest curvature grows.
        v_key, u_key = jax.random.split(key)
        v = top_eigenvector(hessian(loss, start), unit_vector(losses.example, v_key), self.products)
        u = _steepest(loss, start, v) + unit_vector(losses.example, u_key)
        return Landscape((v, u / norm_or_one(jnp.linalg.norm(u))), refine, terms, jnp.ones(1))


def _steepest(loss: FlatLoss, w: Array, v: Array) -> Array:
    """The unit vector along ``D^3 f(w)[v, v, .]``, in which the curvature along ``v`` grows fastest."""
    slope = jax.grad(quadratic_form, argnums=1)(loss, w, v)
    return slope / norm_or_one(jnp.linalg.norm(slope))


def _derivative_of_hessian(loss: FlatLoss, w: Array, u: Array) -> Callable[[Array], Array]:
    """``v -> D^3 f(w)[u, v, .]``: the Hessian of the loss' slope along ``u``."""
    return hessian(lambda at: jax.jvp(loss, (at,), (u,))[1], w)
