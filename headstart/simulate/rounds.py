"""The compiled driver: a chunk of rounds as one program, on one device or on several."""

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
    Channel,
    ClientResult,
    Keys,
    Params,
    Phase,
    Round,
    RoundAt,
    Weighting,
    Wired,
    draw_cohort,
    round_key,
    tree,
)
from headstart.core.round import weighted
from headstart.core.threefry import without_loops
from headstart.data import Clients
from headstart.problems import Problem

__all__ = [
    "CLIENT_AXIS",
    "Backend",
    "Cohorts",
    "RoundPlan",
    "RunState",
    "clients_at_once",
    "cohort_weights",
    "draw_cohorts",
    "in_turn",
    "run_chunk",
    "trace_count",
]

Backend = Literal["auto", "loop", "vmap", "sharded"]
"""One client at a time in Python; all of a cohort in one program; that program on several devices. ``auto`` takes
several devices where there are some and a round is work enough for them."""

CLIENT_AXIS = "clients"


class RunState(NamedTuple):
    """All that changes during training: the server's state, and every training client's (leading axis)."""

    server: Any
    clients: Any


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
    """Clients per round."""
    weighting: Weighting = "uniform"
    devices: int = 1
    at_once: int | None = None
    """The most clients of a device that are computed together; ``None`` for all of them."""
    refreshes: bool = False
    """Whether a second, independent cohort refreshes its memories in every round."""
    hosts: int = 1
    """Machines, each with a share of the clients and with ``devices`` devices."""

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
    def fills(self) -> bool:
        """Whether a cohort has to be filled up."""
        return self.width > self.cohort

    @property
    def participation(self) -> float:
        """The share of clients in a cohort."""
        return self.cohort / self.clients

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
    out of it. ``docs/speed.md`` has the measurements.
    """
    if jax.default_backend() != "cpu":
        return None
    return MOST_AT_ONCE if tree.nbytes(params) < SMALL_BYTES else 1


Work = Callable[[RoundAt, Phase, Any, Any, Cohorts], tuple[tuple[Any, Any], Any]]
"""Lets a cohort work in a phase of a round, from what was sent down and everyone's states: what is made of all that it
sends and reports, and everyone's states after it."""

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

    # Straight-line code: the same clients, compiled in less than half of the time.
    keys = jax.tree.map(without_loops, keys)
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
    wire: Channel | None,
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
    keys = jax.tree.map(without_loops, keys)
    round_ = Round(algorithm, problem.objective(), keys, wire, plan.participation)
    work = partial(_work, plan, problem, clients)
    return in_turn(round_, plan.cohort, work, state, cohorts, first, rounds)


def in_turn(
    round_: Round, size: int, work: Work, state: RunState, cohorts: Cohorts, first: Array, rounds: Array
) -> tuple[RunState, dict[str, Array]]:
    """Rounds one after the other, of ``size`` clients each, whose cohorts are let ``work``."""

    def in_round(i: Array | int) -> Cohorts:
        return jax.tree.map(lambda rows: rows[i], cohorts)

    @jax.jit
    def one_round(state: RunState, cohort: Cohorts, k: Array) -> tuple[RunState, dict[str, Array]]:
        return _drive(round_.at(k), size, work, state, cohort)

    # The jitted round is traced by eval_shape and found in its cache by the loop: one trace in all.
    _, shapes = jax.eval_shape(one_round, state, in_round(0), first)
    history = jax.tree.map(lambda s: jnp.zeros((cohorts.clients.shape[0], *s.shape), s.dtype), shapes)

    def body(i: Array, carry: tuple[RunState, Any]) -> tuple[RunState, Any]:
        state, history = carry
        state, metrics = one_round(state, in_round(i), first + i)
        return state, jax.tree.map(lambda h, m: h.at[i].set(m), history, metrics)

    return jax.lax.fori_loop(0, rounds, body, (state, history))


def _drive(now: RoundAt, size: int, work: Work, state: RunState, cohort: Cohorts) -> tuple[RunState, dict[str, Array]]:
    """One round: open it, let each phase's cohort work, close it."""
    global _traces
    _traces += 1
    down, everyone = now.open(state.server), state.clients
    means: list[Any] = []
    metrics: dict[str, Array] = {}
    for phase in now.round.phases:
        members = cohort if phase is Phase.WORK else cohort.refresh
        assert members is not None
        (mean, metrics), everyone = work(now, phase, down, everyone, members)
        means.append(mean)
    return RunState(now.close(state.server, tuple(means), size), everyone), metrics


def _work(
    plan: RoundPlan,
    problem: Problem,
    clients: Clients,
    now: RoundAt,
    phase: Phase,
    down: Any,
    everyone: Any,
    cohort: Cohorts,
) -> tuple[tuple[Any, Any], Any]:
    """Let a cohort work: what is made of all that it sends and reports, and everyone's states after it."""
    gathers = now.round.wire is not None and now.round.wire.aggregator is not None and phase is Phase.WORK

    def work(now: RoundAt, down: Any, clients: Clients, member: tuple[Array, Array, Any]) -> ClientResult:
        client, place, state = member
        return now.work(phase, down, state, problem.view(clients.view("train", place)), client)

    def aggregate(weights: Array, members: Any, keys: Any, down: Any, clients: Clients) -> Any:
        each = partial(work, now._replace(keys=keys), down, clients)
        return _grouped(each, plan.group, plan.fills, gathers, weights, members)

    if plan.devices > 1:
        aggregate = _sharded(aggregate, plan.devices)
    weights = cohort_weights(plan, clients, cohort)
    present = jax.tree.map(lambda all_: all_[jnp.minimum(cohort.slots, all_.shape[0] - 1)], everyone)
    members = (cohort.clients, cohort.places, present)
    sums, (ups, states) = aggregate(weights / jnp.sum(weights), members, now.keys, down, clients)
    if gathers:
        assert now.round.wire is not None
        notes, metrics = sums
        sums = (Wired(now.round.wire.aggregator.combine(ups, weights), notes), metrics)
    if states is None:
        return sums, everyone
    # Rows that fill the cohort up carry a slot that no client has: their scatter is dropped.
    return sums, jax.tree.map(lambda all_, new: all_.at[cohort.slots].set(new, mode="drop"), everyone, states)


def _grouped(
    work: Callable[[Any], ClientResult], group: int, fills: bool, gathers: bool, share: Array, members: Any
) -> Any:
    """Weighted sums of what the members send and report, and their states, ``group`` members at a time.

    Where the wire ``gathers`` updates, they are returned as they are, and only what goes beside them is summed.
    """

    @jax.jit
    def together(share: Array, members: Any) -> tuple[Any, Any]:
        if group == 1:
            # Not a batch of one: XLA fuses and vectorises the plain program better, a seventh of a round's time.
            results = jax.tree.map(lambda a: a[None], work(jax.tree.map(lambda a: a[0], members)))
        else:
            results = jax.vmap(work)(members)
        ups, summed = (results.up.method, results.up.wire) if gathers else (None, results.up)
        # Members that fill the cohort up count zero, whatever they hold; without any, no value needs to be looked at.
        total = weighted if fills else tree.weighted_sum
        return total(share, (summed, results.metrics)), (ups, results.state)

    width = share.shape[0]
    if group == width:
        return together(share, members)
    folded = jax.tree.map(lambda a: a.reshape(width // group, group, *a.shape[1:]), (share, members))
    sums, _ = jax.eval_shape(together, *jax.tree.map(lambda a: a[0], folded))

    def step(total: Any, part: Any) -> tuple[Any, Any]:
        sums, rest = together(*part)
        return tree.add(total, sums), rest

    total, rest = jax.lax.scan(step, jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), sums), folded)
    return total, jax.tree.map(lambda a: a.reshape(width, *a.shape[2:]), rest)


def _sharded(aggregate: Callable[..., Any], devices: int) -> Callable[..., Any]:
    """The same over several devices: members split among them, sums summed across them."""
    mesh = jax.make_mesh((devices,), (CLIENT_AXIS,), axis_types=(AxisType.Auto,), devices=jax.devices()[:devices])
    split, same = PartitionSpec(CLIENT_AXIS), PartitionSpec()

    def on_device(*args: Any) -> Any:
        sums, rest = aggregate(*args)
        return jax.lax.psum(sums, CLIENT_AXIS), rest

    return jax.shard_map(
        on_device, mesh=mesh, in_specs=(split, split, same, same, same), out_specs=(same, split), check_vma=False
    )
