"""What one member of many runs does, so that all of them can do it as one program."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import AxisType, PartitionSpec

from headstart.core import Algorithm, Keys, Round
from headstart.data import Clients
from headstart.errors import UsageError
from headstart.problems import Problem
from headstart.simulate.evaluate import BLOCK, CLIENTS_AT_ONCE, Evaluation, score
from headstart.simulate.rounds import Cohorts, RoundPlan, RunState, draw_cohorts, run_chunk
from headstart.simulate.setting import reported_type
from headstart.wire import Wire

__all__ = [
    "RUNS_AT_ONCE",
    "Member",
    "advance_member",
    "block_width",
    "evaluate_member",
    "fill",
    "method_states",
    "over_members",
    "rounded_up",
    "stack",
]

RUN_AXIS = "runs"
RUNS_AT_ONCE = 10
"""How many runs of a small model are computed together: enough to fill vector units, few enough to stay in cache."""
DRAWN_AT_ONCE = 16
"""How many rounds' cohorts are drawn together; a chunk of one round draws as many in vain."""

T = TypeVar("T")


class Member(NamedTuple):
    """What differs between runs, stacked along a leading axis."""

    algorithm: Algorithm
    state: RunState
    keys: Keys
    evaluation_key: Array
    newcomer: Any
    """The method's state of a client that has never taken part."""


def advance_member(
    problem: Problem,
    plan: RoundPlan,
    wire: Wire | None,
    capacity: int,
    run: Member,
    clients: Clients,
    first: Array,
    rounds: Array,
) -> tuple[RunState, dict[str, Array], Cohorts]:
    """One run's state after some more rounds, its metrics in each, and who took part."""
    cohorts = _draw(plan, run.keys, first, rounds, capacity)
    state, metrics = run_chunk(problem, plan, run.algorithm, wire, clients, run.state, run.keys, cohorts, first, rounds)
    return state, {name: values.astype(reported_type(values)) for name, values in metrics.items()}, cohorts


def _draw(plan: RoundPlan, keys: Keys, first: Array, rounds: Array, capacity: int) -> Cohorts:
    """Room for the cohorts of ``capacity`` rounds, of which not many more than ``rounds`` are drawn."""
    blocks = -(-capacity // DRAWN_AT_ONCE)

    def draw(block: Array | int) -> Cohorts:
        return draw_cohorts(plan, keys, first + block * DRAWN_AT_ONCE, DRAWN_AT_ONCE)

    def body(block: Array, rows: Cohorts) -> Cohorts:
        return jax.tree.map(
            lambda all_, new: jax.lax.dynamic_update_slice_in_dim(all_, new, block * DRAWN_AT_ONCE, 0),
            rows,
            draw(block),
        )

    room = jax.tree.map(
        lambda shape: jnp.zeros((blocks * DRAWN_AT_ONCE, *shape.shape[1:]), shape.dtype), jax.eval_shape(draw, 0)
    )
    drawn: Cohorts = jax.lax.fori_loop(0, -(-rounds // DRAWN_AT_ONCE), body, room)
    return drawn


def evaluate_member(
    problem: Problem, wire: Wire | None, evaluation: Evaluation, known: int, run: Member, clients: Clients, ids: Array
) -> list[dict[str, Array]]:
    """One run's scores; clients beyond the ``known`` ones have new states."""
    server, states = method_states(problem, wire, known, run, ids)
    algorithm = evaluation.adapting(run.algorithm)
    return score(
        problem, evaluation.steps, evaluation.batch_size, algorithm, clients, server, states, run.evaluation_key,
        ids, ids,
    )  # fmt: skip


def method_states(problem: Problem, wire: Wire | None, known: int, run: Member, ids: Array) -> tuple[Any, Any]:
    """What the method itself keeps at the server and at some clients; those beyond the ``known`` ones are new."""
    of_method = Round(run.algorithm, problem.objective(), run.keys, wire).of_method

    def state_of(new: Array, rows: Array) -> Array:
        own = rows[jnp.minimum(ids, rows.shape[0] - 1)]
        return jnp.where((ids < known).reshape(-1, *[1] * (own.ndim - 1)), own, new)

    states = jax.tree.map(state_of, run.newcomer, of_method(run.state.clients))
    return of_method(run.state.server), states


def over_members(one: Callable[..., Any], at_once: int, devices: int) -> Any:
    """Do for all runs what ``one`` does for one: ``at_once`` runs together, a share of them on each device."""

    def several(runs: Member, *common: Any) -> Any:
        share = jax.tree.leaves(runs)[0].shape[0]
        groups = -(-share // at_once)
        group = -(-share // groups)
        runs = fill(runs, groups * group)
        folded = jax.tree.map(lambda leaf: leaf.reshape(groups, group, *leaf.shape[1:]), runs)
        if group == 1:
            # Not a batch of one, which XLA compiles to a slower program.
            done = jax.lax.map(lambda run: one(run, *common), runs)
            return jax.tree.map(lambda leaf: leaf[:share], done)
        done = jax.lax.map(jax.vmap(lambda run: one(run, *common)), folded)
        return jax.tree.map(lambda leaf: leaf.reshape(groups * group, *leaf.shape[2:])[:share], done)

    if devices == 1:
        return jax.jit(several)
    mesh = jax.make_mesh((devices,), (RUN_AXIS,), axis_types=(AxisType.Auto,), devices=jax.local_devices()[:devices])
    split, same = PartitionSpec(RUN_AXIS), PartitionSpec()

    def spread(runs: Member, *common: Any) -> Any:
        shared = [same] * len(common)
        return jax.shard_map(several, mesh=mesh, in_specs=(split, *shared), out_specs=split, check_vma=False)(
            runs, *common
        )

    return jax.jit(spread)


def rounded_up(number: int, unit: int) -> int:
    """The next multiple of a unit."""
    return -(-number // unit) * unit


def block_width(clients: int) -> int:
    """How many clients are evaluated together, where there are so many."""
    return clients if clients < CLIENTS_AT_ONCE else min(BLOCK, rounded_up(clients, CLIENTS_AT_ONCE))


def stack(runs: Sequence[T]) -> T:
    """Runs along a leading axis, which takes that they differ in numbers only."""
    if len({jax.tree.structure(run) for run in runs}) > 1:
        raise UsageError(
            "The algorithms of a sweep differ in more than numbers.",
            "Sweep over step sizes and weights, and call sweep once for each batch size, curvature and step count.",
        )
    stacked: T = jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), *runs)
    return stacked


def fill(runs: T, number: int) -> T:
    """The last run again and again, so that every device has as many."""

    def repeat(leaf: Array) -> Array:
        if leaf.shape[0] == number:
            return leaf
        return leaf[jnp.minimum(jnp.arange(number), leaf.shape[0] - 1)]

    filled: T = jax.tree.map(repeat, runs)
    return filled
