"""MOML v1: MAML whose adapted models are remembered and averaged, task by task."""

from collections.abc import Mapping

import equinox as eqx
import jax
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
    remember,
    step_size_at,
)

__all__ = ["MOML"]


class MOML(RememberingAlgorithm):
    r"""MAML that takes its meta-gradient at a running average of each task's adapted models.

    .. math::
        u^i_{t+1} = (1 - \beta) u^i_t + \beta \bigl(w_t - \alpha \nabla \mathcal L_i(w_t, S_1)\bigr), \qquad
        w_{t+1} = w_t - \eta_t\, \text{mean}_{i \in B_t}
        \bigl(I - \alpha \nabla^2 \mathcal L_i(w_t, S_2)\bigr) \nabla \mathcal L_i(u^i_{t+1}, S_3)

    A client is a task and a round is one step. Memories of tasks outside the cohort stay as they are. The average
    covers the samples of many steps, so a few samples a step suffice, where MAML stalls. ``averaging = 1`` is MAML.
    With ``every_task`` all tasks have to take part in every step, which makes it SCGD.

    Symbols: ``inner_lr`` alpha, ``outer_lr`` eta, ``averaging`` beta, ``inner_batch_size`` S_1,
    ``curvature_batch_size`` S_2, ``batch_size`` S_3 (each of K samples), the cohort B_t.

    Wang, Yuan, Ying and Yang 2023, Algorithm 1, (v1), (3).

    >>> MOML(averaging=0.3, batch_size=1).cost()
    Cost(gradients=2, products=1, batches={1: 3})

    Deviations: none. A memory begins with the adapted model of the task's first visit, as in the proof of Lemma 2.
    ``shared_batch`` (one batch for S_1, S_2 and S_3) is not the paper's, nor is a ``server_optimizer``, which takes the
    place of ``outer_lr`` and is given the mean gradient.
    """

    every_task: bool = eqx.field(static=True, default=False)

    @property
    def refuses(self) -> Mapping[str, str]:
        return NO_LOCAL_STEPS

    @property
    def needs_everyone(self) -> bool:
        return self.every_task

    def init_server(self, params: Params) -> Server:
        return Server.start(params, self.server_optimizer)

    def init_client(self, params: Params) -> Memory:
        return Memory.empty(params)

    def broadcast(self, server: Server, key: Array) -> Down:
        return Down(server.params, self.inner_lr)

    def client_update(self, loss: Loss, down: Down, state: Memory, client: ClientSamples, key: Array) -> ClientResult:
        episode = self.draw(client, jax.random.fold_in(key, 0))
        adapted = self.adaptation.run(loss, down.params, episode.inner)  # line 5
        memory = remember(state, adapted.params, self.averaging)  # line 6, (v1)
        value, gradient = self.meta_gradient(loss, adapted, memory.value, episode)  # line 8, (3)
        return ClientResult(memory, gradient, {"loss": value})

    def server_update(self, server: Server, mean_up: Params) -> Server:
        eta = step_size_at(self.outer_lr, server.round)
        return server.moved(self.server_optimizer, mean_up, eta)

    def cost(self) -> Cost:
        return self.step_cost
