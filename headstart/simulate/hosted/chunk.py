"""The compiled driver on several hosts: a chunk of rounds as one program, in which clients work where they live.

Every device runs all of it: it opens and closes each round itself, from the same server state and keys, and lets those
members of the cohort work that live on its host and are its own. What crosses between hosts is one sum a phase.
Clients, their samples and their states never leave their host, but for updates that the wire has to see one by one.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, PartitionSpec

from headstart.core import Algorithm, Channel, ClientResult, Keys, Phase, Round, RoundAt, Wired, tree
from headstart.core.round import weighted
from headstart.data import Clients
from headstart.problems import Problem
from headstart.simulate.rounds import CLIENT_AXIS, Cohorts, RoundPlan, RunState, cohort_weights, in_turn

__all__ = ["HOST_AXIS", "Room", "run_hosted_chunk"]

HOST_AXIS = "hosts"
EVERYWHERE = (HOST_AXIS, CLIENT_AXIS)


class Room(NamedTuple):
    """How many members of a cohort a host has room for, and how many of them a device computes together."""

    members: int
    group: int

    @classmethod
    def of(cls, plan: RoundPlan) -> "Room":
        """Room for all clients of a cohort that may happen to live on one host."""
        most = min(plan.cohort, -(-plan.clients // plan.hosts))
        share = -(-most // plan.devices)
        group = min(plan.at_once or share, share)
        whole = plan.devices * group
        return cls(-(-most // whole) * whole, group)


@partial(jax.jit, static_argnames=("problem", "plan", "mesh"), donate_argnames=("state",))
def run_hosted_chunk(
    problem: Problem,
    plan: RoundPlan,
    mesh: Mesh,
    algorithm: Algorithm,
    wire: Channel | None,
    clients: Clients,
    state: RunState,
    keys: Any,
    cohorts: Cohorts,
    first: Array,
    rounds: Array,
) -> tuple[RunState, dict[str, Array]]:
    """What ``run_chunk`` does, where clients, their states and cohorts have a leading axis of hosts.

    ``keys`` are the data of the run's keys: arrays of keys cannot be made across hosts.
    """
    here, same = PartitionSpec(HOST_AXIS), PartitionSpec()

    def on_device(
        algorithm: Algorithm, wire: Channel | None, clients: Clients, state: RunState, keys: Any, cohorts: Cohorts,
        first: Array, rounds: Array,
    ) -> Any:  # fmt: skip
        own_clients, own_states, own_cohorts = jax.tree.map(lambda leaf: leaf[0], (clients, state.clients, cohorts))
        round_ = Round(algorithm, problem.objective(), wrapped(keys), wire, plan.participation)
        work = partial(_work, plan, problem, own_clients)
        server, metrics = in_turn(
            round_, plan.cohort, work, RunState(state.server, own_states), own_cohorts, first, rounds
        )
        return server._replace(clients=jax.tree.map(lambda leaf: leaf[None], server.clients)), metrics

    return jax.shard_map(
        on_device,
        mesh=mesh,
        in_specs=(same, same, here, RunState(same, here), same, here, same, same),
        out_specs=(RunState(same, here), same),
        check_vma=False,
    )(algorithm, wire, clients, state, keys, cohorts, first, rounds)


def wrapped(data: Any) -> Keys:
    """Keys from their data."""
    return Keys(*(jax.random.wrap_key_data(each) for each in data))


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
    """Let those members of a cohort work that live here; members come first, and behind them what fills the room."""
    gathers = now.round.wire is not None and now.round.wire.aggregator is not None and phase is Phase.WORK
    group = Room.of(plan).group
    mine = _dealt(cohort, plan.devices)
    weights = cohort_weights(plan, clients, mine)

    def work(member: tuple[Array, Array, Array]) -> ClientResult:
        client, place, slot = member
        state = jax.tree.map(lambda all_: all_[jnp.minimum(slot, all_.shape[0] - 1)], everyone)
        return now.work(phase, down, state, problem.view(clients.view("train", place)), client)

    @jax.jit
    def together(share: Array, members: Any) -> tuple[Any, Any]:
        if group == 1:
            results = jax.tree.map(lambda a: a[None], work(jax.tree.map(lambda a: a[0], members)))
        else:
            results = jax.vmap(work)(members)
        ups, summed = (results.up.method, results.up.wire) if gathers else (None, results.up)
        return weighted(share, (summed, results.metrics)), (ups, results.state)

    def part(i: Array | int) -> Any:
        return jax.tree.map(
            lambda rows: jax.lax.dynamic_slice_in_dim(rows, i * group, group),
            (weights, (mine.clients, mine.places, mine.slots)),
        )

    sums, each = jax.eval_shape(together, *part(0))
    room = weights.shape[0]
    begin = (
        jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), sums),
        jax.tree.map(lambda s: jnp.zeros((room, *s.shape[1:]), s.dtype), each),
    )

    def step(i: Array, carry: tuple[Any, Any]) -> tuple[Any, Any]:
        total, rest = carry
        sums, new = together(*part(i))
        put = partial(jax.lax.dynamic_update_slice_in_dim, start_index=i * group, axis=0)
        return tree.add(total, sums), jax.tree.map(lambda all_, some: put(all_, some), rest, new)

    here = jnp.sum(mine.clients < plan.clients)
    total, (ups, states) = jax.lax.fori_loop(0, -(-here // group), step, begin)
    total, weight = _summed((total, jnp.sum(weights)))
    sums = jax.tree.map(lambda leaf: leaf / weight.astype(leaf.dtype), total)
    if gathers:
        assert now.round.wire is not None
        notes, metrics = sums
        all_ups, all_weights = jax.lax.all_gather((ups, weights), EVERYWHERE, tiled=True)
        sums = (Wired(now.round.wire.aggregator.combine(all_ups, all_weights), notes), metrics)
    if states is None:
        return sums, everyone
    slots = mine.slots
    if plan.devices > 1:  # a host's devices have all its states, each
        slots, states = jax.lax.all_gather((slots, states), CLIENT_AXIS, tiled=True)
    return sums, jax.tree.map(lambda all_, new: all_.at[slots].set(new, mode="drop"), everyone, states)


def _dealt(cohort: Cohorts, devices: int) -> Cohorts:
    """A host's members among its devices, one after the other, so that none has two more than another."""
    if devices == 1:
        return cohort
    number = jax.lax.axis_index(CLIENT_AXIS)
    dealt: Cohorts = jax.tree.map(lambda rows: rows.reshape(-1, devices)[:, number], cohort)
    return dealt


def _summed(values: Any) -> Any:
    """Over all devices of all hosts, as one message."""
    flat, unravel = ravel_pytree(values)
    return unravel(jax.lax.psum(flat, EVERYWHERE))
