"""Local-SCGDM: compositional gradient descent with a memory of the inner value and momentum, both averaged too."""

import dataclasses
from functools import partial
from typing import Any, ClassVar, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from headstart.algorithms._personal import fine_tune
from headstart.core import (
    Algorithm,
    Batch,
    BatchSizes,
    ClientOptimizer,
    ClientResult,
    ClientSamples,
    Composition,
    Cost,
    Curvature,
    Exact,
    MeanComposition,
    Memory,
    Objective,
    Optimizer,
    Params,
    Server,
    Shapes,
    Size,
    StepSize,
    TaskSlots,
    UserComposition,
    as_composition,
    as_curvature,
    as_optimizer,
    as_step_size,
    check_step_size,
    checks,
    draw_tasks,
    remember,
    step_keys,
    step_size_at,
    tree,
)
from headstart.errors import UsageError

__all__ = ["LocalSCGDM", "ScgdmDown", "ScgdmServer", "ScgdmUp"]


class ScgdmServer(NamedTuple):
    """The shared model x, the round, and the averages of u and m; ``None`` for what the server does not keep."""

    params: Params
    round: Array
    inner: Any
    gradient: Params | None
    optimizer: Any


class ScgdmDown(NamedTuple):
    """What the server keeps, the step size ``beta eta``, and whether u and m have begun: not in the first round."""

    params: Params
    lr: Array | float
    begun: Array
    inner: Any
    gradient: Params | None


class ScgdmUp(NamedTuple):
    """How far the client's x, u and m came in its local steps from what it was sent."""

    moved: Params
    inner: Any
    gradient: Params | None


class LocalSCGDM(Algorithm):
    r"""Descend a function of an expectation with a running average of its inner value, and with momentum.

    .. math::
        u_{t+1} = (1 - \gamma\eta) u_t + \gamma\eta\, g(x_t; \xi_t), \qquad
        z_t = \nabla g(x_t; \xi_t)^\top \nabla f(u_{t+1}; \zeta_t), \qquad
        m_{t+1} = (1 - \alpha\eta) m_t + \alpha\eta\, z_t, \qquad
        x_{t+1} = x_t - \beta\eta\, m_{t+1}

    on every client, from :math:`u_1 = g(x_0; \xi_0)` and :math:`m_1 = z_0`; every p iterations x, u and m are
    averaged. g and its pullback see one batch :math:`\xi`, f an independent one :math:`\zeta`. On a plain loss L it is
    meta-learning: :math:`g(x; \xi) = x - \lambda \nabla L(x; \xi)` and :math:`f = L`.

    Symbols: ``outer_lr`` beta, ``scale`` eta, ``averaging`` gamma, ``momentum`` alpha, ``local_steps`` p, ``inner_lr``
    lambda, ``inner_batch_size`` xi, ``batch_size`` zeta. ``averaging = None`` keeps no u (gamma eta = 1), ``momentum =
    None`` no m (alpha eta = 1), and what is not kept is not sent.

    A client may have up to ``tasks_per_client`` tasks, of which a step draws ``tasks_per_step``; its g and f are then
    means over those. With one u for all, averaged over the clients too, the f is of the mean of all g. With
    ``separate_states`` every task has a u of its own, which its client keeps and starts when the task is first drawn; x
    and m are averaged, and what is minimised is the mean of every task's f(g), as in meta-learning.

    Gao, Li and Huang 2022, Algorithm 1 and (8); section 5.1 for ``separate_states``.

    >>> LocalSCGDM(local_steps=5, batch_size=10).cost()
    Cost(gradients=10, products=5, batches={10: 10})

    On a given composition these count evaluations of g and gradients of f, and products with the Jacobian of g.

    Deviations: ``gamma eta`` and ``alpha eta`` may be 1, where the method becomes a simpler one. A cohort may be a part
    of the clients. Any curvature may stand for the exact one, which
    looks at xi here, as ``"automatic"`` does elsewhere. Optimisers are as in `MetaFL`; they move x only, a
    client's along m.
    """

    outer_lr: StepSize = eqx.field(converter=as_step_size, default=0.01)
    scale: Array | float = 1.0
    averaging: Array | float | None = 0.7
    momentum: Array | float | None = 0.8
    local_steps: int = eqx.field(static=True, default=5)
    inner_lr: Array | float = 0.01
    curvature: Curvature = eqx.field(converter=as_curvature, default_factory=Exact)
    batch_size: Size = eqx.field(static=True, default=40)
    inner_batch_size: Size | None = eqx.field(static=True, default=None)
    separate_states: bool = eqx.field(static=True, default=False)
    tasks_per_client: int = eqx.field(static=True, default=1)
    tasks_per_step: int = eqx.field(static=True, default=1)
    client_optimizer: Optimizer | None = eqx.field(converter=as_optimizer, default=None)
    keep_client_optimizer: bool = eqx.field(static=True, default=False)
    server_optimizer: Optimizer | None = eqx.field(converter=as_optimizer, default=None)
    _inner_like: Any = eqx.field(static=True, default=None)
    """The `Shapes` of g's values, where they are not the model's; ``prepare`` finds them."""

    objectives: ClassVar[tuple[type, ...]] = (UserComposition,)

    traces_steps: ClassVar[bool] = True

    def __check_init__(self) -> None:
        self.local_optimizer.check()
        check_step_size("outer_lr", self.outer_lr)
        checks.positive("scale", self.scale)
        for name, value in (("averaging", self.averaging), ("momentum", self.momentum)):
            if value is not None:
                checks.positive(name, value)
                checks.in_unit_interval(f"{name} * scale", value * self.scale)
        checks.whole("local_steps", self.local_steps, 1)
        checks.at_least("inner_lr", self.inner_lr, 0)
        checks.whole("tasks_per_client", self.tasks_per_client, 1)
        checks.whole("tasks_per_step", self.tasks_per_step, 1)
        if self.tasks_per_step > self.tasks_per_client:
            raise UsageError(
                f"tasks_per_step = {self.tasks_per_step} exceeds tasks_per_client = {self.tasks_per_client}.",
                "Set tasks_per_client to the most tasks that a client has, and tasks_per_step to at most the fewest.",
            )
        _ = self.batches

    @property
    def batches(self) -> BatchSizes:
        """The batches of a local step and task."""
        return BatchSizes(self.batch_size, self.inner_batch_size)

    @property
    def local_optimizer(self) -> ClientOptimizer:
        """How a client takes its local steps."""
        return ClientOptimizer(self.client_optimizer, self.keep_client_optimizer)

    def task_slots(self) -> TaskSlots:
        return TaskSlots(self.tasks_per_client, self.tasks_per_step)

    def prepare(self, objective: Objective, params: Params, samples: Any) -> Self:
        if not isinstance(objective, UserComposition):
            return self

        def look(x: Params) -> tuple[Any, Array]:
            task = samples if self.tasks_per_client == 1 else samples.task(0)
            xi, zeta = self._batches(task, jax.random.key(0))
            u = objective.inner(x, xi)
            return u, objective.outer(u, zeta)

        # f is looked at too, so that one that does not fit g is refused here and not in the midst of a round.
        inner, _ = jax.eval_shape(look, params)
        return dataclasses.replace(self, _inner_like=Shapes.of(inner))

    def init_server(self, params: Params) -> ScgdmServer:
        u = None if self.averaging is None or self.separate_states else self._memory(params).value
        m = None if self.momentum is None else tree.zeros_like(params)
        _, round_, optimizer = Server.start(params, self.server_optimizer)
        return ScgdmServer(params, round_, u, m, optimizer)

    def init_client(self, params: Params) -> Any:
        memory: Any = self._memory(params) if self.averaging is not None and self.separate_states else ()
        if self.tasks_per_client > 1:
            memory = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (self.tasks_per_client, *leaf.shape)), memory)
        return self.local_optimizer.init_client(params, memory)

    def broadcast(self, server: ScgdmServer, key: Array) -> ScgdmDown:
        lr = step_size_at(self.outer_lr, server.round) * self.scale
        return ScgdmDown(server.params, lr, server.round > 0, server.inner, server.gradient)

    def client_update(
        self, objective: Objective, down: ScgdmDown, state: Any, client: ClientSamples, key: Array
    ) -> ClientResult:
        composition = as_composition(objective, self.inner_lr, self.curvature)

        def step(carry: tuple[Params, Any, Any, Any], key: Array) -> tuple[tuple[Params, Any, Any, Any], Array]:
            x, u, m, optimizer = carry
            loss, z, u = self._gradient(composition, x, u, client, key)
            if self.momentum is not None:
                m = remember(m, z, self.momentum * self.scale)  # lines 5 and 9
                z = m.value
            x, optimizer = self.local_optimizer.step(x, z, down.lr, optimizer)  # line 11
            return (x, u, m, optimizer), loss

        kept, begun = self.local_optimizer.begin(down.params, state)
        u = kept if self.separate_states else Memory(down.inner, down.begun)
        start = (down.params, u, Memory(down.gradient, down.begun), begun)
        (x, u, m, ended), losses = jax.lax.scan(step, start, step_keys(key, self.local_steps))
        own, inner = (u, None) if self.separate_states else (kept, tree.sub(u.value, down.inner))
        up = ScgdmUp(tree.sub(x, down.params), inner, tree.sub(m.value, down.gradient))
        return ClientResult(self.local_optimizer.end(own, ended), up, {"loss": jnp.mean(losses)})

    def server_update(self, server: ScgdmServer, mean_up: ScgdmUp) -> ScgdmServer:
        moved = Server(server.params, server.round, server.optimizer).moved(
            self.server_optimizer, tree.scale(-1, mean_up.moved)
        )
        inner = tree.add(server.inner, mean_up.inner)
        gradient = tree.add(server.gradient, mean_up.gradient)
        return ScgdmServer(moved.params, moved.round, inner, gradient, moved.optimizer)  # lines 13-15

    def personalize(
        self,
        objective: Objective,
        down: ScgdmDown,
        state: Any,
        support: ClientSamples,
        key: Array,
        steps: int,
        size: Size,
    ) -> Params:
        if isinstance(objective, UserComposition):
            return objective.inner(down.params, support.sample(key, size)) if objective.personal else down.params
        return fine_tune(objective, down.params, support, key, steps, self.inner_lr, size)

    def cost(self) -> Cost:
        looks = self.local_steps * self.tasks_per_step
        return Cost(
            gradients=looks * (2 + self.curvature.gradients),
            products=looks * self.curvature.products,
            batches={size: looks * batches for size, batches in self.batches.count(1, "inner").items()},
        )

    def _memory(self, params: Params) -> Memory:
        return Memory.empty(params if self._inner_like is None else self._inner_like.zeros())

    def _batches(self, task: ClientSamples, key: Array) -> tuple[Batch, Batch]:
        """Xi and zeta; the curvature looks at xi too."""
        episode = self.batches.draw(task, key, 1, "inner")
        return jax.tree.map(lambda leaf: leaf[0], episode.inner), episode.outer

    def _gradient(
        self, composition: Composition, x: Params, u: Any, client: Any, key: Array
    ) -> tuple[Array, Params, Any]:
        """The loss at u, the gradient z and the moved u, of the client's only task or of some of its tasks."""
        if self.tasks_per_client == 1:
            return self._task_gradient(composition, x, u, *self._batches(client, key))
        draw_key, key = jax.random.split(key)
        tasks = draw_tasks(client, draw_key, self.tasks_per_client, self.tasks_per_step)
        keys = jax.random.split(key, self.tasks_per_step)
        xi, zeta = jax.vmap(lambda task, k: self._batches(client.task(task), k))(tasks, keys)
        if not self.separate_states:
            return self._task_gradient(MeanComposition(composition), x, u, xi, zeta)
        own = jax.tree.map(lambda rows: rows[tasks], u)
        losses, gradients, own = jax.vmap(partial(self._task_gradient, composition, x))(own, xi, zeta)
        u = jax.tree.map(lambda rows, new: rows.at[tasks].set(new), u, own)
        return *tree.mean((losses, gradients)), u

    def _task_gradient(
        self, composition: Composition, x: Params, u: Any, xi: Batch, zeta: Batch
    ) -> tuple[Array, Params, Any]:
        inner = composition.inner(x, xi)
        if self.averaging is not None:
            u = remember(u, inner, self.averaging * self.scale)  # lines 3 and 7
            inner = u.value
        loss, v = jax.value_and_grad(composition.outer)(inner, zeta)
        return loss, composition.pull(x, xi, v), u  # lines 4 and 8
