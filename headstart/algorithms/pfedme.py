"""pFedMe: personal models tied to the shared one by a Moreau envelope."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from headstart.core import (
    Algorithm,
    Batch,
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

__all__ = ["PFedMe"]


class PFedMe(Algorithm):
    r"""Give every client a personal model held near the shared one by a quadratic of weight ``penalty``.

    .. math::
        \theta \approx \arg\min_\theta f_i(\theta, D) + \tfrac{\lambda}{2}\|\theta - w^i_{t-1}\|^2, \qquad
        w^i_{t} = w^i_{t-1} - \eta_k \lambda (w^i_{t-1} - \theta), \qquad
        w_{k+1} = (1 - \beta) w_k + \beta\, \text{mean}_i\, w^i_R

    where theta is ``inner_steps`` gradient steps of size ``inner_lr`` on one batch, started from
    :math:`w^i_{t-1}`.

    Symbols: ``penalty`` lambda, ``outer_lr`` eta, ``local_steps`` R, ``inner_steps`` K, ``server_mixing`` beta,
    ``batch_size`` D. Its inner step size has no symbol in the paper. ``personal_penalty`` is lambda when a client
    personalizes, ``penalty`` unless given.

    T. Dinh, Tran and Nguyen 2020, Algorithm 1.

    >>> PFedMe(local_steps=4, inner_steps=5).cost()
    Cost(gradients=20, products=0, batches={40: 4})

    Deviations: only the cohort computes (the paper lets every client compute and averages a sample; the
    result is the same, since clients keep nothing between rounds). ``reuse_batch`` (every local step of a round looks
    at the same samples, as in the code released with wang) is not the paper's, nor is ``personal_penalty = 0``, the
    plain fine-tuning by which wang compares all methods. Optimisers are as in `MetaFL`; a server's takes the place of
    ``server_mixing``.
    """

    penalty: Array | float = 15.0
    inner_steps: int = eqx.field(static=True, default=5)
    inner_lr: Array | float = 0.01
    outer_lr: StepSize = eqx.field(converter=as_step_size, default=0.005)
    server_mixing: Array | float = 1.0
    local_steps: int = eqx.field(static=True, default=4)
    batch_size: Size = eqx.field(static=True, default=40)
    reuse_batch: bool = eqx.field(static=True, default=False)
    personal_penalty: Array | float | None = None
    client_optimizer: Optimizer | None = eqx.field(converter=as_optimizer, default=None)
    keep_client_optimizer: bool = eqx.field(static=True, default=False)
    server_optimizer: Optimizer | None = eqx.field(converter=as_optimizer, default=None)

    def __check_init__(self) -> None:
        self.local_optimizer.check()
        checks.at_least("penalty", self.penalty, 0)
        checks.at_least("personal_penalty", self._own_penalty, 0)
        checks.at_least("inner_lr", self.inner_lr, 0)
        checks.positive("server_mixing", self.server_mixing)
        check_step_size("outer_lr", self.outer_lr)
        checks.whole("inner_steps", self.inner_steps, 1)
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
        def envelope_gradient(w: Params, key: Array) -> tuple[Array, Params]:
            batch = client.sample(key, self.batch_size)
            theta, value = self._personal_model(loss, w, lambda t: batch, self.inner_steps, self.penalty)
            return value, tree.scale(self.penalty, tree.sub(w, theta))

        own, begun = self.local_optimizer.begin(down.params, state)
        end = descend(
            envelope_gradient, down.params, self.local_steps, down.lr, key, reuse=self.reuse_batch,
            optimizer=self.local_optimizer, state=begun,
        )  # fmt: skip
        moved = tree.sub(end.params, down.params)
        return ClientResult(self.local_optimizer.end(own, end.optimizer), moved, {"loss": end.loss})

    def server_update(self, server: Server, mean_up: Params) -> Server:
        return server.moved(self.server_optimizer, tree.scale(-1, mean_up), self.server_mixing)

    def personalize(
        self, loss: Loss, down: Down, state: Any, support: ClientSamples, key: Array, steps: int, size: Size
    ) -> Params:
        def batch(t: Array) -> Batch:
            return support.sample(jax.random.fold_in(key, t), size)

        if not steps:
            return down.params
        return self._personal_model(loss, down.params, batch, steps, self._own_penalty)[0]

    def cost(self) -> Cost:
        draws = 1 if self.reuse_batch else self.local_steps
        return Cost(gradients=self.local_steps * self.inner_steps, products=0, batches={self.batch_size: draws})

    @property
    def _own_penalty(self) -> Array | float:
        return self.penalty if self.personal_penalty is None else self.personal_penalty

    def _personal_model(
        self, loss: Loss, anchor: Params, batch: Any, steps: int, penalty: Array | float
    ) -> tuple[Params, Array]:
        """Gradient steps from ``anchor`` on the loss plus the pull towards it, and the mean loss on the way."""

        def step(theta: Params, t: Array) -> tuple[Params, Array]:
            value, gradient = jax.value_and_grad(loss)(theta, batch(t))
            pull = tree.scale(penalty, tree.sub(theta, anchor))
            return tree.add_scaled(theta, -self.inner_lr, tree.add(gradient, pull)), value

        theta, values = jax.lax.scan(step, anchor, jnp.arange(steps))
        return theta, jnp.mean(values)
