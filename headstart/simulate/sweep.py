"""Many runs as one program: a grid of hyperparameters, each point with several seeds."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
from jax import Array
from jax.sharding import AxisType, PartitionSpec

from headstart.core import Algorithm, Params, Weighting, checks
from headstart.data import Clients, Federation, MappedClients
from headstart.errors import UsageError
from headstart.problems import Problem
from headstart.simulate.evaluate import BLOCK, CLIENTS_AT_ONCE, Evaluation, score, score_table
from headstart.simulate.progress import Look, Progress
from headstart.simulate.rounds import Keys, RoundPlan, RunState, draw_cohorts, run_chunk
from headstart.simulate.simulation import Simulation

__all__ = ["Scores", "Sweep", "sweep"]

RUN_AXIS = "runs"
ROUNDS_AT_ONCE = 256
RUNS_AT_ONCE = 10
"""How many runs of a small model are computed together: enough to fill vector units, few enough to stay in cache."""


class _Run(NamedTuple):
    """What differs between runs, stacked along a leading axis."""

    algorithm: Algorithm
    state: RunState
    keys: Keys
    evaluation_key: Array


@dataclass(frozen=True)
class Scores:
    """What evaluations of all runs found, as arrays."""

    rounds: np.ndarray
    """The rounds evaluated."""
    clients: np.ndarray
    """The clients' numbers."""
    held_out: np.ndarray
    """Which of them never train."""
    steps: tuple[int, ...]
    values: dict[str, np.ndarray]
    """For every metric an array over (round, run, number of steps, client)."""

    def mean(
        self, metric: str, steps: int | Sequence[int], group: str = "all", clients: tuple[int, int] | None = None
    ) -> np.ndarray:
        """The mean of a metric over clients and numbers of steps: a row a round evaluated, a column a run.

        ``group`` is ``all``, ``trained`` or ``held-out``, and ``clients`` takes a stretch of that group only.
        """
        wanted = [steps] if isinstance(steps, int) else list(steps)
        missing = [n for n in wanted if n not in self.steps]
        if metric not in self.values or missing:
            raise UsageError(
                f"Nothing was evaluated for metric {metric!r} after {wanted} steps.",
                f"There are {', '.join(self.values)} after {', '.join(map(str, self.steps))} steps.",
            )
        chosen = np.ones(len(self.clients), bool) if group == "all" else self.held_out == (group == "held-out")
        places = np.flatnonzero(chosen)
        if clients is not None:
            places = places[slice(*clients)]
        if not places.size:
            raise UsageError(f"No client of the group {group!r} was evaluated.", "Evaluate more clients.")
        positions = [self.steps.index(n) for n in wanted]
        return np.asarray(self.values[metric][:, :, positions][..., places].mean(axis=(2, 3)))


@dataclass(frozen=True)
class Sweep:
    """What a sweep leaves. Runs are numbered: the first algorithm with every seed, then the second, and so on."""

    seeds: tuple[int, ...]
    evaluated: Scores
    """Along the way."""
    final: Scores
    """At the end, by the final evaluation if one was asked for."""
    measured: dict[str, np.ndarray]
    """What ``measure`` found: a row a round evaluated, a column a run."""
    loss: np.ndarray
    """The training loss of every run (rows) and round (columns); NaN where a run has diverged."""
    server: Any
    """The servers' final states (leading axis: runs)."""
    samples: np.ndarray
    """Samples that a run has drawn when it was evaluated."""
    seconds: np.ndarray
    """How long all runs together had trained by then, without compiling and evaluating."""
    _tables: Callable[[Scores], pa.Table]

    @property
    def table(self) -> pa.Table:
        """A row a run, round evaluated, client and number of steps; ``algorithm`` and ``seed`` name the run."""
        return self._tables(self.evaluated)

    def scores(self, metric: str, steps: int, group: str = "all", reduce: str = "last") -> np.ndarray:
        """The mean of a metric over clients: a row an algorithm, a column a seed; at the last round or the best.

        ``group`` is ``all``, ``trained`` or ``held-out``; the best is the highest accuracy, or the lowest of others.
        """
        means = self.evaluated.mean(metric, steps, group).T
        best = np.nanmax if metric == "accuracy" else np.nanmin
        if reduce == "curve":
            return means.reshape(-1, len(self.seeds), means.shape[1])
        return (means[:, -1] if reduce == "last" else best(means, axis=1)).reshape(-1, len(self.seeds))


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
    final: Evaluation | None = None,
    measure: Callable[[Params], dict[str, Array]] | None = None,
    devices: int | None = None,
    checkpoint: Path | None = None,
    checkpoint_seconds: float = 30.0,
    observer: Callable[[int], None] | None = None,
) -> Sweep:
    """Train every algorithm with every seed, all in one compiled program, and evaluate them together.

    The algorithms must differ in numbers only, such as step sizes and averaging weights: what shapes depend on
    (batch sizes, local steps, curvature) is the same in all. A run is what ``train`` with its algorithm and seed
    does, to rounding; one that diverges goes on with NaN and does not disturb the others. Runs of a small model
    are computed together, of a large one after another, on each of ``devices`` devices.

    ``final`` is another evaluation for the end, of more clients, say. ``measure`` computes numbers from every run's
    shared model whenever there is an evaluation. ``checkpoint`` names a file, written every ``checkpoint_seconds``,
    from which a sweep that was stopped goes on; it is removed at the end.

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
    first, number = simulations[0], len(simulations)
    runs = _stacked([_Run(s.algorithm, s.state, s.keys, s.evaluation_key) for s in simulations])
    devices = min(devices or jax.device_count(), number)
    runs = _filled(runs, _rounded_up(number, devices))
    at_once = RUNS_AT_ONCE if first.plan.at_once is None or first.plan.at_once > 1 else 1
    capacity = min(rounds, ROUNDS_AT_ONCE)
    advance = _over_runs(partial(_advance, problem, first.plan, capacity), at_once, devices)
    tested = federation.tasks or federation
    known = 0 if federation.tasks else federation.trained

    programs: dict[Any, Any] = {}
    few = len(evaluation.clients(tested))
    width = few if few < CLIENTS_AT_ONCE else min(BLOCK, _rounded_up(few, CLIENTS_AT_ONCE))

    def evaluator(of: Evaluation) -> Callable[[_Run], dict[str, np.ndarray]]:
        # In blocks of one width, so that evaluations that differ in clients alone are one compiled program.
        how = (of.steps, of.batch_size, of.inner_lr)
        if how not in programs:
            programs[how] = _over_runs(partial(_evaluate, problem, of, known), at_once, devices)
        ids = of.clients(tested)
        padded = np.resize(ids, _rounded_up(len(ids), width)).reshape(-1, width)

        def evaluate(runs: _Run) -> dict[str, np.ndarray]:
            blocks = [jax.device_get(programs[how](runs, tested.clients, jnp.asarray(b, jnp.int32))) for b in padded]
            names = blocks[0][0]

            def of_steps(name: str, position: int) -> np.ndarray:
                values = np.concatenate([block[position][name] for block in blocks], axis=1)
                return values[:number, : len(ids)]

            return {name: np.stack([of_steps(name, n) for n in range(len(of.steps))], axis=1) for name in names}

        return evaluate

    evaluate = evaluator(evaluation)
    measured: Callable[[Params], dict[str, Array]]
    measured = (lambda params: {}) if measure is None else jax.jit(jax.vmap(measure))
    progress = Progress(runs.state, checkpoint, checkpoint_seconds)

    def look() -> None:
        numbers = jax.device_get(measured(jax.tree.map(lambda leaf: leaf[:number], runs.state.server.params)))
        progress.looks.append(Look(progress.done, progress.seconds, evaluate(runs), numbers))

    every = evaluation.every or max(1, rounds // 10)
    if progress.done:
        runs = runs._replace(state=progress.state)
    else:
        look()
    compiled = advance.lower(runs, federation.clients, jnp.int32(0), jnp.int32(1)).compile()
    while progress.done < rounds:
        done = progress.done
        step = min(capacity, rounds - done, every - done % every)
        began = time.perf_counter()
        state, loss = compiled(runs, federation.clients, jnp.int32(done), jnp.int32(step))
        runs = runs._replace(state=state)
        progress.losses.append(np.asarray(loss)[:number, :step])
        progress.seconds += time.perf_counter() - began
        progress.done += step
        if progress.done % every == 0 or progress.done == rounds:
            look()
        progress.keep(state)
        if observer is not None:
            observer(progress.done)
    evaluated = _scores(evaluation, tested, progress.looks)
    last = evaluated if final is None else _scores(final, tested, [Look(rounds, 0.0, evaluator(final)(runs), {})])
    progress.forget()
    per_round = first.plan.cohort * first.cost.samples(0)
    return Sweep(
        seeds=tuple(seeds),
        evaluated=evaluated,
        final=last,
        measured={
            name: np.stack([look.measured[name] for look in progress.looks]) for name in progress.looks[0].measured
        },
        loss=np.concatenate(progress.losses, axis=1),
        server=jax.tree.map(lambda leaf: leaf[:number], runs.state.server),
        samples=evaluated.rounds * per_round,
        seconds=np.array([look.seconds for look in progress.looks]),
        _tables=partial(_table, evaluation, tested, [s.seed for s in simulations], len(seeds)),
    )


def _scores(evaluation: Evaluation, federation: Federation, looks: list[Look]) -> Scores:
    ids = evaluation.clients(federation)
    return Scores(
        rounds=np.array([look.round for look in looks]),
        clients=ids,
        held_out=ids >= federation.trained,
        steps=evaluation.steps,
        values={name: np.stack([look.values[name] for look in looks]) for name in looks[0].values},
    )


def _table(
    evaluation: Evaluation, federation: Federation, seeds_of_runs: list[int], seeds: int, scores: Scores
) -> pa.Table:
    tables = []
    for look, round_ in enumerate(scores.rounds):
        for run, seed in enumerate(seeds_of_runs):
            by_steps = [
                {name: values[look, run, position].astype(np.float64) for name, values in scores.values.items()}
                for position in range(len(scores.steps))
            ]
            table = score_table(evaluation, federation, scores.clients, int(round_), by_steps)
            for name, value in (("run", run), ("algorithm", run // seeds), ("seed", seed)):
                table = table.append_column(name, pa.array(np.full(len(table), value)))
            tables.append(table)
    return pa.concat_tables(tables)


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
