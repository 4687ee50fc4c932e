"""SCGD: stochastic compositional gradient descent, with a memory for every task and all tasks in every step."""

from typing import ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from headstart.algorithms._remembering import RememberingAlgorithm
from headstart.core import (
    ClientResult,
    ClientSamples,
    Cost,
    Down,
    Loss,
    Memory,
    Params,
    Server,
    remember,
    step_size_at,
    tree,
)

__all__ = ["SCGD"]


class SCGD(RememberingAlgorithm):
    r"""Descend on :math:`f(\mathbb E\, g)` with a running average in place of the inner expectation.

    .. math::
        y^i_{k+1} = (1 - \beta) y^i_k + \beta\, g_i(x_k, S_1), \qquad
        x_{k+1} = x_k - \alpha_k\, \text{mean}_i\, \nabla g_i(x_k, S_2)^\top \nabla f_i(y^i_{k+1}, S_3)

    with :math:`g_i(x, S) = x - \lambda \nabla \mathcal L_i(x, S)` and :math:`f_i = \mathcal L_i`: the vector of all
    tasks' adapted models is the inner function, so every task takes part in every step.

    Symbols: ``inner_lr`` lambda, ``outer_lr`` alpha_k, ``averaging`` beta_k, ``inner_batch_size`` S_1,
    ``curvature_batch_size`` S_2, ``batch_size`` S_3.

    Wang, Fang and Liu 2017, Algorithm 1, applied to meta-learning as wang section 2 says. It is MOML v1 on all tasks.

    >>> SCGD(batch_size=3).cost()
    Cost(gradients=2, products=1, batches={3: 3})

    Deviations: g and its Jacobian are drawn with batches of their own, as wang does; the paper takes both from one
    sample. The paper's projection onto a feasible set is left out. A memory begins with the first adapted model.
    """

    needs_everyone: ClassVar[bool] = True

    def init_server(self, params: Params) -> Server:
        return Server(params, jnp.zeros((), jnp.int32))

    def init_client(self, params: Params) -> Memory:
        return Memory.empty(params)

    def broadcast(self, server: Server, key: Array) -> Down:
        return Down(server.params, self.inner_lr)

    def client_update(self, loss: Loss, down: Down, state: Memory, client: ClientSamples, key: Array) -> ClientResult:
        episode = self.draw(client, jax.random.fold_in(key, 0))
        inner = self.adaptation.run(loss, down.params, episode.inner)
        memory = remember(state, inner.params, self.averaging)
        value, gradient = self.meta_gradient(loss, inner, memory.value, episode)
        return ClientResult(memory, gradient, {"loss": value})

    def server_update(self, server: Server, mean_up: Params) -> Server:
        alpha = step_size_at(self.outer_lr, server.round)
        return Server(tree.add_scaled(server.params, -alpha, mean_up), server.round + 1)

    def cost(self) -> Cost:
        return self.step_cost
