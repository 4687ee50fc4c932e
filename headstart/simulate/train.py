"""Training: rounds in compiled chunks, evaluations between them, and what comes out."""

import inspect
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar, get_args

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from headstart.core import (
    Algorithm,
    Params,
    Purpose,
    RefreshingAlgorithm,
    Size,
    Weighting,
    checks,
    cohort_size,
    run_key,
)
from headstart.core.batch import FULL
from headstart.data import Federation
from headstart.errors import Diverged, UsageError, did_you_mean
from headstart.problems import Problem
from headstart.simulate.evaluate import Evaluation, evaluate, summarize
from headstart.simulate.loop import run_loop
from headstart.simulate.rounds import (
    CLIENT_AXIS,
    Backend,
    Cohorts,
    Keys,
    RoundPlan,
    RunState,
    clients_at_once,
    draw_cohorts,
    run_chunk,
)
from headstart.simulate.store import DiskStore, compact

__all__ = ["Journal", "Progress", "Result", "Simulation", "check", "train"]

CHUNK_SECONDS = 1.0
"""How long an automatically sized chunk should take: often enough to checkpoint and to show progress."""
LARGEST_CHUNK = 512
CHUNK_BYTES = 2**28
"""How much of the clients' memories a chunk may bring into RAM when they are kept on disk."""


T = TypeVar("T")


class Progress(NamedTuple):
    """What an observer is told after every chunk."""

    round: int
    rounds: int
    loss: float
    rounds_per_second: float


class Journal(Protocol):
    """Where a run's results go as they appear; a run directory keeps one, and can bring a run back."""

    def rounds(self, table: pa.Table) -> None:
        """Metrics of some finished rounds."""

    def evaluated(self, table: pa.Table) -> None:
        """A per-client evaluation."""

    def checkpoint(self, round_: int, state: RunState) -> None:
        """Everything up to ``round_`` has been told; this state continues it."""

    def restore(self, template: RunState) -> tuple[int, RunState] | None:
        """The last checkpoint in the shape of ``template``, or ``None`` for a new run."""

    def tables(self) -> tuple[pa.Table | None, pa.Table | None]:
        """All rounds and evaluations told so far, up to the restored checkpoint."""


@dataclass
class Memory:
    """The journal of a run that is not recorded."""

    told_rounds: list[pa.Table] = field(default_factory=list)
    told_evaluations: list[pa.Table] = field(default_factory=list)

    def rounds(self, table: pa.Table) -> None:
        self.told_rounds.append(table)

    def evaluated(self, table: pa.Table) -> None:
        self.told_evaluations.append(table)

    def checkpoint(self, round_: int, state: RunState) -> None:
        pass

    def restore(self, template: RunState) -> None:
        return None

    def tables(self) -> tuple[pa.Table | None, pa.Table | None]:
        rounds, evaluations = (pa.concat_tables(t) if t else None for t in (self.told_rounds, self.told_evaluations))
        return rounds, evaluations


def check(
    algorithm: Algorithm, problem: Problem, federation: Federation, cohort: float | int, weighting: Weighting
) -> None:
    """Refuse what cannot be trained, saying why and what to do instead."""
    name = type(algorithm).__name__
    if weighting not in get_args(Weighting):
        raise UsageError(f"There is no weighting {weighting!r}.", did_you_mean(weighting, get_args(Weighting)))
    if federation.endless and not isinstance(cohort, int):
        raise UsageError(
            f"cohort = {cohort} is a share, but these tasks are endlessly many.", "Give cohort as a number of clients."
        )
    size = cohort_size(cohort, federation.trained)
    if algorithm.needs_everyone and size < federation.trained:
        raise UsageError(
            f"{name} needs all {federation.trained} clients in every round, but cohort = {cohort}.",
            "Set cohort to 1.0.",
        )
    objective = problem.objective()
    if not inspect.isfunction(objective) and not isinstance(objective, algorithm.objectives):
        raise UsageError(
            f"{name} minimises a loss; it cannot work on a {type(problem).__name__}.",
            "Choose an algorithm for such problems; `headstart algorithms` says what each one does.",
        )
    cost = algorithm.cost()
    federation.check_batch(cost.largest_batch())
    if federation.counts is None and (weighting == "samples" or FULL in cost.batches):
        raise UsageError(
            "These clients generate their samples and have no sample count.",
            "Use weighting = 'uniform' and give batch sizes as numbers.",
        )
    slots, drawn = getattr(algorithm, "tasks_per_client", 1), getattr(algorithm, "tasks_per_step", 1)
    fewest, most = federation.tasks_per_client
    if (slots < most and slots > 1) or drawn > fewest:
        raise UsageError(
            f"{name} is set to {slots} tasks a client and {drawn} a step, but clients have {fewest} to {most} tasks.",
            f"Set tasks_per_client to {most} and tasks_per_step to at most {fewest}.",
        )


class Simulation:
    """A federation in training: advance it, evaluate it, look at its state.

    Symbols: ``cohort`` is the papers' r (a share) or rN (a count).
    """

    def __init__(
        self,
        algorithm: Algorithm,
        problem: Problem,
        federation: Federation,
        *,
        cohort: float | int = 1.0,
        weighting: Weighting = "uniform",
        seed: int = 0,
        params: Params | None = None,
        backend: Backend = "vmap",
        devices: int | None = None,
        at_once: int | None = None,
        memory: str | Path | None = None,
    ):
        checks.whole("seed", seed, 0)
        self.algorithm, self.problem, self.federation = algorithm, problem, federation
        self.backend = backend
        check(algorithm, problem, federation, cohort, weighting)
        self.cost = algorithm.cost()
        if params is None:
            params = problem.init(run_key(seed, Purpose.INIT))
        params = jax.tree.map(_owned, params)
        if at_once is None:
            at_once = clients_at_once(params)
        else:
            checks.whole("at_once", at_once, 1)
        self.plan = RoundPlan(
            clients=federation.trained,
            cohort=cohort_size(cohort, federation.trained),
            weighting=weighting,
            devices=_device_count(backend, devices),
            at_once=at_once,
            refreshes=isinstance(algorithm, RefreshingAlgorithm),
        )
        # Placed once: left to each chunk, every one of them would copy all data to every device again.
        self._clients = _spread(federation.clients, self.plan.devices)
        self.keys = Keys.of(seed)
        self._evaluation_key = run_key(seed, Purpose.EVALUATE)
        anyone = federation.clients.view("train", jnp.zeros((), jnp.int32))
        self.algorithm = algorithm = algorithm.prepare(problem.objective(), params, anyone)
        own = algorithm.init_client(params)
        if federation.endless and jax.tree.leaves(own):
            raise UsageError(
                f"{type(algorithm).__name__} keeps a memory for every client, but these tasks are endlessly many.",
                "Use a method without memories between rounds, or a federation of finitely many tasks.",
            )
        self.store = None
        everyone: Any = ()
        if memory is not None and jax.tree.leaves(own):
            self.store = DiskStore(memory, federation.trained, own)
        else:
            everyone = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (federation.trained, *leaf.shape)), own)
        self.round = 0
        self.state = jax.tree.map(_owned, RunState(algorithm.init_server(params), everyone))

    def advance(self, rounds: int, capacity: int | None = None) -> pa.Table:
        """Run ``rounds`` rounds and return a row for each: metrics, cost, bytes and seconds.

        ``capacity`` fixes the compiled chunk's length; calls with one capacity share one program.
        """
        capacity = max(rounds, capacity or 0)
        began = time.perf_counter()
        first = jnp.asarray(self.round, jnp.int32)
        cohorts = draw_cohorts(self.plan, self.keys, first, capacity)
        present = np.zeros(0, np.int64)
        if self.store is not None:
            cohorts, present = self._load(self.store, cohorts, rounds)
        if self.backend == "loop":
            self.state, metrics = run_loop(
                self.problem, self.plan, self.algorithm, self.federation.clients, self.state, self.keys,
                cohorts, self.round, rounds, self.federation.name,
            )  # fmt: skip
        else:
            self.state = _spread(self.state, self.plan.devices)
            self.state, metrics = run_chunk(
                self.problem, self.plan, self.algorithm, self._clients, self.state, self.keys,
                cohorts, first, jnp.asarray(rounds, jnp.int32),
            )  # fmt: skip
        if self.store is not None:
            self.store.stage(present, jax.tree.map(lambda rows: rows[: len(present)], self.state.clients))
            self.state = RunState(self.state.server, ())
        values = {name: np.asarray(column)[:rounds] for name, column in metrics.items()}
        seconds = (time.perf_counter() - began) / rounds
        table = self._account(values, np.asarray(cohorts.clients)[:rounds], seconds)
        self.round += rounds
        return table

    def evaluate(self, evaluation: Evaluation) -> pa.Table:
        """Every client's scores now; where clients have several tasks, every task's, as a newcomer's."""
        return evaluate(
            evaluation,
            self.problem,
            self.algorithm,
            self.federation.tasks or self.federation,
            self.state.server,
            self._new_states if self.federation.tasks else self.client_states,
            self._evaluation_key,
            self.round,
        )

    def client_states(self, ids: np.ndarray) -> Any:
        """The states of some clients, stacked; those that never train have new ones."""
        fresh = self._new_states(ids)
        if not jax.tree.leaves(fresh):
            return fresh
        known = np.minimum(ids, self.federation.trained - 1)
        if self.store is not None:
            stored = self.store.read(known)
        else:
            stored = jax.tree.map(lambda rows: rows[known], self.state.clients)

        def choose(new: Any, old: Any) -> Any:
            return jnp.where((ids < self.federation.trained).reshape(-1, *[1] * (old.ndim - 1)), old, new)

        return jax.tree.map(choose, fresh, stored)

    def largest_chunk(self) -> int:
        """How many rounds a chunk may have: with memories on disk, as many as have room for their cohorts' rows."""
        if self.store is None:
            return LARGEST_CHUNK
        rows = self.plan.width * (2 if self.plan.refreshes else 1)
        return max(1, min(LARGEST_CHUNK, CHUNK_BYTES // (rows * self.store.row_bytes)))

    def _new_states(self, ids: np.ndarray) -> Any:
        fresh = self.algorithm.init_client(self.state.server.params)
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (len(ids), *leaf.shape)), fresh)

    def _load(self, store: DiskStore, cohorts: Cohorts, rounds: int) -> tuple[Cohorts, np.ndarray]:
        """Fetch the rows of a chunk's cohorts; cohorts then point at rows instead of clients."""
        drawn = [c for c in (cohorts, cohorts.refresh) if c is not None]
        members = [np.asarray(c.clients)[:rounds].ravel() for c in drawn]
        ids = np.unique(np.concatenate(members))
        ids = ids[ids < self.plan.clients]
        room = cohorts.clients.size * len(drawn)
        rows = store.read(np.concatenate([ids, np.zeros(room - len(ids), ids.dtype)]))
        self.state = RunState(self.state.server, jax.tree.map(jnp.asarray, rows))
        slots = [c._replace(slots=compact(np.asarray(c.clients), ids)) for c in drawn]
        return slots[0] if len(drawn) == 1 else slots[0]._replace(refresh=slots[1]), ids

    def _account(self, metrics: dict[str, np.ndarray], cohorts: np.ndarray, seconds: float) -> pa.Table:
        rounds, members = len(cohorts), self.plan.cohort
        counts = None if self.federation.counts is None else self.federation.counts["train"]
        samples = [
            sum(self.cost.samples(0 if counts is None else int(counts[i])) for i in cohort[:members])
            if FULL in self.cost.batches
            else members * self.cost.samples(0)
            for cohort in cohorts
        ]
        columns = {
            "round": np.arange(self.round, self.round + rounds),
            **{name: values for name, values in metrics.items() if not name.startswith("bytes_")},
            "gradients": np.full(rounds, round(members * self.cost.gradients), np.int64),
            "products": np.full(rounds, round(members * self.cost.products), np.int64),
            "samples": np.rint(samples).astype(np.int64),
            **{name: members * metrics[name].astype(np.int64) for name in ("bytes_up", "bytes_down")},
            "seconds": np.full(rounds, seconds),
        }
        return pa.table(columns)


@dataclass(frozen=True)
class Result:
    """What training leaves."""

    server: Any
    """The server's final state."""
    clients: Any
    """Every training client's final state (leading axis); ``()`` where clients keep nothing, or keep it on disk."""
    history: pa.Table
    """A row a round: metrics, gradients, Hessian-vector products, samples, bytes up and down, seconds."""
    table: pa.Table
    """A row a round evaluated, client and number of adaptation steps."""
    summary: pa.Table
    """The same over clients: mean, std, worst10, min, max."""
    rounds: int
    """Rounds done."""
    _simulation: Simulation

    @property
    def params(self) -> Params:
        """The shared model."""
        return self.server.params

    def final(self, metric: str, steps: int, group: str = "all") -> dict[str, Any]:
        """The last round's summary of one metric."""
        return self._rows(metric, steps, group)[-1]

    def best(self, metric: str, steps: int, group: str = "all") -> dict[str, Any]:
        """The summary of the round with the best mean."""
        higher = metric in self._simulation.problem.higher_is_better
        return (max if higher else min)(self._rows(metric, steps, group), key=lambda row: row["mean"])

    def personalize(self, client: int | str, steps: int = 1, batch_size: Size = FULL) -> Params:
        """A client's own model: the shared one adapted on the client's support data."""
        sim = self._simulation
        index = _client_index(sim.federation, client)
        own = jax.tree.map(lambda rows: rows[0], sim.client_states(np.array([index])))
        key = sim._evaluation_key
        return sim.algorithm.personalize(
            sim.problem.objective(),
            sim.algorithm.broadcast(self.server, key),
            own,
            sim.federation.clients.view("support", jnp.asarray(index)),
            jax.random.fold_in(key, index),
            steps,
            batch_size,
        )

    def _rows(self, metric: str, steps: int, group: str) -> list[dict[str, Any]]:
        rows = [
            row
            for row in self.summary.to_pylist()
            if (row["metric"], row["steps"], row["group"]) == (metric, steps, group)
        ]
        if not rows:
            raise UsageError(
                f"Nothing was evaluated for metric {metric!r}, {steps} steps, group {group!r}.",
                "See the columns of result.summary for what was.",
            )
        return rows


def train(
    algorithm: Algorithm,
    problem: Problem,
    federation: Federation,
    *,
    rounds: int,
    cohort: float | int = 1.0,
    weighting: Weighting = "uniform",
    seed: int = 0,
    params: Params | None = None,
    evaluation: Evaluation | None = None,
    backend: Backend = "vmap",
    devices: int | None = None,
    at_once: int | None = None,
    chunk: int | None = None,
    memory: str | Path | None = None,
    journal: Journal | None = None,
    observer: Callable[[Progress], bool] | None = None,
) -> Result:
    """Train for ``rounds`` rounds and evaluate every client before and after it adapts.

    ``cohort`` is a share in (0, 1] (``1.0`` is everyone) or a number of clients. ``params`` starts from given
    parameters instead of fresh ones. ``chunk`` fixes how many rounds run as one program between checkpoints;
    left out, about a second's worth. ``memory`` names a folder to keep clients' states in, where they would not fit
    in RAM. ``observer`` is told the progress after every chunk and may return
    ``False`` to stop there.

    >>> import headstart as hs
    >>> federation = hs.data.sine(clients=5, held_out=1)
    >>> problem = hs.Regression(hs.MLP(inputs=1, outputs=1, hidden=(8,)))
    >>> algorithm = hs.per_fedavg(batch_size=10, inner_lr=0.01)
    >>> result = hs.train(algorithm, problem, federation, rounds=2, evaluation=hs.Evaluation(batch_size=10))
    >>> result.history.num_rows, sorted(set(result.table["steps"].to_pylist()))
    (2, [0, 1])
    """
    checks.whole("rounds", rounds, 1)
    if chunk is not None:
        checks.whole("chunk", chunk, 1)
    evaluation = evaluation or Evaluation()
    journal = journal or Memory()
    sim = Simulation(
        algorithm, problem, federation, cohort=cohort, weighting=weighting, seed=seed, params=params,
        backend=backend, devices=devices, at_once=at_once, memory=memory,
    )  # fmt: skip
    every = evaluation.every or max(1, rounds // 10)
    capacity = min(chunk or LARGEST_CHUNK, sim.largest_chunk(), rounds)
    restored = journal.restore(sim.state)
    if restored is not None:
        sim.round, sim.state = restored
    if sim.store is not None:
        sim.store.recover(sim.round)
    if restored is None:
        journal.evaluated(sim.evaluate(evaluation))
        journal.checkpoint(0, sim.state)
    length = chunk or 1
    while sim.round < rounds:
        step = min(length, capacity, rounds - sim.round, every - sim.round % every)
        began = time.perf_counter()
        table = sim.advance(step, capacity)
        seconds = time.perf_counter() - began
        _check_finite(table)
        journal.rounds(table)
        if sim.round % every == 0 or sim.round == rounds:
            journal.evaluated(sim.evaluate(evaluation))
        if sim.store is not None:
            sim.store.prepare(sim.round)
        journal.checkpoint(sim.round, sim.state)
        if sim.store is not None:
            sim.store.commit(sim.round)
        if chunk is None:
            length = max(1, int(min(2 * length if seconds < CHUNK_SECONDS else length, LARGEST_CHUNK)))
            if seconds > 2 * CHUNK_SECONDS:
                length = max(1, int(length * CHUNK_SECONDS / seconds))
        told = Progress(sim.round, rounds, float(table["loss"][-1].as_py()), step / seconds)
        if observer is not None and observer(told) is False:
            break
    history, evaluations = journal.tables()
    assert evaluations is not None
    return Result(
        server=sim.state.server,
        clients=sim.state.clients,
        history=history if history is not None else pa.table({}),
        table=evaluations,
        summary=summarize(evaluations, problem.higher_is_better),
        rounds=sim.round,
        _simulation=sim,
    )


def _check_finite(table: pa.Table) -> None:
    loss = table["loss"].to_numpy()
    bad = np.flatnonzero(~np.isfinite(loss))
    if bad.size:
        raise Diverged(
            f"The training loss is not finite from round {table['round'][int(bad[0])].as_py()} on.\n"
            "  Lower outer_lr or inner_lr; backend = 'loop' names the client where it begins."
        )


def _owned(leaf: Any) -> jax.Array:
    """A copy, since a chunk is given the state's buffers, of a type that is not weak, since a chunk returns none."""
    array = jnp.array(leaf, copy=True)
    return jax.lax.convert_element_type(array, array.dtype)


def _spread(tree: T, devices: int) -> T:
    """As a sharded chunk returns its state: a whole copy on every device.

    A state placed otherwise would have the chunk traced and compiled a second time.
    """
    if devices == 1:
        return tree
    mesh = jax.make_mesh((devices,), (CLIENT_AXIS,), axis_types=(AxisType.Auto,), devices=jax.devices()[:devices])
    return jax.device_put(tree, NamedSharding(mesh, PartitionSpec()))


def _device_count(backend: Backend, devices: int | None) -> int:
    if backend not in ("loop", "vmap", "sharded"):
        raise UsageError(f"There is no backend {backend!r}.", "Choose one of: loop, vmap, sharded.")
    if backend != "sharded":
        if devices not in (None, 1):
            raise UsageError(f"backend = {backend!r} runs on one device, not {devices}.", "Set backend = 'sharded'.")
        return 1
    here = jax.device_count()
    if devices is not None and not 1 <= devices <= here:
        raise UsageError(
            f"{devices} devices are asked for, but JAX sees {here}.",
            "Call headstart.use_cpu_devices(n) before anything touches JAX, or ask for fewer.",
        )
    return devices or here


def _client_index(federation: Federation, client: int | str) -> int:
    if isinstance(client, str):
        names = [federation.name(i) for i in range(federation.total)]
        if client not in names:
            raise UsageError(f"There is no client {client!r}.", "See the client column of result.table.")
        return names.index(client)
    if not 0 <= client < federation.total:
        raise UsageError(f"There is no client {client}.", f"Clients are numbered 0 to {federation.total - 1}.")
    return client
