"""One communication round, and a chunk of rounds as one compiled program."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import AxisType, PartitionSpec

from headstart.core import (
    Algorithm,
    ClientResult,
    Objective,
    Params,
    Purpose,
    RefreshingAlgorithm,
    Weighting,
    client_key,
    draw_cohort,
    round_key,
    run_key,
    tree,
)
from headstart.data import Clients
from headstart.problems import Problem

__all__ = [
    "Backend",
    "Cohorts",
    "Keys",
    "RoundPlan",
    "RunState",
    "clients_at_once",
    "cohort_weights",
    "draw_cohorts",
    "run_chunk",
    "trace_count",
    "wire_bytes",
]

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
    refresh_cohort: Array
    refresh: Array

    @classmethod
    def of(cls, seed: int) -> "Keys":
        """The keys of the run with this seed."""
        return cls(
            cohort=run_key(seed, Purpose.COHORT),
            client=run_key(seed, Purpose.CLIENT),
            server=run_key(seed, Purpose.SERVER),
            refresh_cohort=run_key(seed, Purpose.REFRESH_COHORT),
            refresh=run_key(seed, Purpose.REFRESH),
        )


class Cohorts(NamedTuple):
    """Who takes part in each round of a chunk (leading axis), and where what is theirs lies."""

    clients: Array
    slots: Array
    """The rows of their states."""
    places: Array
    """Where their data lie among those that the chunk is given."""
    refresh: "Cohorts | None" = None
    """The second cohort of an algorithm that refreshes other clients' memories."""


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
    """The most clients of a device that are computed together; ``None`` for all of them."""
    refreshes: bool = False
    """Whether a second, independent cohort refreshes its memories in every round."""

    @property
    def group(self) -> int:
        """Clients that one device computes together: at most ``at_once``, in groups as equal as they can be."""
        share = -(-self.cohort // self.devices)
        groups = -(-share // (self.at_once or share))
        return -(-share // groups)

    @property
    def width(self) -> int:
        """The cohort filled up with weight-zero clients to whole groups on every device."""
        whole = self.devices * self.group
        return -(-self.cohort // whole) * whole

    @property
    def members(self) -> int:
        """The most clients that take part in a round."""
        return self.width * (2 if self.refreshes else 1)


SMALL_BYTES = 2**15
"""Parameters up to which a CPU had better compute many clients together."""
MOST_AT_ONCE = 32
"""Bounds the memory that the batches of a cohort take, whatever its size."""


def clients_at_once(params: Params) -> int | None:
    """How many clients a device had best compute together; ``None`` for all of them.

    A small model's round costs what starting its operations costs, so a CPU computes many clients in each.
    A large one's costs arithmetic and memory traffic: one client at a time stays in cache, and two or more fall
    out of it. ``benchmarks/README.md`` has the measurements.
    """
    if jax.default_backend() != "cpu":
        return None
    return MOST_AT_ONCE if tree.nbytes(params) < SMALL_BYTES else 1


_traces = 0


def trace_count() -> int:
    """How often a round has been traced in this process; a run traces one."""
    return _traces


@partial(jax.jit, static_argnames=("plan", "rounds"))
def draw_cohorts(plan: RoundPlan, keys: Keys, first: Array, rounds: int) -> Cohorts:
    """The cohorts of ``rounds`` rounds, each filled up with the number of clients, which no client has."""

    def draw(key: Array, k: Array) -> Array:
        cohort = draw_cohort(round_key(key, k), plan.clients, plan.cohort)
        return jnp.pad(cohort, (0, plan.width - plan.cohort), constant_values=plan.clients)

    numbers = first + jnp.arange(rounds)
    # Many at once, for each is a few small operations; fewer where shuffling all clients takes room.
    at_once = max(1, min(64, 2**22 // plan.clients))

    def cohorts(key: Array, refresh: Cohorts | None = None) -> Cohorts:
        clients = jax.lax.map(partial(draw, key), numbers, batch_size=at_once)
        return Cohorts(clients, clients, jnp.minimum(clients, plan.clients - 1), refresh)

    return cohorts(keys.cohort, cohorts(keys.refresh_cohort) if plan.refreshes else None)


def cohort_weights(plan: RoundPlan, clients: Clients, cohort: Cohorts) -> Array:
    """How much each member of a cohort counts; zero for those that fill it up."""
    real = (cohort.clients < plan.clients).astype(jnp.result_type(float))
    if plan.weighting == "samples":
        return real * jax.vmap(clients.train_count)(cohort.places)
    return real


@partial(jax.jit, static_argnames=("problem", "plan"), donate_argnames=("state",))
def run_chunk(
    problem: Problem,
    plan: RoundPlan,
    algorithm: Algorithm,
    clients: Clients,
    state: RunState,
    keys: Keys,
    cohorts: Cohorts,
    first: Array,
    rounds: Array,
) -> tuple[RunState, dict[str, Array]]:
    """Run ``rounds`` rounds, at most as many as ``cohorts`` has rows, and return each one's metrics.

    The number of rounds is traced, so a short chunk runs the same program as a long one.
    """
    objective = problem.objective()

    def in_round(i: Array | int) -> Cohorts:
        return jax.tree.map(lambda rows: rows[i], cohorts)

    @jax.jit
    def one_round(state: RunState, cohort: Cohorts, k: Array) -> tuple[RunState, dict[str, Array]]:
        return _round(objective, plan, algorithm, clients, state, keys, cohort, k)

    # The jitted round is traced by eval_shape and found in its cache by the loop: one trace in all.
    _, shapes = jax.eval_shape(one_round, state, in_round(0), first)
    history = jax.tree.map(lambda s: jnp.zeros((cohorts.clients.shape[0], *s.shape), s.dtype), shapes)

    def body(i: Array, carry: tuple[RunState, Any]) -> tuple[RunState, Any]:
        state, history = carry
        state, metrics = one_round(state, in_round(i), first + i)
        return state, jax.tree.map(lambda h, m: h.at[i].set(m), history, metrics)

    return jax.lax.fori_loop(0, rounds, body, (state, history))


def _round(
    objective: Objective,
    plan: RoundPlan,
    algorithm: Algorithm,
    clients: Clients,
    state: RunState,
    keys: Keys,
    cohort: Cohorts,
    k: Array,
) -> tuple[RunState, dict[str, Array]]:
    """Broadcast, let the cohort work, average, move the server."""
    global _traces
    _traces += 1
    down = algorithm.broadcast(state.server, round_key(keys.server, k))
    everyone = state.clients
    refreshed: Any = None
    if isinstance(algorithm, RefreshingAlgorithm):
        assert cohort.refresh is not None
        key = round_key(keys.refresh, k)
        update = partial(algorithm.refresh, participation=plan.cohort / plan.clients)
        (refreshed, _), everyone = _work(objective, plan, update, clients, down, everyone, cohort.refresh, key)
    key = round_key(keys.client, k)
    (mean_up, metrics), everyone = _work(objective, plan, algorithm.client_update, clients, down, everyone, cohort, key)
    if isinstance(algorithm, RefreshingAlgorithm):
        mean_up = (refreshed, mean_up)
    server = algorithm.server_update(state.server, mean_up)
    return RunState(server, everyone), metrics | wire_bytes(down, mean_up)


def wire_bytes(down: Any, up: Any) -> dict[str, Array]:
    """What crosses the wire for one client, from shapes alone."""
    return {
        "bytes_down": jnp.asarray(tree.nbytes(down), jnp.int32),
        "bytes_up": jnp.asarray(tree.nbytes(up), jnp.int32),
    }


def _work(
    objective: Objective,
    plan: RoundPlan,
    update: Callable[..., ClientResult],
    clients: Clients,
    down: Any,
    everyone: Any,
    cohort: Cohorts,
    key: Array,
) -> tuple[tuple[Any, Any], Any]:
    """Let a cohort work: the weighted means of what it sends and reports, and everyone's states after it."""

    def work(down: Any, clients: Clients, key: Array, member: tuple[Array, Array, Any]) -> Any:
        client, place, state = member
        return update(objective, down, state, clients.view("train", place), client_key(key, client))

    def aggregate(share: Array, members: Any, down: Any, clients: Clients, key: Array) -> Any:
        return _grouped(partial(work, down, clients, key), plan.group, share, members)

    if plan.devices > 1:
        aggregate = _sharded(aggregate, plan.devices)
    weights = cohort_weights(plan, clients, cohort)
    present = jax.tree.map(lambda all_: all_[jnp.minimum(cohort.slots, all_.shape[0] - 1)], everyone)
    means, states = aggregate(weights / jnp.sum(weights), (cohort.clients, cohort.places, present), down, clients, key)
    if states is None:
        return means, everyone
    # Rows that fill the cohort up carry a slot that no client has: their scatter is dropped.
    return means, jax.tree.map(lambda all_, new: all_.at[cohort.slots].set(new, mode="drop"), everyone, states)


def _grouped(work: Callable[[Any], Any], group: int, share: Array, members: Any) -> Any:
    """Weighted sums of what the members send and report, and their states, ``group`` members at a time."""

    @jax.jit
    def together(share: Array, members: Any) -> tuple[Any, Any]:
        if group == 1:
            # Not a batch of one: XLA fuses and vectorises the plain program better, a seventh of a round's time.
            results = jax.tree.map(lambda a: a[None], work(jax.tree.map(lambda a: a[0], members)))
        else:
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
