"""Local only: every client trains a model of its own on its own data, and nothing is shared."""

from collections.abc import Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax
from jax import Array

from headstart.core import (
    Algorithm,
    ClientResult,
    ClientSamples,
    Cost,
    Down,
    Loss,
    Params,
    Server,
    Size,
    check_size,
    checks,
    descend,
)

__all__ = ["LocalOnly"]


class LocalOnly(Algorithm):
    r"""Train every client's model on the client's own data alone, from a fresh start.

    .. math::
        u^i_{t+1} = u^i_t - \alpha \nabla f_i(u^i_t, D), \qquad u^i_0 = w_0

    What a client has without a federation, so what a federation has to beat. The shared model stays as it began.
    However many steps an evaluation asks for, other than none, a client takes ``own_steps``.

    Symbols: ``learning_rate`` alpha, ``own_steps`` the number of steps, ``batch_size`` the batch on which training
    reports the untrained model's loss.

    Deviations: none, for there is no paper of it.

    >>> LocalOnly(own_steps=50).cost()
    Cost(gradients=0, products=0, batches={1: 1})
    """

    learning_rate: Array | float = 0.1
    own_steps: int = eqx.field(static=True, default=200)
    batch_size: Size = eqx.field(static=True, default=1)

    adapts_by: ClassVar[str | None] = None
    adapts_with: ClassVar[tuple[str, ...]] = ("lr",)

    def __check_init__(self) -> None:
        checks.at_least("learning_rate", self.learning_rate, 0)
        checks.whole("own_steps", self.own_steps, 1)
        check_size("batch_size", self.batch_size)

    @property
    def refuses(self) -> Mapping[str, str]:
        parts = ("client_optimizer", "server_optimizer", "clip", "noise", "compress", "aggregate")
        return dict.fromkeys(parts, "its clients send nothing")

    def init_server(self, params: Params) -> Server:
        return Server.start(params, None)

    def init_client(self, params: Params) -> tuple[()]:
        return ()

    def broadcast(self, server: Server, key: Array) -> Down:
        return Down(server.params, self.learning_rate)

    def client_update(self, loss: Loss, down: Down, state: Any, client: ClientSamples, key: Array) -> ClientResult:
        return ClientResult(None, (), {"loss": loss(down.params, client.sample(key, self.batch_size))})

    def server_update(self, server: Server, mean_up: tuple[()]) -> Server:
        return server._replace(round=server.round + 1)

    def personalize(
        self, loss: Loss, down: Down, state: Any, support: ClientSamples, key: Array, steps: int, size: Size
    ) -> Params:
        def gradient(w: Params, key: Array) -> tuple[Array, Params]:
            return jax.value_and_grad(loss)(w, support.sample(key, size))

        return descend(gradient, down.params, self.own_steps, down.lr, key).params if steps else down.params

    def cost(self) -> Cost:
        return Cost(gradients=0, products=0, batches={self.batch_size: 1})
