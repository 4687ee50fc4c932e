"""The inner loop: nu gradient steps from the shared model, and the way back through them."""

from typing import NamedTuple

import equinox as eqx
import jax
from jax import Array

from headstart.core import checks, tree
from headstart.core.batch import Batch, Loss, Params
from headstart.core.curvature import Curvature

__all__ = ["Adaptation", "Adapted"]


class Adapted(NamedTuple):
    """Where the inner steps ended and every point they started from (leading axis nu)."""

    params: Params
    trajectory: Params


class Adaptation(eqx.Module):
    """``w_l = w_(l-1) - alpha grad f(w_(l-1), D_(l-1))`` for ``l = 1 .. nu``: jamali (10).

    Symbols: ``steps`` is nu, ``lr`` is alpha.
    """

    steps: int = eqx.field(static=True)
    lr: Array | float

    def __check_init__(self) -> None:
        checks.whole("inner_steps", self.steps, 0)
        checks.at_least("inner_lr", self.lr, 0)

    def run(self, loss: Loss, w: Params, batches: Batch) -> Adapted:
        """Take the steps; ``batches`` has leading axis nu."""
        if self.steps == 0:
            return Adapted(w, None)

        def step(w: Params, batch: Batch) -> tuple[Params, Params]:
            return tree.add_scaled(w, -self.lr, jax.grad(loss)(w, batch)), w

        params, trajectory = jax.lax.scan(step, w, batches, length=self.steps)
        return Adapted(params, trajectory)

    def pullback(self, loss: Loss, curvature: Curvature, trajectory: Params, batches: Batch, v: Params) -> Params:
        """``prod_j (I - alpha H(w_j, D'_j)) v``, the factor of the last step applied first: jamali (11)."""
        if self.steps == 0 or curvature.looks_at == "nothing":
            return v

        def step(v: Params, at: tuple[Params, Batch]) -> tuple[Params, None]:
            w, batch = at
            return curvature.pull(lambda p: jax.grad(loss)(p, batch), w, self.lr, v), None

        v, _ = jax.lax.scan(step, v, (trajectory, batches), length=self.steps, reverse=True)
        return v
