"""How clients' gradients and Hessians differ from those of the average loss."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from headstart.theory.estimate.lanczos import top_eigenvector
from headstart.theory.estimate.landscape import Landscape, Quantity, perturbed, vectors_at_once
from headstart.theory.estimate.losses import (
    ClientLosses,
    FlatLoss,
    hessian,
    quadratic_form,
    squared_norm,
    unit_vector,
)

__all__ = ["GradientDissimilarity", "HessianDissimilarity"]


class GradientDissimilarity(Quantity):
    """``1/n sum_i ||grad f_i - grad f||^2`` with f the mean of the f_i: gamma_G^2 of Assumption 5."""

    population: int = eqx.field(static=True)
    """Of how many clients those looked at are a sample."""

    def landscape(self, losses: ClientLosses, place: Array, start: Array, key: Array) -> Landscape:
        def gradient(client: Array, w: Array) -> Array:
            return jax.grad(losses.on(losses.batch(client)))(w)

        def terms(w: Array, vectors: tuple[()]) -> Array:
            center = _mean_over(place, lambda client: gradient(client, w), w)
            distance = jax.checkpoint(lambda client: squared_norm(gradient(client, w) - center))
            return jax.lax.map(distance, place, batch_size=vectors_at_once(w.size))

        return Landscape((), lambda w, vectors, key: (), terms, _shares(len(place), self.population))


class HessianDissimilarity(Quantity):
    """``1/n sum_i ||hess f_i - hess f||^2``, spectral: gamma_H^2 of Assumption 5 (wang: 6).

    Each product with the mean Hessian goes over all clients, so the cost grows with the square of their number.
    """

    population: int = eqx.field(static=True)
    products: int = eqx.field(static=True)

    def landscape(self, losses: ClientLosses, place: Array, start: Array, key: Array) -> Landscape:
        def loss(client: Array) -> FlatLoss:
            return losses.on(losses.batch(client))

        def mean_loss(w: Array) -> Array:
            return _mean_over(place, lambda client: loss(client)(w), w[0])

        def refine(w: Array, vectors: Array, key: Array) -> Array:
            center = hessian(mean_loss, w)

            def best(member: tuple[Array, Array]) -> Array:
                client, v = member
                own, start = hessian(loss(client), w), perturbed(v, jax.random.fold_in(key, client))
                return top_eigenvector(lambda u: own(u) - center(u), start, self.products)

            return jax.lax.map(best, (place, vectors), batch_size=vectors_at_once(w.size, self.products))

        def terms(w: Array, vectors: Array) -> Array:
            def term(member: tuple[Array, Array]) -> Array:
                client, v = member
                return (quadratic_form(loss(client), w, v) - quadratic_form(mean_loss, w, v)) ** 2

            return jax.lax.map(term, (place, vectors), batch_size=vectors_at_once(w.size))

        vectors = jax.vmap(lambda key: unit_vector(losses.example, key))(jax.random.split(key, len(place)))
        return Landscape(vectors, refine, terms, _shares(len(place), self.population))


def _mean_over(clients: Array, value: Callable[[Array], Array], like: Array) -> Array:
    """The mean of something over clients, one after the other."""

    def add(total: Array, client: Array) -> tuple[Array, None]:
        return total + jax.checkpoint(value)(client), None

    total, _ = jax.lax.scan(add, jnp.zeros_like(like), clients)
    return total / len(clients)


def _shares(count: int, population: int) -> Array:
    """Equal weights; those of a sample of clients make its variance an unbiased estimate of the population's."""
    correction = count / (count - 1) * (population - 1) / population if count < population else 1.0
    return jnp.full(count, correction / count)
