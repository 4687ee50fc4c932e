"""LocalMOML: MOML with local steps between two communications."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from headstart.algorithms._remembering import RememberingAlgorithm
from headstart.core import (
    Batch,
    ClientOptimizer,
    ClientResult,
    ClientSamples,
    ClientTasks,
    Cost,
    Down,
    Loss,
    Memory,
    Optimizer,
    Params,
    Server,
    Size,
    TaskSlots,
    as_optimizer,
    check_size,
    checks,
    draw_tasks,
    remember,
    step_keys,
    step_size_at,
    tree,
)
from headstart.errors import UsageError

__all__ = ["LocalMOML"]


class Step(NamedTuple):
    """One local step: the memories after it, the loss, and the direction."""

    memory: Memory
    loss: Array
    gradient: Params


class LocalMOML(RememberingAlgorithm):
    r"""Per-FedAvg that takes its meta-gradients at a running average of the client's adapted models.

    .. math::
        u^i_{r,h} = (1 - \beta) u^i_{r,h-1} + \beta \bigl(w^i_{r,h} - \alpha \nabla \mathcal L_i(w^i_{r,h}, S_1)\bigr),
        \qquad
        w^i_{r,h+1} = w^i_{r,h} - \eta_r \bigl(I - \alpha \nabla^2 \mathcal L_i(w^i_{r,h}, S_2)\bigr)
        \nabla \mathcal L_i(u^i_{r,h}, S_3)

    for :math:`h = 1 .. H` from :math:`w^i_{r,1} = w_r`; then :math:`w_{r+1} = \text{mean}_i\, w^i_{r,H+1}`.
    Across devices, every round restarts :math:`u^i_{r,0} = w_r - \alpha \nabla \mathcal L_i(w_r, S_0)` and clients
    keep nothing. Across silos (``keep_memory``), :math:`u^i_{r,0} = u^i_{r-1,H}`. ``averaging = 1`` is Per-FedAvg,
    with ``local_steps = 1`` MAML.

    A client may have several tasks, up to ``tasks_per_client``, with a memory each: every step then draws
    ``tasks_per_step`` of them and averages their directions.

    Symbols: ``inner_lr`` alpha, ``outer_lr`` eta, ``averaging`` beta, ``local_steps`` H, ``memory_batch_size`` K_0 =
    \|S_0\|, ``inner_batch_size`` S_1, ``curvature_batch_size`` S_2, ``batch_size`` S_3 (each of K samples).

    Wang, Yuan, Ying and Yang 2023, Algorithm 3, (6), (7); several tasks a client as section 5 allows and gao's
    experiments have.

    >>> LocalMOML(local_steps=5, batch_size=1, memory_batch_size=2).cost()
    Cost(gradients=11, products=5, batches={1: 15, 2: 1})
    >>> LocalMOML(local_steps=5, batch_size=1, keep_memory=True).cost()
    Cost(gradients=10, products=5, batches={1: 15})

    Deviations: the paper writes the restarted memory as u_(r,1) and lets (6) move it at h = 1; it is u_(r,0) here.
    It leaves open how a kept memory begins (Corollary 2 has no S_0): with the adapted model of the first visit, as
    in MOML. It keeps memories only where all clients take part; here any cohort may. ``shared_batch`` (one batch
    for S_1, S_2 and S_3) is not the paper's, nor is ``reuse_batch`` (every local step of a round looks at the same
    tasks and samples, as in the paper's released code; S_0 stays another draw) and ``restart_view`` (a function through
    which S_0 is looked at). Optimisers are as in `MetaFL`.
    """

    local_steps: int = eqx.field(static=True, default=4)
    keep_memory: bool = eqx.field(static=True, default=False)
    memory_batch_size: Size | None = eqx.field(static=True, default=None)
    tasks_per_client: int = eqx.field(static=True, default=1)
    tasks_per_step: int = eqx.field(static=True, default=1)
    reuse_batch: bool = eqx.field(static=True, default=False)
    restart_view: Callable[[Batch], Batch] | None = eqx.field(static=True, default=None)
    client_optimizer: Optimizer | None = eqx.field(converter=as_optimizer, default=None)
    keep_client_optimizer: bool = eqx.field(static=True, default=False)

    def __check_init__(self) -> None:
        self.local_optimizer.check()
        checks.whole("local_steps", self.local_steps, 1)
        checks.whole("tasks_per_client", self.tasks_per_client, 1)
        checks.whole("tasks_per_step", self.tasks_per_step, 1)
        check_size("memory_batch_size", self.restart_size)
        if self.keep_memory and self.memory_batch_size is not None:
            raise UsageError(
                "memory_batch_size is set, but keep_memory carries memories over and never restarts them.",
                "Leave one of the two out.",
            )
        if self.tasks_per_step > self.tasks_per_client:
            raise UsageError(
                f"tasks_per_step = {self.tasks_per_step} of tasks_per_client = {self.tasks_per_client}.",
                "Draw at most as many tasks a step as a client has.",
            )

    @property
    def restart_size(self) -> Size:
        """The samples K_0 that restart a memory."""
        return self.batch_size if self.memory_batch_size is None else self.memory_batch_size

    @property
    def local_optimizer(self) -> ClientOptimizer:
        """How a client takes its local steps."""
        return ClientOptimizer(self.client_optimizer, self.keep_client_optimizer)

    def task_slots(self) -> TaskSlots:
        return TaskSlots(self.tasks_per_client, self.tasks_per_step)

    def init_server(self, params: Params) -> Server:
        return Server.start(params, self.server_optimizer)

    def init_client(self, params: Params) -> Any:
        memory: Any = Memory.empty(params) if self.keep_memory else ()
        if self.tasks_per_client > 1:
            memory = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (self.tasks_per_client, *leaf.shape)), memory)
        return self.local_optimizer.init_client(params, memory)

    def broadcast(self, server: Server, key: Array) -> Down:
        return Down(server.params, step_size_at(self.outer_lr, server.round))

    def client_update(self, loss: Loss, down: Down, state: Any, client: Any, key: Array) -> ClientResult:
        def local_step(carry: tuple[Params, Memory, Any], key: Array) -> tuple[tuple[Params, Memory, Any], Array]:
            w, memory, optimizer = carry
            step = self._step(loss, w, memory, client, key)
            w, optimizer = self.local_optimizer.step(w, step.gradient, down.lr, optimizer)  # line 12
            return (w, step.memory, optimizer), step.loss

        kept, begun = self.local_optimizer.begin(down.params, state)
        memory = kept if self.keep_memory else self._restarted(loss, down.params, client, key)
        keys = step_keys(key, self.local_steps, self.reuse_batch)
        (w, memory, ended), values = jax.lax.scan(local_step, (down.params, memory, begun), keys)
        own = self.local_optimizer.end(memory if self.keep_memory else (), ended)
        return ClientResult(own, tree.sub(w, down.params), {"loss": jnp.mean(values)})

    def server_update(self, server: Server, mean_up: Params) -> Server:
        return server.moved(self.server_optimizer, tree.scale(-1, mean_up))

    def cost(self) -> Cost:
        step, steps = self.step_cost, self.local_steps * self.tasks_per_step
        draws = self.tasks_per_step if self.reuse_batch else steps
        batches = {size: draws * count for size, count in step.batches.items()}
        restarts = 0 if self.keep_memory else self.tasks_per_client
        if restarts:
            batches[self.restart_size] = batches.get(self.restart_size, 0) + restarts
        return Cost(steps * step.gradients + restarts, steps * step.products, batches)

    def _step(self, loss: Loss, w: Params, memory: Memory, client: ClientTasks, key: Array) -> Step:
        """One local step, on the client's only task or on some of its tasks."""
        if self.tasks_per_client == 1:
            return self._task_step(loss, w, memory, client, key)
        draw_key, key = jax.random.split(key)
        tasks = draw_tasks(client, draw_key, self.tasks_per_client, self.tasks_per_step)

        def task_step(task: Array, own: Memory) -> Step:
            return self._task_step(loss, w, own, client.task(task), jax.random.fold_in(key, task))

        steps = jax.vmap(task_step)(tasks, jax.tree.map(lambda leaf: leaf[tasks], memory))
        return Step(
            jax.tree.map(lambda leaf, new: leaf.at[tasks].set(new), memory, steps.memory),
            jnp.mean(steps.loss),
            jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), steps.gradient),
        )

    def _task_step(self, loss: Loss, w: Params, memory: Memory, task: ClientSamples, key: Array) -> Step:
        episode = self.draw(task, key)
        adapted = self.adaptation.run(loss, w, episode.inner)
        memory = remember(memory, adapted.params, self.averaging)  # line 11, (6)
        return Step(memory, *self.meta_gradient(loss, adapted, memory.value, episode))  # line 12, (7)

    def _restarted(self, loss: Loss, w: Params, client: ClientTasks, key: Array) -> Memory:
        """Line 6: memories from K_0 samples, with a key that no local step has."""
        key = jax.random.fold_in(key, self.local_steps)

        def restart(task: ClientSamples, key: Array) -> Memory:
            batch = task.sample(key, self.restart_size)
            gradient = jax.grad(loss)(w, batch if self.restart_view is None else self.restart_view(batch))
            return Memory(tree.add_scaled(w, -self.inner_lr, gradient), jnp.ones((), bool))

        if self.tasks_per_client == 1:
            return restart(client, key)
        tasks = jnp.arange(self.tasks_per_client)
        return jax.vmap(lambda task: restart(client.task(task), jax.random.fold_in(key, task)))(tasks)
