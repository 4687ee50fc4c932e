"""The eigenvalue of largest magnitude of a symmetric matrix that is only known by its products."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

__all__ = ["norm_or_one", "top_eigenvector"]


def top_eigenvector(product: Callable[[Array], Array], start: Array, products: int) -> Array:
    """The unit Ritz vector whose Ritz value is largest in magnitude, after ``products`` Lanczos steps from ``start``.

    Its Rayleigh quotient never exceeds the matrix' norm. The basis (``products`` vectors) is kept, and every new
    vector is made orthogonal to all of it: in single precision the plain recurrence soon repeats itself.
    """
    products = min(products, start.size)
    tiny = 100 * jnp.finfo(start.dtype).eps

    def step(
        number: Array | int, state: tuple[Array, Array, Array, Array, Array]
    ) -> tuple[Array, Array, Array, Array, Array]:
        basis, vector, diagonal, beside, scale = state
        basis = basis.at[number].set(vector)
        image = product(vector)
        along = jnp.vdot(vector, image)
        rest = image - (basis @ image) @ basis
        length = jnp.linalg.norm(rest)
        scale = jnp.maximum(scale, jnp.linalg.norm(image))
        # An invariant subspace is found: zeros from here on add only eigenvalues of zero, which are never the largest.
        length = jnp.where(length > tiny * scale, length, 0)
        return (
            basis,
            rest * (length > 0) / norm_or_one(length),
            diagonal.at[number].set(along),
            beside.at[number].set(length),
            scale,
        )

    zeros = jnp.zeros(products, start.dtype)
    unit = start / norm_or_one(jnp.linalg.norm(start))
    state = (jnp.zeros((products, start.size), start.dtype), unit, zeros, zeros, jnp.zeros((), start.dtype))
    basis, _, diagonal, beside, _ = jax.lax.fori_loop(0, products, step, state)
    values, vectors = jnp.linalg.eigh(jnp.diag(diagonal) + jnp.diag(beside[:-1], 1) + jnp.diag(beside[:-1], -1))
    ritz = vectors[:, jnp.argmax(jnp.abs(values))] @ basis
    length = jnp.linalg.norm(ritz)
    return jnp.where(length > 0, ritz / norm_or_one(length), unit)


def norm_or_one(length: Array) -> Array:
    """A length to divide by: 1 in place of 0."""
    return jnp.where(length > 0, length, 1)
