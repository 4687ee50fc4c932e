"""Generalized meta federated learning: FedAvg, Per-FedAvg and any number of fine-tuning steps in one."""

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
from jax import Array

from headstart.algorithms._personal import fine_tune
from headstart.core import (
    Adaptation,
    Algorithm,
    BatchSizes,
    ClientOptimizer,
    ClientResult,
    ClientSamples,
    Cost,
    Curvature,
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
    check_curvature_size,
    check_step_size,
    checks,
    descend,
    step_size_at,
    tree,
)

__all__ = ["MetaDown", "MetaFL", "MetaServer", "MetaUp"]


class MetaServer(NamedTuple):
    """The shared model, the round, and fallah Remark 4.7's averaged random iterate where it is asked for."""

    params: Params
    round: Array
    iterate: Params | None
    optimizer: Any


class MetaDown(NamedTuple):
    """The shared model, the round's step size beta_k, and which local iterate to send back as well (t_k)."""

    params: Params
    lr: Array | float
    keep: Array | None


class MetaUp(NamedTuple):
    """How far the local model came in tau steps, and how far the iterate that was asked for had come."""

    moved: Params
    iterate: Params | None


class MetaFL(Algorithm):
    r"""Train a model to be good after ``inner_steps`` gradient steps on each client's own data.

    .. math::
        w^i_0 = w_k, \qquad
        w^i_{t} = w^i_{t-1} - \beta_k \prod_{j=0}^{\nu-1} \bigl(I - \alpha \nabla^2 f_i(\tilde w_j, D'_j)\bigr)
        \nabla f_i(\tilde w_\nu, D_\nu), \qquad
        w_{k+1} = \frac{1}{rN} \sum_{i \in A_k} w^i_\tau

    with :math:`\tilde w_{l} = \tilde w_{l-1} - \alpha \nabla f_i(\tilde w_{l-1}, D_{l-1})` from
    :math:`\tilde w_0 = w^i_{t-1}`. All ``2 nu + 1`` batches are independent.

    Symbols: ``inner_steps`` nu, ``inner_lr`` alpha, ``outer_lr`` beta, ``local_steps`` tau, ``batch_size``
    D_nu (fallah's D'), ``inner_batch_size`` D_0 .. D_(nu-1) (fallah's D), ``curvature_batch_size``
    D'_0 .. D'_(nu-1) (fallah's D''), ``curvature.radius`` delta.

    Implements jamali Algorithms 1-4, (7)-(11), (31), (34)-(36). ``inner_steps = 0`` is FedAvg,
    ``inner_steps = 1`` is Per-FedAvg (fallah Algorithm 1, (112), (119)-(121)). ``random_iterate`` adds fallah
    Remark 4.7: the server also averages a local iterate ``w_(t_k)`` with ``t_k`` uniform in 0 .. tau - 1.

    >>> MetaFL(inner_steps=3, inner_lr=0.01, curvature="hessian-free").cost()
    Cost(gradients=40, products=0, batches={40: 28})

    With a ``client_optimizer`` the local steps are its own along the meta-gradient, with its own step size instead of
    ``outer_lr``; with a ``server_optimizer`` the server's move is that one's along minus the mean of
    :math:`w^i_\tau - w_k`. Neither is the papers'.

    Deviations: batches are drawn with replacement, so that they are independent as the analysis assumes.
    ``shared_batch`` uses one batch for all of a local step; no paper does, much code does. With ``reuse_batch``
    every local step of a round looks at the same samples, as in the code released with wang and in no paper.
    """

    inner_steps: int = eqx.field(static=True, default=1)
    inner_lr: Array | float = 0.01
    outer_lr: StepSize = eqx.field(converter=as_step_size, default=0.001)
    local_steps: int = eqx.field(static=True, default=4)
    curvature: Curvature = eqx.field(converter=as_curvature, default_factory=Exact)
    batch_size: Size = eqx.field(static=True, default=40)
    inner_batch_size: Size | tuple[int, ...] | None = eqx.field(static=True, default=None)
    curvature_batch_size: Size | tuple[int, ...] | None = eqx.field(static=True, default=None)
    shared_batch: bool = eqx.field(static=True, default=False)
    reuse_batch: bool = eqx.field(static=True, default=False)
    random_iterate: bool = eqx.field(static=True, default=False)
    client_optimizer: Optimizer | None = eqx.field(converter=as_optimizer, default=None)
    keep_client_optimizer: bool = eqx.field(static=True, default=False)
    server_optimizer: Optimizer | None = eqx.field(converter=as_optimizer, default=None)

    traces_steps: ClassVar[bool] = True

    def __check_init__(self) -> None:
        check_step_size("outer_lr", self.outer_lr)
        self.local_optimizer.check()
        checks.whole("local_steps", self.local_steps, 1)
        check_curvature_size(self.curvature, self.curvature_batch_size)
        _ = self.adaptation
        self.batches.check_steps(self.inner_steps)

    @property
    def adaptation(self) -> Adaptation:
        """The inner loop."""
        return Adaptation(self.inner_steps, self.inner_lr)

    @property
    def batches(self) -> BatchSizes:
        """The batches of a local step."""
        return BatchSizes(self.batch_size, self.inner_batch_size, self.curvature_batch_size, self.shared_batch)

    @property
    def local_optimizer(self) -> ClientOptimizer:
        """How a client takes its local steps."""
        return ClientOptimizer(self.client_optimizer, self.keep_client_optimizer)

    def init_server(self, params: Params) -> MetaServer:
        _, round_, optimizer = Server.start(params, self.server_optimizer)
        return MetaServer(params, round_, params if self.random_iterate else None, optimizer)

    def init_client(self, params: Params) -> Any:
        return self.local_optimizer.init_client(params, own=())

    def broadcast(self, server: MetaServer, key: Array) -> MetaDown:
        keep = jax.random.randint(key, (), 0, self.local_steps) if self.random_iterate else None
        return MetaDown(server.params, step_size_at(self.outer_lr, server.round), keep)

    def client_update(self, loss: Loss, down: MetaDown, state: Any, client: ClientSamples, key: Array) -> ClientResult:
        def meta_gradient(w: Params, key: Array) -> tuple[Array, Params]:
            episode = self.batches.draw(client, key, self.inner_steps, self.curvature.looks_at)
            u, trajectory = self.adaptation.run(loss, w, episode.inner)
            value, v = jax.value_and_grad(loss)(u, episode.outer)
            return value, self.adaptation.pullback(loss, self.curvature, trajectory, episode.curvature, v)

        own, begun = self.local_optimizer.begin(down.params, state)
        end = descend(
            meta_gradient, down.params, self.local_steps, down.lr, key, down.keep, self.reuse_batch,
            self.local_optimizer, begun,
        )  # fmt: skip
        moved = tree.sub(end.params, down.params)
        iterate = None if end.iterate is None else tree.sub(end.iterate, down.params)
        return ClientResult(self.local_optimizer.end(own, end.optimizer), MetaUp(moved, iterate), {"loss": end.loss})

    def server_update(self, server: MetaServer, mean_up: MetaUp) -> MetaServer:
        moved = Server(server.params, server.round, server.optimizer).moved(
            self.server_optimizer, tree.scale(-1, mean_up.moved)
        )
        iterate = None if mean_up.iterate is None else tree.add(server.params, mean_up.iterate)
        return MetaServer(moved.params, moved.round, iterate, moved.optimizer)

    def personalize(
        self, loss: Loss, down: MetaDown, state: Any, support: ClientSamples, key: Array, steps: int, size: Size
    ) -> Params:
        return fine_tune(loss, down.params, support, key, steps, self.inner_lr, size)

    def cost(self) -> Cost:
        tau, nu = self.local_steps, self.inner_steps
        draws = 1 if self.reuse_batch else tau
        episode = self.batches.count(nu, self.curvature.looks_at)
        return Cost(
            gradients=tau * (nu + 1 + nu * self.curvature.gradients),
            products=tau * nu * self.curvature.products,
            batches={size: draws * batches for size, batches in episode.items()},
        )
