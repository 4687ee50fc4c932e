"""How one sample's gradient and Hessian stray from its client's: second and fourth moments."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from headstart.core import Batch
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

__all__ = ["GradientNoise", "HessianNoise"]


class GradientNoise(Quantity):
    """``E ||grad l - grad f_i||^moment``: sigma_G^2 of Assumption 4 (wang: 2), kappa_G of jamali (16)."""

    moment: Array | float
    """2 or 4; not static, so that both share one compiled program."""
    drawn: bool = eqx.field(static=True)
    """Whether a client's batch was drawn from more samples, or from endlessly many."""

    def landscape(self, losses: ClientLosses, place: Array, start: Array, key: Array) -> Landscape:
        batch = losses.batch(place)
        samples, weight = losses.split(batch)
        mean = losses.on(batch)

        def terms(w: Array, vectors: tuple[()]) -> Array:
            center = jax.grad(mean)(w)

            def term(sample: Batch) -> Array:
                return squared_norm(jax.grad(losses.on_one(sample))(w) - center) ** (self.moment / 2)

            # Checkpointed, so that the gradients of all samples are never kept together.
            return jax.lax.map(jax.checkpoint(term), samples, batch_size=vectors_at_once(w.size))

        shares = _shares(weight, jnp.sum(weight), self.moment, self.drawn)
        return Landscape((), lambda w, vectors, key: (), terms, shares)


class HessianNoise(Quantity):
    """``E ||hess l - hess f_i||^moment``, spectral: sigma_H^2 of Assumption 4 (wang: 2), kappa_H of jamali (17).

    The expectation is over at most ``samples`` of the client's samples, chosen at random without replacement; the
    client's own Hessian is that of its whole batch.
    """

    moment: Array | float
    drawn: bool = eqx.field(static=True)
    products: int = eqx.field(static=True)
    samples: int | None = eqx.field(static=True)

    def landscape(self, losses: ClientLosses, place: Array, start: Array, key: Array) -> Landscape:
        batch = losses.batch(place)
        samples, weight = losses.split(batch)
        mean = losses.on(batch)
        choice_key, vector_key = jax.random.split(key)
        # In random order, with those that only fill the batch up last.
        order = jnp.argsort(jax.random.uniform(choice_key, weight.shape) + (weight == 0))[: self.samples]
        chosen = jax.tree.map(lambda leaf: leaf[order], samples)

        def deviation(sample: Batch) -> FlatLoss:
            one = losses.on_one(sample)
            return lambda w: one(w) - mean(w)

        def refine(w: Array, vectors: Array, key: Array) -> Array:
            center = hessian(mean, w)

            def best(member: tuple[Batch, Array, Array]) -> Array:
                sample, v, number = member
                start = perturbed(v, jax.random.fold_in(key, number))
                own = hessian(losses.on_one(sample), w)
                return top_eigenvector(lambda u: own(u) - center(u), start, self.products)

            members = (chosen, vectors, jnp.arange(len(order)))
            return jax.lax.map(best, members, batch_size=vectors_at_once(w.size, self.products))

        def terms(w: Array, vectors: Array) -> Array:
            def term(member: tuple[Batch, Array]) -> Array:
                sample, v = member
                return (quadratic_form(deviation(sample), w, v) ** 2) ** (self.moment / 2)

            return jax.lax.map(jax.checkpoint(term), (chosen, vectors), batch_size=vectors_at_once(w.size))

        vectors = jax.vmap(lambda key: unit_vector(losses.example, key))(jax.random.split(vector_key, len(order)))
        return Landscape(vectors, refine, terms, _shares(weight[order], jnp.sum(weight), self.moment, self.drawn))


def _shares(weight: Array, size: Array, moment: Array | float, drawn: bool) -> Array:
    """Weights that make a mean; where the center is the mean of ``size`` draws, Bessel's correction of the variance."""
    correction = jnp.where(moment == 2, size / (size - 1), 1) if drawn else 1.0
    return correction * weight / jnp.sum(weight)
