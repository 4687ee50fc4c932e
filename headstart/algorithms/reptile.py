"""Reptile: move the shared model part of the way to where clients' own SGD takes it."""

from typing import Any, ClassVar

import equinox as eqx
import jax
from jax import Array

from headstart.algorithms._personal import fine_tune
from headstart.core import (
    Algorithm,
    ClientOptimizer,
    ClientResult,
    ClientSamples,
    Cost,
    Down,
    Loss,
    Optimizer,
    Params,
    Server,
    Size,
    StepSize,
    as_optimizer,
    as_step_size,
    check_size,
    check_step_size,
    checks,
    descend,
    step_size_at,
    tree,
)

__all__ = ["Reptile"]


class Reptile(Algorithm):
    r"""Step the shared model towards the mean of the clients' models after plain SGD.

    .. math::
        w^i_{t} = w^i_{t-1} - \alpha \nabla f_i(w^i_{t-1}, D), \qquad
        w_{k+1} = w_k + \epsilon_k \,\text{mean}_i (w^i_\tau - w_k)

    Symbols: ``inner_lr`` alpha, ``local_steps`` tau (Reptile's k), ``outer_lr`` epsilon, ``batch_size`` D.
    ``outer_lr = 1`` is FedAvg with step size ``inner_lr``.

    Nichol, Achiam and Schulman 2018, Algorithm 2 (the batched version, a client being a task).

    >>> Reptile(local_steps=5, batch_size=10).cost()
    Cost(gradients=5, products=0, batches={10: 5})

    Deviations: none. Optimisers are as in `MetaFL`: a client's takes the place of ``inner_lr`` in training, a server's
    that of ``outer_lr``.
    """

    inner_lr: Array | float = 0.01
    outer_lr: StepSize = eqx.field(converter=as_step_size, default=0.1)
    local_steps: int = eqx.field(static=True, default=4)
    batch_size: Size = eqx.field(static=True, default=40)
    client_optimizer: Optimizer | None = eqx.field(converter=as_optimizer, default=None)
    keep_client_optimizer: bool = eqx.field(static=True, default=False)
    server_optimizer: Optimizer | None = eqx.field(converter=as_optimizer, default=None)

    traces_steps: ClassVar[bool] = True

    def __check_init__(self) -> None:
        self.local_optimizer.check()
        checks.at_least("inner_lr", self.inner_lr, 0)
        check_step_size("outer_lr", self.outer_lr)
        checks.whole("local_steps", self.local_steps, 1)
        check_size("batch_size", self.batch_size)

    @property
    def local_optimizer(self) -> ClientOptimizer:
        """How a client takes its local steps."""
        return ClientOptimizer(self.client_optimizer, self.keep_client_optimizer)

    def init_server(self, params: Params) -> Server:
        return Server.start(params, self.server_optimizer)

    def init_client(self, params: Params) -> Any:
        return self.local_optimizer.init_client(params, own=())

    def broadcast(self, server: Server, key: Array) -> Down:
        return Down(server.params, self.inner_lr)

    def client_update(self, loss: Loss, down: Down, state: Any, client: ClientSamples, key: Array) -> ClientResult:
        task = client.episode(key).inner

        def gradient(w: Params, key: Array) -> tuple[Array, Params]:
            return jax.value_and_grad(loss)(w, task.sample(key, self.batch_size))

        own, begun = self.local_optimizer.begin(down.params, state)
        end = descend(
            gradient, down.params, self.local_steps, down.lr, key, optimizer=self.local_optimizer, state=begun
        )
        moved = tree.sub(end.params, down.params)
        return ClientResult(self.local_optimizer.end(own, end.optimizer), moved, {"loss": end.loss})

    def server_update(self, server: Server, mean_up: Params) -> Server:
        step = step_size_at(self.outer_lr, server.round)
        return server.moved(self.server_optimizer, tree.scale(-1, mean_up), step)

    def personalize(
        self, loss: Loss, down: Down, state: Any, support: ClientSamples, key: Array, steps: int, size: Size
    ) -> Params:
        return fine_tune(loss, down.params, support, key, steps, self.inner_lr, size)

    def cost(self) -> Cost:
        return Cost(gradients=self.local_steps, products=0, batches={self.batch_size: self.local_steps})
