"""Many runs of one federation as one compiled program; they differ in numbers and seeds alone."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
from jax import Array
from jax.sharding import AxisType, PartitionSpec

from headstart.core import Algorithm, Keys, Params, Round, Weighting, checks
from headstart.data import Clients, Federation, MappedClients
from headstart.errors import UsageError
from headstart.problems import Problem
from headstart.simulate.evaluate import BLOCK, CLIENTS_AT_ONCE, Evaluation, score, score_table
from headstart.simulate.rounds import Cohorts, RoundPlan, RunState, draw_cohorts, run_chunk
from headstart.simulate.simulation import Simulation, reported_type
from headstart.simulate.store import DiskStore
from headstart.wire import Wire

__all__ = ["MEASURED", "Ensemble"]

RUN_AXIS = "runs"
LARGEST_CHUNK = 256
RUNS_AT_ONCE = 10
"""How many runs of a small model are computed together: enough to fill vector units, few enough to stay in cache."""
DRAWN_AT_ONCE = 16
"""How many rounds' cohorts are drawn together; a chunk of one round draws as many in vain."""
MEASURED = "measured."
"""What columns of numbers measured on a run's shared model begin with in the table of an evaluation."""

T = TypeVar("T")
Measure = Callable[[Params], dict[str, Array]]


class _Run(NamedTuple):
    """What differs between runs, stacked along a leading axis."""

    algorithm: Algorithm
    state: RunState
    keys: Keys
    evaluation_key: Array
    newcomer: Any
    """The method's state of a client that has never taken part."""


class Ensemble:
    """Every algorithm with every seed in training: what ``Simulation`` is for one run.

    Runs are numbered: the first algorithm with every seed, then the second, and so on. ``measure`` computes numbers
    from a run's shared model whenever it is evaluated.
    """

    def __init__(
        self,
        algorithms: Sequence[Algorithm],
        problem: Problem,
        federation: Federation,
        *,
        seeds: Sequence[int],
        cohort: float | int = 1.0,
        weighting: Weighting = "uniform",
        wire: Wire | None = None,
        devices: int | None = None,
        measure: Measure | None = None,
    ):
        checks.whole("the number of algorithms", len(algorithms), 1)
        checks.whole("the number of seeds", len(seeds), 1)
        if isinstance(federation.clients, MappedClients):
            raise UsageError("A sweep cannot read samples from disk.", "Load the arrays into memory first.")
        self.problem, self.federation, self.seeds = problem, federation, tuple(seeds)
        self.tested = federation.tasks or federation
        """The clients that are evaluated: single tasks, where clients have several."""
        members = [
            Simulation(algorithm, problem, federation, cohort=cohort, weighting=weighting, seed=seed, wire=wire)
            for algorithm in algorithms
            for seed in seeds
        ]
        self.number = len(members)
        self.round = 0
        self.store: DiskStore | None = None
        self._first, self.plan, self.wire = members[0], members[0].plan, members[0].wire
        self._devices = min(devices or jax.device_count(), self.number)
        self._at_once = RUNS_AT_ONCE if self.plan.at_once is None or self.plan.at_once > 1 else 1
        stacked = _stacked(
            [
                _Run(
                    each.algorithm,
                    each.state,
                    each.keys,
                    each.evaluation_key,
                    each.one_round.of_method(each.start.client),
                )
                for each in members
            ]
        )
        self._runs = _filled(stacked, _rounded_up(self.number, self._devices))
        self._measure = None if measure is None else jax.jit(jax.vmap(measure))
        self._advances: dict[int, Any] = {}
        self._evaluates: dict[Any, Any] = {}
        self._width = 0

    @property
    def state(self) -> RunState:
        """The states of all runs (leading axis)."""
        return self._without_filling(self._runs.state)

    @state.setter
    def state(self, state: RunState) -> None:
        self._runs = self._runs._replace(state=_filled(state, _rounded_up(self.number, self._devices)))

    def advance(self, rounds: int, capacity: int | None = None) -> pa.Table:
        """Run ``rounds`` rounds of every run: one row per round and run, with metrics, samples drawn and seconds.

        ``capacity`` fixes the compiled chunk's length; calls with one capacity share one program. A run's seconds are
        its share of those of all runs, without compiling.
        """
        capacity = max(rounds, capacity or 0)
        program = self._program(capacity)
        began = time.perf_counter()
        state, metrics, cohorts = program(self._runs, self.federation.clients, jnp.int32(self.round), jnp.int32(rounds))
        values = {name: np.asarray(value)[: self.number, :rounds] for name, value in metrics.items()}
        seconds = time.perf_counter() - began
        self._runs = self._runs._replace(state=state)
        cohorts = jax.device_get(cohorts)
        drawn = [
            self._first.samples(jax.tree.map(lambda rows, run=run: rows[run], cohorts), rounds)
            for run in range(self.number)
        ]
        numbers = np.arange(self.round, self.round + rounds)
        self.round += rounds
        return pa.table(
            {
                "round": np.repeat(numbers, self.number).astype(np.int32),
                "run": np.tile(np.arange(self.number, dtype=np.int32), rounds),
                **{name: value.T.ravel() for name, value in values.items()},
                "samples": np.rint(drawn).astype(np.int64).T.ravel(),
                "seconds": np.full(rounds * self.number, seconds / (rounds * self.number)),
            }
        )

    def evaluate(self, evaluation: Evaluation) -> pa.Table:
        """One row per run, number of steps and client; ``algorithm`` and ``seed`` name the run."""
        ids = evaluation.clients(self.tested)
        values = self._scores(evaluation, ids)
        measured = {} if self._measure is None else jax.device_get(self._measure(self.state.server.params))
        tables = []
        for run in range(self.number):
            by_steps = [{name: column[run] for name, column in scores.items()} for scores in values]
            table = score_table(evaluation, self.tested, ids, self.round, by_steps)
            point, seed = divmod(run, len(self.seeds))
            constant = {"run": run, "algorithm": point, "seed": self.seeds[seed]}
            for name, value in {**constant, **{MEASURED + name: rows[run] for name, rows in measured.items()}}.items():
                table = table.append_column(name, pa.array(np.full(len(table), value)))
            tables.append(table)
        return pa.concat_tables(tables)

    def largest_chunk(self) -> int:
        """How many rounds may run as one program."""
        return LARGEST_CHUNK

    def _program(self, capacity: int) -> Any:
        """The compiled chunk, which is made ahead so that its time is no run's."""
        if capacity not in self._advances:
            one = partial(_advance, self.problem, self.plan, self.wire, capacity)
            advance = _over_runs(one, self._at_once, self._devices)
            lowered = advance.lower(self._runs, self.federation.clients, jnp.int32(0), jnp.int32(1))
            self._advances[capacity] = lowered.compile()
        return self._advances[capacity]

    def _scores(self, evaluation: Evaluation, ids: np.ndarray) -> list[dict[str, np.ndarray]]:
        """For each number of steps and metric an array over (run, client)."""
        # In blocks of one width, so that evaluations that differ in clients alone are one compiled program.
        self._width = self._width or _block_width(len(ids))
        how = (evaluation.steps, evaluation.batch_size, evaluation.inner_lr)
        if how not in self._evaluates:
            known = 0 if self.federation.tasks else self.federation.trained
            one = partial(_evaluate, self.problem, self.wire, evaluation, known)
            self._evaluates[how] = _over_runs(one, self._at_once, self._devices)
        padded = np.resize(ids, _rounded_up(len(ids), self._width)).reshape(-1, self._width)
        blocks = [
            jax.device_get(self._evaluates[how](self._runs, self.tested.clients, jnp.asarray(block, jnp.int32)))
            for block in padded
        ]

        def joined(*parts: np.ndarray) -> np.ndarray:
            return np.concatenate(parts, axis=1)[: self.number, : len(ids)].astype(np.float64)

        scores: list[dict[str, np.ndarray]] = jax.tree.map(joined, *blocks)
        return scores

    def _without_filling(self, tree: Any) -> Any:
        """The runs that were asked for, without those that fill devices up."""
        if jax.tree.leaves(self._runs)[0].shape[0] == self.number:
            return tree
        return jax.tree.map(lambda leaf: leaf[: self.number], tree)


def _advance(
    problem: Problem,
    plan: RoundPlan,
    wire: Wire | None,
    capacity: int,
    run: _Run,
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


def _evaluate(
    problem: Problem, wire: Wire | None, evaluation: Evaluation, known: int, run: _Run, clients: Clients, ids: Array
) -> list[dict[str, Array]]:
    """One run's scores; clients beyond the ``known`` ones have new states."""
    of_method = Round(run.algorithm, problem.objective(), run.keys, wire).of_method

    def state_of(new: Array, rows: Array) -> Array:
        own = rows[jnp.minimum(ids, rows.shape[0] - 1)]
        return jnp.where((ids < known).reshape(-1, *[1] * (own.ndim - 1)), own, new)

    states = jax.tree.map(state_of, run.newcomer, of_method(run.state.clients))
    algorithm = evaluation.adapting(run.algorithm)
    return score(
        problem, evaluation.steps, evaluation.batch_size, algorithm, clients, of_method(run.state.server), states,
        run.evaluation_key, ids, ids,
    )  # fmt: skip


def _over_runs(one: Callable[..., Any], at_once: int, devices: int) -> Any:
    """Do for all runs what ``one`` does for one: ``at_once`` runs together, a share of them on each device."""

    def several(runs: _Run, *common: Any) -> Any:
        share = jax.tree.leaves(runs)[0].shape[0]
        groups = -(-share // at_once)
        group = -(-share // groups)
        runs = _filled(runs, groups * group)
        folded = jax.tree.map(lambda leaf: leaf.reshape(groups, group, *leaf.shape[1:]), runs)
        if group == 1:
            # Not a batch of one, which XLA compiles to a slower program.
            done = jax.lax.map(lambda run: one(run, *common), runs)
            return jax.tree.map(lambda leaf: leaf[:share], done)
        done = jax.lax.map(jax.vmap(lambda run: one(run, *common)), folded)
        return jax.tree.map(lambda leaf: leaf.reshape(groups * group, *leaf.shape[2:])[:share], done)

    if devices == 1:
        return jax.jit(several)
    mesh = jax.make_mesh((devices,), (RUN_AXIS,), axis_types=(AxisType.Auto,), devices=jax.devices()[:devices])
    split, same = PartitionSpec(RUN_AXIS), PartitionSpec()

    def spread(runs: _Run, *common: Any) -> Any:
        shared = [same] * len(common)
        return jax.shard_map(several, mesh=mesh, in_specs=(split, *shared), out_specs=split, check_vma=False)(
            runs, *common
        )

    return jax.jit(spread)


def _rounded_up(number: int, unit: int) -> int:
    return -(-number // unit) * unit


def _block_width(clients: int) -> int:
    """How many clients are evaluated together, where there are so many."""
    return clients if clients < CLIENTS_AT_ONCE else min(BLOCK, _rounded_up(clients, CLIENTS_AT_ONCE))


def _stacked(runs: Sequence[_Run]) -> _Run:
    if len({jax.tree.structure(run) for run in runs}) > 1:
        raise UsageError(
            "The algorithms of a sweep differ in more than numbers.",
            "Sweep over step sizes and weights, and call sweep once for each batch size, curvature and step count.",
        )
    stacked: _Run = jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), *runs)
    return stacked


def _filled(runs: T, number: int) -> T:
    """The last run again and again, so that every device has as many."""

    def fill(leaf: Array) -> Array:
        if leaf.shape[0] == number:
            return leaf
        return leaf[jnp.minimum(jnp.arange(number), leaf.shape[0] - 1)]

    filled: T = jax.tree.map(fill, runs)
    return filled
