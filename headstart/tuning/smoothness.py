"""How sharply the loss bends on this data: the scale of all step sizes."""

import inspect
import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from headstart.core import FULL, Params, Purpose, Size, client_key, run_key
from headstart.data import Clients, Federation
from headstart.problems import Problem

__all__ = ["smoothness"]

CLIENTS = 8
SAMPLES = 256
"""Of a client with more samples, so many draws stand for all."""
PRODUCTS = 12


def smoothness(problem: Problem, federation: Federation, seed: int = 0) -> float:
    """The median over some training clients of the Hessian's norm where training begins, by Lanczos' method.

    1 where it cannot be told, as of an objective that is no plain loss.
    """
    from headstart.theory.sampling import in_memory

    tested = federation.tasks or federation
    if not inspect.isfunction(problem.objective()):
        return 1.0
    number = min(CLIENTS, tested.trained)
    ids = (np.arange(number) * tested.trained // number).astype(np.int32)
    data, places = in_memory(tested, "support", ids)
    longest = SAMPLES + 1 if tested.counts is None else int(tested.counts["support"][ids].max())
    size: Size = FULL if longest <= SAMPLES else SAMPLES
    if tested.counts is None:
        size = FULL
    found = _norms(problem, size, data, problem.init(run_key(seed, Purpose.INIT)), jnp.asarray(places))
    norms = np.asarray(found, np.float64)
    norms = norms[np.isfinite(norms) & (norms > 0)]
    return float(np.median(norms)) if norms.size and math.isfinite(norms.max()) else 1.0


@partial(jax.jit, static_argnames=("problem", "size"))
def _norms(problem: Problem, size: Size, clients: Clients, params: Params, places: Array) -> Array:
    from headstart.theory.estimate.lanczos import top_eigenvector
    from headstart.theory.estimate.losses import hessian

    w, unravel = ravel_pytree(params)
    objective = problem.objective()
    start = jax.random.normal(jax.random.key(0), w.shape, w.dtype)

    def norm(place: Array) -> Array:
        view = problem.view(clients.view("support", place))
        batch = view.sample(client_key(jax.random.key(1), place), size)
        product = hessian(lambda at: objective(unravel(at), batch), w)
        v = top_eigenvector(product, start, PRODUCTS)
        return jnp.abs(jnp.vdot(v, product(v)))

    return jax.lax.map(norm, places)
