"""The adaptive server optimisers of federated optimisation, as Optax transformations."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from headstart.core import tree

__all__ = ["FedOptState", "fedopt"]

SecondMoment = Literal["adagrad", "adam", "yogi"]


class FedOptState(NamedTuple):
    """The running means of the clients' movement and of its square."""

    mean: Any
    square: Any


def fedopt(second_moment: SecondMoment) -> Callable[..., optax.GradientTransformation]:
    r"""FedAdagrad, FedAdam or FedYogi: Reddi et al. 2021, Algorithm 2.

    .. math::
        m_t = \beta_1 m_{t-1} + (1 - \beta_1) \Delta_t, \qquad x_{t+1} = x_t + \eta \frac{m_t}{\sqrt{v_t} + \tau}

    with :math:`v_t = v_{t-1} + \Delta_t^2` (Adagrad), :math:`v_t = v_{t-1} - (1 - \beta_2) \Delta_t^2\,
    \text{sign}(v_{t-1} - \Delta_t^2)` (Yogi) or :math:`v_t = \beta_2 v_{t-1} + (1 - \beta_2) \Delta_t^2` (Adam), from
    :math:`m = 0` and :math:`v = \tau^2`. Unlike Optax's own, they do not correct the first steps' bias.
    """

    def build(
        learning_rate: optax.ScalarOrSchedule, b1: float = 0.9, b2: float = 0.99, tau: float = 1e-3
    ) -> optax.GradientTransformation:
        def squared(v: Array, g: Array) -> Array:
            square = g**2
            if second_moment == "adagrad":
                return v + square
            if second_moment == "yogi":
                return v - (1 - b2) * square * jnp.sign(v - square)
            return b2 * v + (1 - b2) * square

        def init(params: Any) -> FedOptState:
            return FedOptState(tree.zeros_like(params), jax.tree.map(lambda p: jnp.full_like(p, tau**2), params))

        def update(gradient: Any, state: FedOptState, params: Any = None) -> tuple[Any, FedOptState]:
            mean = jax.tree.map(lambda m, g: (b1 * m + (1 - b1) * g).astype(m.dtype), state.mean, gradient)
            square = jax.tree.map(lambda v, g: squared(v, g).astype(v.dtype), state.square, gradient)
            return jax.tree.map(lambda m, v: m / (jnp.sqrt(v) + tau), mean, square), FedOptState(mean, square)

        return optax.chain(optax.GradientTransformation(init, update), optax.scale_by_learning_rate(learning_rate))

    return build
