"""ProtoNet: learn an embedding in which classes lie around their means."""

from collections.abc import Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax
from jax import Array

from headstart.algorithms._remembering import NO_LOCAL_STEPS
from headstart.core import (
    Algorithm,
    BatchSizes,
    ClientResult,
    ClientSamples,
    Cost,
    Down,
    Objective,
    Optimizer,
    Params,
    Server,
    Size,
    StepSize,
    UserComposition,
    as_optimizer,
    as_step_size,
    check_step_size,
    step_size_at,
)
from headstart.errors import UsageError

__all__ = ["ProtoNet"]


class ProtoNet(Algorithm):
    r"""Step the embedding so that query samples lie near the mean support sample of their class.

    .. math::
        c_k = \frac{1}{|S_k|} \sum_{x \in S_k} h_w(x), \qquad
        J_i(w) = -\text{mean}_{(x, y) \in Q} \log
        \frac{\exp(-\|h_w(x) - c_y\|^2)}{\sum_k \exp(-\|h_w(x) - c_k\|^2)}, \qquad
        w \leftarrow w - \beta\, \text{mean}_i \nabla J_i(w)

    A client is an episode, with support samples S and query samples Q of its own; a round is one step. A client
    personalizes without gradients: it takes the means of its support data.

    Symbols: ``outer_lr`` beta, ``inner_batch_size`` \|S\|, ``batch_size`` \|Q\|; the paper names no step size.

    Snell, Swersky and Zemel 2017, (1), (2) and Algorithm 1. It works on the problem ``Prototypes``.

    >>> ProtoNet(batch_size=15, inner_batch_size=5).cost()
    Cost(gradients=1, products=0, batches={15: 1, 5: 1})

    Deviations: S and Q are independent draws from a client's samples, not so many of each class; classes that a draw
    misses are left out of it. A ``server_optimizer`` takes the place of ``outer_lr``.
    """

    outer_lr: StepSize = eqx.field(converter=as_step_size, default=0.01)
    batch_size: Size = eqx.field(static=True, default=40)
    inner_batch_size: Size | None = eqx.field(static=True, default=None)
    server_optimizer: Optimizer | None = eqx.field(converter=as_optimizer, default=None)

    objectives: ClassVar[tuple[type, ...]] = (UserComposition,)
    adapts_by: ClassVar[str | None] = None

    @property
    def refuses(self) -> Mapping[str, str]:
        return NO_LOCAL_STEPS

    def __check_init__(self) -> None:
        check_step_size("outer_lr", self.outer_lr)
        _ = self.batches

    @property
    def batches(self) -> BatchSizes:
        """The batches of a round."""
        return BatchSizes(self.batch_size, self.inner_batch_size)

    def init_server(self, params: Params) -> Server:
        return Server.start(params, self.server_optimizer)

    def init_client(self, params: Params) -> tuple[()]:
        return ()

    def broadcast(self, server: Server, key: Array) -> Down:
        return Down(server.params, step_size_at(self.outer_lr, server.round))

    def client_update(
        self, objective: Objective, down: Down, state: Any, client: ClientSamples, key: Array
    ) -> ClientResult:
        composition = _prototypes(objective)
        episode = self.batches.draw(client, jax.random.fold_in(key, 0), 1, "nothing")
        support = jax.tree.map(lambda leaf: leaf[0], episode.inner)

        def episode_loss(w: Params) -> Array:
            return composition.outer(composition.inner(w, support), episode.outer)

        loss, gradient = jax.value_and_grad(episode_loss)(down.params)
        return ClientResult(state, gradient, {"loss": loss})

    def server_update(self, server: Server, mean_up: Params) -> Server:
        return server.moved(self.server_optimizer, mean_up, step_size_at(self.outer_lr, server.round))

    def personalize(
        self, objective: Objective, down: Down, state: Any, support: ClientSamples, key: Array, steps: int, size: Size
    ) -> Params:
        return _prototypes(objective).inner(down.params, support.sample(key, size))

    def cost(self) -> Cost:
        return Cost(gradients=1, products=0, batches=dict(self.batches.count(1, "nothing")))


def _prototypes(objective: Objective) -> UserComposition:
    if not (isinstance(objective, UserComposition) and objective.personal):
        raise UsageError(
            "ProtoNet needs a problem whose models are made of class means.", "Give it Prototypes(model, ways)."
        )
    return objective
