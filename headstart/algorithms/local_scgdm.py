"""Local-SCGDM: compositional gradient descent with a memory of the inner value and momentum, both averaged too."""

from functools import partial
from typing import Any, ClassVar, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from headstart.algorithms._personal import fine_tune
from headstart.core import (
    Adaptation,
    Algorithm,
    Batch,
    BatchSizes,
    ClientResult,
    ClientSamples,
    Composition,
    Cost,
    Curvature,
    Exact,
    MeanComposition,
    Memory,
    Objective,
    Params,
    Size,
    StepSize,
    UserComposition,
    as_composition,
    as_curvature,
    check_step_size,
    checks,
    draw_tasks,
    remember,
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


class ScgdmDown(NamedTuple):
    """What the server keeps, the step size ``beta eta``, and whether u and m have begun: not in the first round."""

    params: Params
    lr: Array | float
    begun: Array
    inner: Any
    gradient: Params | None


class ScgdmUp(NamedTuple):
    """The client's x, u and m after its local steps."""

    params: Params
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
    of the clients. Any curvature may stand for the exact one.
    """

    outer_lr: StepSize = 0.01
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
    inner_zero: Any = eqx.field(init=False)
    """A zero with the structure of g's values, where that is not the model's; ``prepare`` finds it."""

    objectives: ClassVar[tuple[type, ...]] = (UserComposition,)

    def __post_init__(self) -> None:
        self.inner_zero = None

    def __check_init__(self) -> None:
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

    def prepare(self, objective: Objective, params: Params, client: Any) -> Self:
        if not isinstance(objective, UserComposition):
            return self

        def look(x: Params) -> tuple[Any, Array]:
            xi, zeta = self._batches(client if self.tasks_per_client == 1 else client.task(0), jax.random.key(0))
            u = objective.inner(x, xi)
            return u, objective.outer(u, zeta)

        # f is looked at too, so that one that does not fit g is refused here and not in the midst of a round.
        inner, _ = jax.eval_shape(look, params)
        zero = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), inner)
        return eqx.tree_at(lambda method: method.inner_zero, self, zero, is_leaf=lambda leaf: leaf is None)

    def init_server(self, params: Params) -> ScgdmServer:
        u = None if self.averaging is None or self.separate_states else self._memory(params).value
        m = None if self.momentum is None else tree.zeros_like(params)
        return ScgdmServer(params, jnp.zeros((), jnp.int32), u, m)

    def init_client(self, params: Params) -> Memory | tuple[()]:
        if self.averaging is None or not self.separate_states:
            return ()
        if self.tasks_per_client == 1:
            return self._memory(params)
        return jax.tree.map(
            lambda leaf: jnp.broadcast_to(leaf, (self.tasks_per_client, *leaf.shape)), self._memory(params)
        )

    def broadcast(self, server: ScgdmServer, key: Array) -> ScgdmDown:
        lr = step_size_at(self.outer_lr, server.round) * self.scale
        return ScgdmDown(server.params, lr, server.round > 0, server.inner, server.gradient)

    def client_update(
        self, objective: Objective, down: ScgdmDown, state: Any, client: ClientSamples, key: Array
    ) -> ClientResult:
        composition = as_composition(objective, self.inner_lr, self.curvature)

        def step(carry: tuple[Params, Any, Any], key: Array) -> tuple[tuple[Params, Any, Any], Array]:
            x, u, m = carry
            loss, z, u = self._gradient(composition, x, u, client, key)
            if self.momentum is not None:
                m = remember(m, z, self.momentum * self.scale)  # lines 5 and 9
                z = m.value
            return (tree.add_scaled(x, -down.lr, z), u, m), loss  # line 11

        u = state if self.separate_states else Memory(down.inner, down.begun)
        start = (down.params, u, Memory(down.gradient, down.begun))
        keys = jax.vmap(lambda t: jax.random.fold_in(key, t))(jnp.arange(self.local_steps))
        (x, u, m), losses = jax.lax.scan(step, start, keys)
        own, sent = (u, None) if self.separate_states else (state, u.value)
        return ClientResult(own, ScgdmUp(x, sent, m.value), {"loss": jnp.mean(losses)})

    def server_update(self, server: ScgdmServer, mean_up: ScgdmUp) -> ScgdmServer:
        return ScgdmServer(mean_up.params, server.round + 1, mean_up.inner, mean_up.gradient)  # lines 13-15

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
        return fine_tune(objective, down.params, support, key, Adaptation(steps, self.inner_lr), size)

    def cost(self) -> Cost:
        looks = self.local_steps * self.tasks_per_step
        return Cost(
            gradients=looks * (2 + self.curvature.gradients),
            products=looks * self.curvature.products,
            batches={size: looks * batches for size, batches in self.batches.count(1, False).items()},
        )

    def _memory(self, params: Params) -> Memory:
        return Memory.empty(params if self.inner_zero is None else self.inner_zero)

    def _batches(self, task: ClientSamples, key: Array) -> tuple[Batch, Batch]:
        """Xi and zeta; the curvature looks at xi too."""
        episode = self.batches.draw(task, key, 1, False)
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
