"""Many runs of one federation as one compiled program; they differ in numbers and seeds alone."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
from jax import Array

from headstart.core import Algorithm, Params, Weighting, checks
from headstart.data import Federation, MappedClients
from headstart.errors import UsageError
from headstart.problems import Problem
from headstart.simulate.evaluate import Evaluation, score_table
from headstart.simulate.fitting import Bound, largest_fitting, program_bytes
from headstart.simulate.members import (
    RUNS_AT_ONCE,
    Member,
    advance_member,
    block_width,
    evaluate_member,
    fill,
    over_members,
    rounded_up,
    stack,
)
from headstart.simulate.rounds import RunState
from headstart.simulate.simulation import Simulation
from headstart.simulate.store import DiskStore
from headstart.wire import Wire

__all__ = ["MEASURED", "Ensemble"]

LARGEST_CHUNK = 256
MEASURED = "measured."
"""What columns of numbers measured on a run's shared model begin with in the table of an evaluation."""

Measure = Callable[[Params], dict[str, Array]]


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
        memory_limit: str | int | None = None,
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
        stacked = stack(
            [
                Member(
                    each.algorithm,
                    each.state,
                    each.keys,
                    each.evaluation_key,
                    each.one_round.of_method(each.start.client),
                )
                for each in members
            ]
        )
        self._runs = fill(stacked, rounded_up(self.number, self._devices))
        self._measure = None if measure is None else jax.jit(jax.vmap(measure))
        self._advances: dict[int, Any] = {}
        self._evaluates: dict[Any, Any] = {}
        self._width = 0
        self._bound = Bound.of(memory_limit)

    @property
    def state(self) -> RunState:
        """The states of all runs (leading axis)."""
        return self._without_filling(self._runs.state)

    @state.setter
    def state(self, state: RunState) -> None:
        self._runs = self._runs._replace(state=fill(state, rounded_up(self.number, self._devices)))

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
            self._first.setting.samples(jax.tree.map(lambda rows, run=run: rows[run], cohorts), rounds)
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
            if self._bound is not None:

                def needed(at_once: int) -> int:
                    return program_bytes(self._compiled(capacity, at_once))

                share = min(self._at_once, -(-self.number // self._devices))
                self._at_once = largest_fitting(self._bound, share, needed, "A sweep of these runs")
            self._advances[capacity] = self._compiled(capacity, self._at_once)
        return self._advances[capacity]

    def _compiled(self, capacity: int, at_once: int) -> Any:
        one = partial(advance_member, self.problem, self.plan, self.wire, capacity)
        advance = over_members(one, at_once, self._devices)
        return advance.lower(self._runs, self.federation.clients, jnp.int32(0), jnp.int32(1)).compile()

    def _scores(self, evaluation: Evaluation, ids: np.ndarray) -> list[dict[str, np.ndarray]]:
        """For each number of steps and metric an array over (run, client)."""
        # In blocks of one width, so that evaluations that differ in clients alone are one compiled program.
        self._width = self._width or block_width(len(ids))
        how = (evaluation.steps, evaluation.batch_size, evaluation.inner_lr)
        if how not in self._evaluates:
            known = 0 if self.federation.tasks else self.federation.trained
            one = partial(evaluate_member, self.problem, self.wire, evaluation, known)
            self._evaluates[how] = over_members(one, self._at_once, self._devices)
        padded = np.resize(ids, rounded_up(len(ids), self._width)).reshape(-1, self._width)
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
