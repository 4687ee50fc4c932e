"""Many runs as one program: a grid of hyperparameters, each point with several seeds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
from jax import Array
from jax.sharding import AxisType, PartitionSpec

from headstart.core import Algorithm, Weighting, checks
from headstart.data import Clients, Federation, MappedClients
from headstart.errors import UsageError
from headstart.problems import Problem
from headstart.simulate.evaluate import Evaluation, score, score_table
from headstart.simulate.rounds import Keys, RoundPlan, RunState, draw_cohorts, run_chunk
from headstart.simulate.simulation import Simulation

__all__ = ["Sweep", "sweep"]

RUN_AXIS = "runs"
ROUNDS_AT_ONCE = 256


class _Run(NamedTuple):
    """What differs between runs, stacked along a leading axis."""

    algorithm: Algorithm
    state: RunState
    keys: Keys
    evaluation_key: Array


@dataclass(frozen=True)
class Sweep:
    """What a sweep leaves. Runs are numbered: the first algorithm with every seed, then the second, and so on."""

    table: pa.Table
    """A row a run, round evaluated, client and number of adaptation steps; ``algorithm`` and ``seed`` name the run."""
    loss: np.ndarray
    """The training loss of every run (rows) and round (columns); NaN where a run has diverged."""
    server: Any
    """The servers' final states (leading axis: runs)."""
    samples: int
    """Samples that a run has drawn."""

    def scores(self, metric: str, steps: int, group: str = "all", reduce: str = "last") -> np.ndarray:
        """The mean of a metric over clients: a row an algorithm, a column a seed; at the last round or the best.

        ``group`` is ``all``, ``trained`` or ``held-out``; the best is the highest accuracy, or the lowest of others.
        """
        columns = {name: self.table[name].to_numpy(zero_copy_only=False) for name in self.table.column_names}
        chosen = columns["steps"] == steps
        if group != "all":
            chosen &= columns["held_out"].astype(bool) == (group == "held-out")
        rounds, which = np.unique(columns["round"][chosen], return_inverse=True)
        runs = columns["run"][chosen]
        number = int(columns["run"].max()) + 1
        cell = runs * len(rounds) + which
        sums = np.bincount(cell, columns[metric][chosen], minlength=number * len(rounds))
        means = (sums / np.bincount(cell, minlength=number * len(rounds))).reshape(number, len(rounds))
        best = np.nanmax if metric == "accuracy" else np.nanmin
        seeds = len(np.unique(columns["seed"]))
        if reduce == "curve":
            return means.reshape(-1, seeds, len(rounds))
        return (means[:, -1] if reduce == "last" else best(means, axis=1)).reshape(-1, seeds)


def sweep(
    algorithms: Sequence[Algorithm],
    problem: Problem,
    federation: Federation,
    *,
    seeds: Sequence[int],
    rounds: int,
    cohort: float | int = 1.0,
    weighting: Weighting = "uniform",
    evaluation: Evaluation | None = None,
    devices: int | None = None,
    observer: Callable[[int], None] | None = None,
) -> Sweep:
    """Train every algorithm with every seed, all in one compiled program, and evaluate them together.

    The algorithms must differ in numbers only, such as step sizes and averaging weights: what shapes depend on
    (batch sizes, local steps, curvature) is the same in all. A run is what ``train`` with its algorithm and seed
    does, to rounding; one that diverges goes on with NaN and does not disturb the others. Runs of a small model
    are computed together, of a large one after another, on each of ``devices`` devices.

    >>> import headstart as hs
    >>> federation = hs.data.sine(clients=5, held_out=2)
    >>> problem = hs.Regression(hs.MLP(inputs=1, outputs=1, hidden=(8,)))
    >>> grid = [hs.maml(batch_size=5, outer_lr=lr) for lr in (0.001, 0.01)]
    >>> evaluation = hs.Evaluation(steps=(1,), batch_size=10)
    >>> done = sweep(grid, problem, federation, seeds=range(3), rounds=4, cohort=2, evaluation=evaluation)
    >>> done.scores("loss", steps=1, group="held-out").shape
    (2, 3)
    """
    checks.whole("rounds", rounds, 1)
    checks.whole("the number of seeds", len(seeds), 1)
    if isinstance(federation.clients, MappedClients):
        raise UsageError("A sweep cannot read samples from disk.", "Load the arrays into memory first.")
    evaluation = evaluation or Evaluation()
    simulations = [
        Simulation(algorithm, problem, federation, cohort=cohort, weighting=weighting, seed=seed)
        for algorithm in algorithms
        for seed in seeds
    ]
    first = simulations[0]
    runs = _stacked([_Run(s.algorithm, s.state, s.keys, s.evaluation_key) for s in simulations])
    devices = min(devices or jax.device_count(), len(simulations))
    runs = _filled(runs, -(-len(simulations) // devices) * devices)
    together = first.plan.at_once is None or first.plan.at_once > 1
    capacity = min(rounds, ROUNDS_AT_ONCE)
    advance = _over_runs(partial(_advance, problem, first.plan, capacity), together, devices)
    tested = federation.tasks or federation
    ids = evaluation.clients(tested)
    known = 0 if federation.tasks else federation.trained
    evaluate = _over_runs(partial(_evaluate, problem, evaluation, known), together, devices)

    def scored(round_: int) -> pa.Table:
        values = jax.device_get(evaluate(runs, tested.clients, jnp.asarray(ids, jnp.int32)))
        tables = []
        for run, simulation in enumerate(simulations):
            of_run = jax.tree.map(lambda leaf, run=run: np.asarray(leaf[run], np.float64), values)
            table = score_table(evaluation, tested, ids, round_, of_run)
            for name, value in (("run", run), ("algorithm", run // len(seeds)), ("seed", simulation.seed)):
                table = table.append_column(name, pa.array(np.full(len(table), value)))
            tables.append(table)
        return pa.concat_tables(tables)

    every = evaluation.every or max(1, rounds // 10)
    tables, losses, done = [scored(0)], [], 0
    while done < rounds:
        step = min(capacity, rounds - done, every - done % every)
        state, loss = advance(runs, federation.clients, jnp.asarray(done, jnp.int32), jnp.asarray(step, jnp.int32))
        runs = runs._replace(state=state)
        losses.append(np.asarray(loss)[: len(simulations), :step])
        done += step
        if done % every == 0 or done == rounds:
            tables.append(scored(done))
        if observer is not None:
            observer(done)
    return Sweep(
        table=pa.concat_tables(tables),
        loss=np.concatenate(losses, axis=1),
        server=jax.tree.map(lambda leaf: leaf[: len(simulations)], runs.state.server),
        samples=round(rounds * first.plan.cohort * first.cost.samples(0)),
    )


def _advance(
    problem: Problem, plan: RoundPlan, capacity: int, run: _Run, clients: Clients, first: Array, rounds: Array
) -> tuple[RunState, Array]:
    """One run's state after some more rounds, and its loss in each."""
    cohorts = draw_cohorts(plan, run.keys, first, capacity)
    state, metrics = run_chunk(problem, plan, run.algorithm, clients, run.state, run.keys, cohorts, first, rounds)
    return state, metrics["loss"]


def _evaluate(
    problem: Problem, evaluation: Evaluation, known: int, run: _Run, clients: Clients, ids: Array
) -> list[dict[str, Array]]:
    """One run's scores; clients beyond the ``known`` ones have new states."""
    fresh = run.algorithm.init_client(run.state.server.params)

    def state_of(new: Array, rows: Array) -> Array:
        own = rows[jnp.minimum(ids, rows.shape[0] - 1)]
        return jnp.where((ids < known).reshape(-1, *[1] * (own.ndim - 1)), own, new)

    states = jax.tree.map(state_of, fresh, run.state.clients)
    algorithm = evaluation.adapting(run.algorithm)
    return score(
        problem, evaluation.steps, evaluation.batch_size, algorithm, clients, run.state.server, states,
        run.evaluation_key, ids, ids,
    )  # fmt: skip


def _over_runs(one: Callable[..., Any], together: bool, devices: int) -> Callable[..., Any]:
    """Do for all runs what ``one`` does for one: together or one after another, a share of them on each device."""

    def several(runs: _Run, *common: Any) -> Any:
        if together:
            return jax.vmap(lambda run: one(run, *common))(runs)
        return jax.lax.map(lambda run: one(run, *common), runs)

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


def _stacked(runs: Sequence[_Run]) -> _Run:
    if len({jax.tree.structure(run) for run in runs}) > 1:
        raise UsageError(
            "The algorithms of a sweep differ in more than numbers.",
            "Sweep over step sizes and weights, and call sweep once for each batch size, curvature and step count.",
        )
    stacked: _Run = jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), *runs)
    return stacked


def _filled(runs: _Run, number: int) -> _Run:
    """The last run again and again, so that every device has as many."""

    def fill(leaf: Array) -> Array:
        return leaf[jnp.minimum(jnp.arange(number), leaf.shape[0] - 1)]

    filled: _Run = jax.tree.map(fill, runs)
    return filled
