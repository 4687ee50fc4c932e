"""Local-SCGDM: compositional gradient descent with a memory of the inner value and momentum, both averaged too."""

import dataclasses
from typing import Any, ClassVar, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from headstart.core import (
    Algorithm,
    BatchSizes,
    ClientSamples,
    Curvature,
    Exact,
    Objective,
    Params,
    Size,
    StepSize,
    UserComposition,
    as_curvature,
    check_step_size,
    checks,
    step_size_at,
    tree,
)

__all__ = ["LocalSCGDM", "ScgdmDown", "ScgdmServer", "ScgdmUp", "TaskMemories"]


class ScgdmServer(NamedTuple):
    """The shared model x, the round, and the averages of u and m; ``None`` for what the server does not keep."""

    params: Params
    round: Array
    inner: Any
    gradient: Params | None


class ScgdmDown(NamedTuple):
    """What the server keeps, the step size ``beta eta``, and whether this is the first round of the run."""

    params: Params
    lr: Array | float
    first: Array
    inner: Any
    gradient: Params | None


class ScgdmUp(NamedTuple):
    """The client's x, u and m after its local steps."""

    params: Params
    inner: Any
    gradient: Params | None


class TaskMemories(NamedTuple):
    """A client's own u for each of its tasks (leading axis), and which of them have been started."""

    inner: Any
    started: Array


class LocalSCGDM(Algorithm):
    r"""Descend a function of an expectation with a running average of its inner value, and with momentum.

    .. math::
        u_{t+1} = (1 - \gamma\eta) u_t + \gamma\eta\, g(x_t; \xi_t), \qquad
        z_t = \nabla g(x_t; \xi_t)^\top \nabla f(u_{t+1}; \zeta_t), \qquad
        m_{t+1} = (1 - \alpha\eta) m_t + \alpha\eta\, z_t, \qquad
        x_{t+1} = x_t - \beta\eta\, m_{t+1}

    on every client, from :math:`u_1 = g(x_0; \xi_0)` and :math:`m_1 = z_0`; every p iterations x, u and m are averaged.
    g and its pullback see one batch :math:`\xi`, f an independent one :math:`\zeta`. On a plain loss L it is meta-learning:
    :math:`g(x; \xi) = x - \lambda \nabla L(x; \xi)` and :math:`f = L`.

    Symbols: ``outer_lr`` beta, ``scale`` eta, ``averaging`` gamma, ``momentum`` alpha, ``local_steps`` p, ``inner_lr``
    lambda, ``inner_batch_size`` xi, ``batch_size`` zeta. ``averaging = None`` keeps no u (gamma eta = 1), ``momentum =
    None`` no m (alpha eta = 1), and neither is sent.

    A client may have up to ``tasks_per_client`` tasks, of which a step draws ``tasks_per_step``: its g and f are then the
    means over those. One u for all is right where their g agree in expectation. With ``separate_states`` every task has a
    u of its own, which its client keeps; x and m are averaged, and a task's u starts when the task is first drawn.

    Gao, Li and Huang 2022, Algorithm 1 and (8); section 5.1 for ``separate_states``.

    >>> LocalSCGDM(local_steps=5, batch_size=10).cost()
    Cost(gradients=10, products=5, batches={10: 10})

    On a given composition these count evaluations of g and gradients of f, and products with the Jacobian of g.

    Deviations: ``gamma eta`` and ``alpha eta`` may be 1, where the method becomes a simpler one. A cohort may be a part of
    the clients. Any curvature may stand for the exact one.
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
    inner_zero: Any = None
    """A zero with the structure of g's values, where that is not the model's; ``prepare`` finds it."""

    objectives: ClassVar[tuple[type, ...]] = (UserComposition,)

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
        checks.at_most("tasks_per_step", self.tasks_per_step, "tasks_per_client", self.tasks_per_client)
        _ = self.batches

    @property
    def batches(self) -> BatchSizes:
        """The batches of a local step and task."""
        return BatchSizes(self.batch_size, self.inner_batch_size)

    def prepare(self, objective: Objective, params: Params, client: ClientSamples) -> Self:
        if not isinstance(objective, UserComposition):
            return self

        def look(x: Params) -> Any:
            xi, zeta = self._draw(client, jax.random.key(0))[1]
            u = composition.inner(x, xi)
            return u, composition.outer(u, zeta)

        composition = self._composition(objective)
        inner, _ = jax.eval_shape(look, params)
        return dataclasses.replace(self, inner_zero=jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), inner))

    def init_server(self, params: Params) -> ScgdmServer:
        u = self._zero(params) if self.averaging is not None and not self.separate_states else None
        m = tree.zeros_like(params) if self.momentum is not None else None
        return ScgdmServer(params, jnp.zeros((), jnp.int32), u, m)

    def init_client(self, params: Params) -> TaskMemories | tuple[()]:
        if self.averaging is None or not self.separate_states:
            return ()
        slots = self.tasks_per_client
        zeros = jax.tree.map(lambda leaf: jnp.zeros((slots, *leaf.shape), leaf.dtype), self._zero(params))
        return TaskMemories(zeros, jnp.zeros(slots, bool))

    def broadcast(self, server: ScgdmServer, key: Array) -> ScgdmDown:
        lr = step_size_at(self.outer_lr, server.round) * self.scale
        return ScgdmDown(server.params, lr, server.round == 0, server.inner, server.gradient)
