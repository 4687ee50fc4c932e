"""One communication round, and a chunk of rounds as one compiled program."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import AxisType, PartitionSpec

from headstart.core import Algorithm, Loss, Weighting, client_key, draw_cohort, round_key, tree, weighing
from headstart.data import Clients, IndexedClients
from headstart.problems import Problem

__all__ = ["Backend", "Keys", "RoundPlan", "RunState", "cohort_weights", "draw_cohorts", "run_chunk", "trace_count"]

Backend = Literal["loop", "vmap", "sharded"]
"""One client at a time in Python; all of a cohort in one program; that program on several devices."""

CLIENT_AXIS = "clients"


class RunState(NamedTuple):
    """All that changes during training: the server's state, and every training client's (leading axis)."""

    server: Any
    clients: Any


class Keys(NamedTuple):
    """The keys from which every round derives its own."""

    cohort: Array
    client: Array
    server: Array


@dataclass(frozen=True)
class RoundPlan:
    """What shapes a round's program; equal plans share one."""

    clients: int
    """Training clients in the federation."""
    cohort: int
    """Clients a round."""
    weighting: Weighting = "uniform"
    devices: int = 1
    at_once: int | None = None
    """Clients of a device that are computed together; ``None`` for all of them."""

    @property
    def group(self) -> int:
        """Clients that one device computes together."""
        share = -(-self.cohort // self.devices)
        return min(self.at_once or share, share)

    @property
    def width(self) -> int:
        """The cohort filled up with weight-zero clients to whole groups on every device."""
        whole = self.devices * self.group
        return -(-self.cohort // whole) * whole


_traces = 0


def trace_count() -> int:
    """How often a round has been traced in this process; a run traces one."""
    return _traces


@partial(jax.jit, static_argnames=("plan", "rounds"))
def draw_cohorts(plan: RoundPlan, keys: Keys, first: Array, rounds: int) -> Array:
    """The cohorts of ``rounds`` rounds, each filled up with the number of clients, which no client has."""

    def draw(k: Array) -> Array:
        cohort = draw_cohort(round_key(keys.cohort, k), plan.clients, plan.cohort)
        return jnp.pad(cohort, (0, plan.width - plan.cohort), constant_values=plan.clients)

    return jax.lax.map(draw, first + jnp.arange(rounds))


def cohort_weights(plan: RoundPlan, clients: Clients, cohort: Array) -> Array:
    """How much each member of a cohort counts; zero for those that fill it up."""
    real = (cohort < plan.clients).astype(jnp.result_type(float))
    if plan.weighting == "samples":
        assert isinstance(clients, IndexedClients)
        return real * clients.parts["train"].count(jnp.minimum(cohort, plan.clients - 1))
    return real


@partial(jax.jit, static_argnames=("problem", "plan"), donate_argnames=("state",))
def run_chunk(
    problem: Problem,
    plan: RoundPlan,
    algorithm: Algorithm,
    clients: Clients,
    state: RunState,
    keys: Keys,
    cohorts: Array,
    first: Array,
    rounds: Array,
) -> tuple[RunState, dict[str, Array]]:
    """Run ``rounds`` rounds, at most as many as ``cohorts`` has rows, and return each one's metrics.

    The number of rounds is traced, so a short chunk runs the same program as a long one.
    """
    loss = weighing(problem.loss)

    @jax.jit
    def one_round(state: RunState, cohort: Array, k: Array) -> tuple[RunState, dict[str, Array]]:
        return _round(loss, plan, algorithm, clients, state, keys, cohort, k)

    # The jitted round is traced by eval_shape and found in its cache by the loop: one trace in all.
    _, shapes = jax.eval_shape(one_round, state, cohorts[0], first)
    history = jax.tree.map(lambda s: jnp.zeros((cohorts.shape[0], *s.shape), s.dtype), shapes)

    def body(i: Array, carry: tuple[RunState, Any]) -> tuple[RunState, Any]:
        state, history = carry
        state, metrics = one_round(state, cohorts[i], first + i)
        return state, jax.tree.map(lambda h, m: h.at[i].set(m), history, metrics)

    return jax.lax.fori_loop(0, rounds, body, (state, history))


def _round(
    loss: Loss,
    plan: RoundPlan,
    algorithm: Algorithm,
    clients: Clients,
    state: RunState,
    keys: Keys,
    cohort: Array,
    k: Array,
) -> tuple[RunState, dict[str, Array]]:
    """Broadcast, let the cohort work, average, move the server."""
    global _traces
    _traces += 1
    down = algorithm.broadcast(state.server, round_key(keys.server, k))
    key = round_key(keys.client, k)

    def work(down: Any, clients: Clients, key: Array, member: tuple[Array, Any]) -> Any:
        client, client_state = member
        view = clients.view("train", jnp.minimum(client, plan.clients - 1))
        return algorithm.client_update(loss, down, client_state, view, client_key(key, client))

    weights = cohort_weights(plan, clients, cohort)
    present = jax.tree.map(lambda s: s[jnp.minimum(cohort, plan.clients - 1)], state.clients)
    share = weights / jnp.sum(weights)

    def aggregate(share: Array, members: Any, down: Any, clients: Clients, key: Array) -> Any:
        return _grouped(partial(work, down, clients, key), plan.group, share, members)

    if plan.devices > 1:
        aggregate = _sharded(aggregate, plan.devices)
    (mean_up, metrics), new_states = aggregate(share, (cohort, present), down, clients, key)

    # Rows that fill the cohort up carry a number no client has: their scatter is dropped.
    everyone = jax.tree.map(lambda all_, new: all_.at[cohort].set(new, mode="drop"), state.clients, new_states)
    server = algorithm.server_update(state.server, mean_up)
    wire = {"bytes_down": tree.nbytes(down), "bytes_up": tree.nbytes(mean_up)}
    return RunState(server, everyone), metrics | {name: jnp.asarray(n, jnp.int32) for name, n in wire.items()}


def _grouped(work: Callable[[Any], Any], group: int, share: Array, members: Any) -> Any:
    """Weighted sums of what the members send and report, and their states, ``group`` members at a time."""

    @jax.jit
    def together(share: Array, members: Any) -> tuple[Any, Any]:
        results = jax.vmap(work)(members)
        return tree.weighted_sum(share, (results.up, results.metrics)), results.state

    width = share.shape[0]
    if group == width:
        return together(share, members)
    folded = jax.tree.map(lambda a: a.reshape(width // group, group, *a.shape[1:]), (share, members))
    sums, _ = jax.eval_shape(together, *jax.tree.map(lambda a: a[0], folded))

    def step(total: Any, part: Any) -> tuple[Any, Any]:
        sums, states = together(*part)
        return tree.add(total, sums), states

    total, states = jax.lax.scan(step, jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), sums), folded)
    return total, jax.tree.map(lambda a: a.reshape(width, *a.shape[2:]), states)


def _sharded(aggregate: Callable[..., Any], devices: int) -> Callable[..., Any]:
    """The same over several devices: members split among them, sums summed across them."""
    mesh = jax.make_mesh((devices,), (CLIENT_AXIS,), axis_types=(AxisType.Auto,), devices=jax.devices()[:devices])
    split, same = PartitionSpec(CLIENT_AXIS), PartitionSpec()

    def on_device(*args: Any) -> Any:
        sums, states = aggregate(*args)
        return jax.lax.psum(sums, CLIENT_AXIS), states

    return jax.shard_map(
        on_device, mesh=mesh, in_specs=(split, split, same, same, same), out_specs=(same, split), check_vma=False
    )
