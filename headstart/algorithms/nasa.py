"""NASA: two running averages, one of every task's adapted model and one of the meta-gradient."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from headstart.algorithms._remembering import NO_LOCAL_STEPS, RememberingAlgorithm
from headstart.core import (
    ClientResult,
    ClientSamples,
    Cost,
    Down,
    Loss,
    Memory,
    Params,
    Server,
    checks,
    remember,
    server_step,
    step_size_at,
    tree,
)

__all__ = ["NASA", "NASAServer"]


class NASAServer(NamedTuple):
    """The shared model, and the running average z of its meta-gradient."""

    params: Params
    round: Array
    gradient: Params
    optimizer: Any


class NASA(RememberingAlgorithm):
    r"""Average the inner function *and* the gradient, and take every gradient at the average of the step before.

    .. math::
        z_k = (1 - a) z_{k-1} + a\, \text{mean}_i\, \nabla g_i(x_k, S_2)^\top \nabla f_i(u^i_{k-1}, S_3), \qquad
        u^i_k = (1 - b) u^i_{k-1} + b\, g_i(x_k, S_1), \qquad
        x_{k+1} = x_k - \gamma_k z_k

    with :math:`g_i(x, S) = x - \lambda \nabla \mathcal L_i(x, S)` and :math:`f_i = \mathcal L_i`; all tasks take part
    in every step.

    Symbols: ``inner_lr`` lambda, ``outer_lr`` gamma_k (the paper's tau_k / beta_k), ``momentum`` a (its a tau_k),
    ``averaging`` b (its b tau_k), ``inner_batch_size`` S_1, ``curvature_batch_size`` S_2, ``batch_size`` S_3.

    Ghadimi, Ruszczynski and Wang 2020, Algorithm 1, applied to meta-learning as wang section 2 says.

    >>> NASA(averaging=0.5, momentum=0.1, batch_size=1).cost()
    Cost(gradients=2, products=1, batches={1: 3})

    Deviations: an iteration of the paper first moves x, then looks at the new x. A round here looks first and then
    moves: the same sequence, cut half an iteration later. The paper takes the first u and z as given; here each
    begins with its first value. There is no feasible set, so the paper's subproblem is a plain step, or that of a
    ``server_optimizer`` along z.
    """

    momentum: Array | float = 0.1

    @property
    def refuses(self) -> Mapping[str, str]:
        return NO_LOCAL_STEPS

    def __check_init__(self) -> None:
        checks.in_unit_interval("momentum", self.momentum)

    @property
    def needs_everyone(self) -> bool:
        return True

    def init_server(self, params: Params) -> NASAServer:
        _, round_, optimizer = Server.start(params, self.server_optimizer)
        return NASAServer(params, round_, tree.zeros_like(params), optimizer)

    def init_client(self, params: Params) -> Memory:
        return Memory.empty(params)

    def broadcast(self, server: NASAServer, key: Array) -> Down:
        return Down(server.params, self.inner_lr)

    def client_update(self, loss: Loss, down: Down, state: Memory, client: ClientSamples, key: Array) -> ClientResult:
        episode = self.draw(client, jax.random.fold_in(key, 0))
        inner = self.adaptation.run(loss, down.params, episode.inner)
        memory = remember(state, inner.params, self.averaging)
        before = jax.tree.map(lambda old, first: jnp.where(state.started, old, first), state.value, inner.params)
        value, gradient = self.meta_gradient(loss, inner, before, episode)
        return ClientResult(memory, gradient, {"loss": value})

    def server_update(self, server: NASAServer, mean_up: Params) -> NASAServer:
        z = remember(Memory(server.gradient, server.round > 0), mean_up, self.momentum).value
        gamma = step_size_at(self.outer_lr, server.round)
        params, optimizer = server_step(self.server_optimizer, server.params, z, gamma, server.optimizer)
        return NASAServer(params, server.round + 1, z, optimizer)

    def cost(self) -> Cost:
        return self.step_cost
