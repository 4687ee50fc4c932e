"""FedProx: FedAvg whose local steps are held back towards the shared model."""

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

__all__ = ["FedProx"]


class FedProx(Algorithm):
    r"""FedAvg with a proximal term of weight ``mu`` in every client's loss.

    .. math::
        w^i_{t} = w^i_{t-1} - \beta_k \bigl(\nabla f_i(w^i_{t-1}, D) + \mu (w^i_{t-1} - w_k)\bigr), \qquad
        w_{k+1} = \text{mean}_i\, w^i_\tau

    Symbols: ``mu`` mu, ``outer_lr`` beta, ``local_steps`` tau, ``batch_size`` D; ``inner_lr`` alpha is used
    when a client personalizes. ``mu = 0`` is FedAvg.

    Li et al. 2020, Algorithm 2.

    >>> FedProx(mu=0.1, local_steps=10).cost()
    Cost(gradients=10, products=0, batches={40: 10})

    Deviations: the local problem is solved by ``local_steps`` steps of SGD rather than to a given inexactness,
    as its authors' code does. Optimisers are as in `MetaFL`.
    """

    mu: Array | float = 0.1
    outer_lr: StepSize = eqx.field(converter=as_step_size, default=0.001)
    local_steps: int = eqx.field(static=True, default=4)
    batch_size: Size = eqx.field(static=True, default=40)
    inner_lr: Array | float = 0.01
    client_optimizer: Optimizer | None = eqx.field(converter=as_optimizer, default=None)
    keep_client_optimizer: bool = eqx.field(static=True, default=False)
    server_optimizer: Optimizer | None = eqx.field(converter=as_optimizer, default=None)

    traces_steps: ClassVar[bool] = True

    def __check_init__(self) -> None:
        self.local_optimizer.check()
        checks.at_least("mu", self.mu, 0)
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
        return Down(server.params, step_size_at(self.outer_lr, server.round))

    def client_update(self, loss: Loss, down: Down, state: Any, client: ClientSamples, key: Array) -> ClientResult:
        def proximal_gradient(w: Params, key: Array) -> tuple[Array, Params]:
            value, gradient = jax.value_and_grad(loss)(w, client.sample(key, self.batch_size))
            return value, tree.add_scaled(gradient, self.mu, tree.sub(w, down.params))

        own, begun = self.local_optimizer.begin(down.params, state)
        end = descend(
            proximal_gradient, down.params, self.local_steps, down.lr, key, optimizer=self.local_optimizer, state=begun
        )
        moved = tree.sub(end.params, down.params)
        return ClientResult(self.local_optimizer.end(own, end.optimizer), moved, {"loss": end.loss})

    def server_update(self, server: Server, mean_up: Params) -> Server:
        return server.moved(self.server_optimizer, tree.scale(-1, mean_up))

    def personalize(
        self, loss: Loss, down: Down, state: Any, support: ClientSamples, key: Array, steps: int, size: Size
    ) -> Params:
        return fine_tune(loss, down.params, support, key, steps, self.inner_lr, size)

    def cost(self) -> Cost:
        return Cost(gradients=self.local_steps, products=0, batches={self.batch_size: self.local_steps})
