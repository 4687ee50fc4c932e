"""BSpiderBoost: MAML with a gradient that is corrected by differences, and recomputed from large batches at times."""

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from headstart.algorithms._personal import fine_tune
from headstart.algorithms._remembering import NO_LOCAL_STEPS
from headstart.core import (
    Adaptation,
    Algorithm,
    BatchSizes,
    ClientResult,
    ClientSamples,
    Cost,
    Curvature,
    Episode,
    Exact,
    Loss,
    Optimizer,
    Params,
    Server,
    Size,
    StepSize,
    as_curvature,
    as_optimizer,
    as_step_size,
    check_size,
    check_step_size,
    checks,
    server_step,
    step_size_at,
    tree,
)

__all__ = ["BSpiderBoost", "BSpiderBoostDown", "BSpiderBoostServer"]


class BSpiderBoostServer(NamedTuple):
    """The shared model, the one before it, and the gradient estimate v."""

    params: Params
    round: Array
    previous: Params
    gradient: Params
    optimizer: Any


class BSpiderBoostDown(NamedTuple):
    """The shared model, the one before it, and whether this round recomputes the gradient."""

    params: Params
    previous: Params
    large: Array


class BSpiderBoost(Algorithm):
    r"""MAML along a gradient estimate that small batches keep up to date between large ones.

    .. math::
        v_t = \begin{cases}
        \text{mean}_i\, \hat\nabla F_i(w_t; S^{\text{large}}) & q \mid t \\
        v_{t-1} + \text{mean}_i \bigl(\hat\nabla F_i(w_t; S) - \hat\nabla F_i(w_{t-1}; S)\bigr) & \text{otherwise}
        \end{cases}, \qquad w_{t+1} = w_t - \eta_t v_t

    with :math:`\hat\nabla F_i(w; S) = (I - \alpha \nabla^2 \mathcal L_i(w, S_2))
    \nabla \mathcal L_i(w - \alpha \nabla \mathcal L_i(w, S_1), S_3)`. Both gradients of a difference see the same
    tasks and the same samples S = (S_1, S_2, S_3). A client is a task and a round is one step. ``period = 1`` is MAML
    with large batches. With ``large_cohorts`` above one a large batch is one of tasks, too: the mean over the cohorts
    of so many rounds, through which the model waits.

    Symbols: ``inner_lr`` alpha, ``outer_lr`` eta, ``period`` q, ``batch_size`` samples of each of S_1, S_2 and S_3,
    ``large_batch_size`` the same in a round that recomputes, ``large_cohorts`` times the cohort the tasks of a large
    batch.

    Hu, Zhang, Chen and He 2020, Algorithm 2.

    >>> BSpiderBoost(period=2, batch_size=1, large_batch_size=10).cost()
    Cost(gradients=3.0, products=1.5, batches={10: 1.5, 1: 1.5})

    Deviations: the paper draws a large batch of tasks at once; a cohort here always has as many, so that a large one is
    collected over rounds, and a task may come in two of them. ``cost`` is the mean over a period. A
    ``server_optimizer``, given v, takes the place of ``outer_lr``.
    """

    inner_lr: Array | float = 0.01
    outer_lr: StepSize = eqx.field(converter=as_step_size, default=0.001)
    period: int = eqx.field(static=True, default=3)
    curvature: Curvature = eqx.field(converter=as_curvature, default_factory=Exact)
    batch_size: Size = eqx.field(static=True, default=10)
    large_batch_size: Size = eqx.field(static=True, default=40)
    large_cohorts: int = eqx.field(static=True, default=1)
    server_optimizer: Optimizer | None = eqx.field(converter=as_optimizer, default=None)

    traces_steps: ClassVar[bool] = True

    def __check_init__(self) -> None:
        check_step_size("outer_lr", self.outer_lr)
        checks.whole("period", self.period, 1)
        check_size("batch_size", self.batch_size)
        check_size("large_batch_size", self.large_batch_size)
        checks.whole("large_cohorts", self.large_cohorts, 1)
        _ = self.adaptation

    @property
    def refuses(self) -> Mapping[str, str]:
        return NO_LOCAL_STEPS | {
            "noise": "it adds up differences of gradients, so noise that is added to each would grow with the rounds",
        }

    @property
    def adaptation(self) -> Adaptation:
        """The inner step."""
        return Adaptation(1, self.inner_lr)

    def init_server(self, params: Params) -> BSpiderBoostServer:
        _, round_, optimizer = Server.start(params, self.server_optimizer)
        return BSpiderBoostServer(params, round_, params, tree.zeros_like(params), optimizer)

    def init_client(self, params: Params) -> tuple[()]:
        return ()

    def broadcast(self, server: BSpiderBoostServer, key: Array) -> BSpiderBoostDown:
        return BSpiderBoostDown(server.params, server.previous, self._place(server) < self.large_cohorts)

    def client_update(
        self, loss: Loss, down: BSpiderBoostDown, state: Any, client: ClientSamples, key: Array
    ) -> ClientResult:
        key = jax.random.fold_in(key, 0)

        def draw(size: Size) -> Episode:
            return BatchSizes(size).draw(client, key, 1, self.curvature.looks_at)

        def recomputed() -> tuple[Array, Params]:
            return self._meta_gradient(loss, down.params, draw(self.large_batch_size))

        def difference() -> tuple[Array, Params]:
            episode = draw(self.batch_size)
            value, here = self._meta_gradient(loss, down.params, episode)
            _, before = self._meta_gradient(loss, down.previous, episode)
            return value, tree.sub(here, before)

        # The flag is the server's and the same for all clients, so only one branch is computed.
        value, sent = jax.lax.cond(down.large, recomputed, difference)
        return ClientResult(state, sent, {"loss": value})

    def server_update(self, server: BSpiderBoostServer, mean_up: Params) -> BSpiderBoostServer:
        place, eta = self._place(server), step_size_at(self.outer_lr, server.round)

        def corrected(v: Array, sent: Array) -> Array:
            before = place.astype(v.dtype)  # cohorts of a large batch that have come before this one
            mean = jnp.where(place == 0, sent, (before * v + sent) / (before + 1))
            return jnp.where(place < self.large_cohorts, mean, v + sent)

        gradient = jax.tree.map(corrected, server.gradient, mean_up)
        params, optimizer = server_step(self.server_optimizer, server.params, gradient, eta, server.optimizer)
        if self.large_cohorts > 1:
            waits = place < self.large_cohorts - 1
            params, optimizer = jax.tree.map(
                lambda new, old: jnp.where(waits, old, new), (params, optimizer), (server.params, server.optimizer)
            )
        return BSpiderBoostServer(params, server.round + 1, server.params, gradient, optimizer)

    def personalize(
        self, loss: Loss, down: BSpiderBoostDown, state: Any, support: ClientSamples, key: Array, steps: int, size: Size
    ) -> Params:
        return fine_tune(loss, down.params, support, key, steps, self.inner_lr, size)

    def cost(self) -> Cost:
        gradients = 2 + self.curvature.gradients
        batches = dict.fromkeys((self.large_batch_size, self.batch_size), 0.0)
        for size, rounds in ((self.large_batch_size, self.large_cohorts), (self.batch_size, self.period - 1)):
            batches[size] += rounds * (2 + (self.curvature.looks_at == "own")) / self._rounds
        visits = (self.large_cohorts + 2 * (self.period - 1)) / self._rounds
        return Cost(visits * gradients, visits * self.curvature.products, {size: n for size, n in batches.items() if n})

    @property
    def _rounds(self) -> int:
        """From one large batch to the next."""
        return self.large_cohorts + self.period - 1

    def _place(self, server: BSpiderBoostServer) -> Array:
        """How many rounds ago the last large batch began."""
        return server.round % self._rounds

    def _meta_gradient(self, loss: Loss, w: Params, episode: Episode) -> tuple[Array, Params]:
        u, trajectory = self.adaptation.run(loss, w, episode.inner)
        value, v = jax.value_and_grad(loss)(u, episode.outer)
        return value, self.adaptation.pullback(loss, self.curvature, trajectory, episode.curvature, v)
