"""A federation in training: its state, and what moves it."""

import inspect
import time
from pathlib import Path
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa

from headstart.core import (
    FULL,
    Algorithm,
    Cost,
    Keys,
    Params,
    Purpose,
    RefreshingAlgorithm,
    Round,
    Weighting,
    checks,
    cohort_size,
    run_key,
    tree,
)
from headstart.data import Federation
from headstart.devices import release_compiled_programs
from headstart.errors import UsageError, did_you_mean
from headstart.problems import Problem
from headstart.simulate.evaluate import Evaluation, evaluate
from headstart.simulate.feed import Feed, spread
from headstart.simulate.loop import run_loop
from headstart.simulate.rounds import (
    Backend,
    Cohorts,
    RoundPlan,
    RunState,
    clients_at_once,
    run_chunk,
)
from headstart.simulate.store import DiskStore, compact
from headstart.wire import Wire, check_wire

__all__ = ["LARGEST_CHUNK", "Simulation", "check", "owned", "reported_type"]

LARGEST_CHUNK = 512
CHUNK_BYTES = 2**28
"""How much of the clients' memories a chunk may bring into RAM when they are kept on disk."""


def check(
    algorithm: Algorithm,
    problem: Problem,
    federation: Federation,
    cohort: float | int,
    weighting: Weighting,
    wire: Wire | None = None,
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
    if wire is not None:
        check_wire(wire, name, algorithm.refuses, weighting, size)
    slots, drawn = algorithm.task_slots()
    fewest, most = federation.tasks_per_client
    if slots < most or drawn > fewest:
        raise UsageError(
            f"{name} has room for {slots} tasks per client and looks at {drawn} per step, but clients have {fewest} to "
            f"{most} tasks.",
            f"Use a method that has tasks_per_client and set it to {most}, and tasks_per_step to at most {fewest}.",
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
        wire: Wire | None = None,
    ):
        release_compiled_programs()
        checks.whole("seed", seed, 0)
        self.seed = seed
        self.problem, self.federation, self.wire = problem, federation, wire
        self.backend = backend
        check(algorithm, problem, federation, cohort, weighting, wire)
        if wire is not None and not wire.parts and wire.aggregator is None:
            self.wire = None  # as if there were none, to the bit
        if params is None:
            params = problem.init(run_key(seed, Purpose.INIT))
        params = jax.tree.map(owned, params)
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
        self.keys = Keys.of(seed)
        self._feed = Feed(federation.clients, self.plan, self.keys)
        self.evaluation_key = run_key(seed, Purpose.EVALUATE)
        samples = problem.view(federation.clients.shapes())
        self.algorithm = algorithm.prepare(problem.objective(), params, samples)
        self.start = self.one_round.start(params, samples)
        own = self.start.client
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
        self.state = jax.tree.map(owned, RunState(self.start.server, everyone))

    @property
    def one_round(self) -> Round:
        """The round as every driver has it."""
        return Round(self.algorithm, self.problem.objective(), self.keys, self.wire, self.plan.participation)

    @property
    def down(self) -> Any:
        """What a client is sent that takes part in no round but wants a model of its own."""
        return self.algorithm.broadcast(self.one_round.of_method(self.state.server), self.evaluation_key)

    def advance(self, rounds: int, capacity: int | None = None) -> pa.Table:
        """Run ``rounds`` rounds and return a row for each: metrics, cost, bytes and seconds.

        ``capacity`` fixes the compiled chunk's length; calls with one capacity share one program.
        """
        capacity = max(rounds, capacity or 0)
        began = time.perf_counter()
        clients, cohorts = self._feed.chunk(self.round, rounds, capacity)
        self._feed.expect(self.round + rounds, rounds, capacity)
        present = np.zeros(0, np.int64)
        if self.store is not None:
            cohorts, present = self._load(self.store, cohorts, rounds)
        if self.backend == "loop":
            self.state, metrics = run_loop(
                self.problem, self.plan, self.algorithm, self.wire, clients, self.state, self.keys,
                cohorts, self.round, rounds, self.federation.name,
            )  # fmt: skip
        else:
            self.state = spread(self.state, self.plan.devices)
            self.state, metrics = run_chunk(
                self.problem, self.plan, self.algorithm, self.wire, clients, self.state, self.keys,
                cohorts, jnp.asarray(self.round, jnp.int32), jnp.asarray(rounds, jnp.int32),
            )  # fmt: skip
        if self.store is not None:
            self.store.stage(present, jax.tree.map(lambda rows: rows[: len(present)], self.state.clients))
            self.state = RunState(self.state.server, ())
        # Arrow knows no floating-point numbers of 16 bits but IEEE's.
        values = {name: np.asarray(column[:rounds].astype(reported_type(column))) for name, column in metrics.items()}
        seconds = (time.perf_counter() - began) / rounds
        table = self._account(values, cohorts, seconds)
        self.round += rounds
        return table

    def evaluate(self, evaluation: Evaluation) -> pa.Table:
        """Every client's scores now; where clients have several tasks, every task's, as a newcomer's."""
        return evaluate(
            evaluation,
            self.problem,
            self.algorithm,
            self.federation.tasks or self.federation,
            self.one_round.of_method(self.state.server),
            self._new_states if self.federation.tasks else self.client_states,
            self.evaluation_key,
            self.round,
        )

    def client_states(self, ids: np.ndarray) -> Any:
        """The method's states of some clients, stacked; those that never train have new ones."""
        fresh = self._new_states(ids)
        if not jax.tree.leaves(fresh):
            return fresh
        known = np.minimum(ids, self.federation.trained - 1)
        if self.store is not None:
            stored = self.one_round.of_method(self.store.read(known))
        else:
            stored = jax.tree.map(lambda rows: rows[known], self.one_round.of_method(self.state.clients))

        def choose(new: Any, old: Any) -> Any:
            return jnp.where((ids < self.federation.trained).reshape(-1, *[1] * (old.ndim - 1)), old, new)

        return jax.tree.map(choose, fresh, stored)

    def return_to(self, round_: int, state: RunState) -> None:
        """Go back to the state of an earlier round."""
        self.state, self.round = jax.tree.map(jnp.asarray, state), round_

    def largest_chunk(self) -> int:
        """How many rounds a chunk may have: with memories or samples on disk, as many as have room in RAM."""
        members = self.plan.members
        rounds = self.federation.clients.most_at_once(["train"], LARGEST_CHUNK * members) // members
        if self.store is not None:
            rounds = min(rounds, CHUNK_BYTES // (members * self.store.row_bytes))
        return max(1, rounds)

    def _new_states(self, ids: np.ndarray) -> Any:
        fresh = self.one_round.of_method(self.start.client)
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (len(ids), *leaf.shape)), fresh)

    def _load(self, store: DiskStore, cohorts: Cohorts, rounds: int) -> tuple[Cohorts, np.ndarray]:
        """Fetch the rows of a chunk's cohorts; cohorts then point at rows instead of clients."""
        drawn = [c for c in (cohorts, cohorts.refresh) if c is not None]
        members = [np.asarray(c.clients)[:rounds].ravel() for c in drawn]
        ids = np.unique(np.concatenate(members))
        ids = ids[ids < self.plan.clients]
        room = cohorts.clients.size * len(drawn)
        rows = store.read(np.concatenate([ids, np.zeros(room - len(ids), ids.dtype)]))
        self.state = RunState(self.state.server, jax.tree.map(owned, rows))
        slots = [c._replace(slots=compact(np.asarray(c.clients), ids)) for c in drawn]
        return slots[0] if len(drawn) == 1 else slots[0]._replace(refresh=slots[1]), ids

    def _account(self, metrics: dict[str, np.ndarray], cohorts: Cohorts, seconds: float) -> pa.Table:
        rounds, members = len(metrics["loss"]), self.plan.cohort
        total = self.algorithm.cost()
        phases, bytes_up = 1, self.one_round.up_bytes(self.start)
        if cohorts.refresh is not None:
            phases, bytes_up = 2, bytes_up + tree.nbytes(self.start.ups[0])
        columns = {
            "round": np.arange(self.round, self.round + rounds),
            **metrics,
            "gradients": np.full(rounds, round(members * total.gradients), np.int64),
            "products": np.full(rounds, round(members * total.products), np.int64),
            "samples": np.rint(self.samples(cohorts, rounds)).astype(np.int64),
            "bytes_up": np.full(rounds, members * bytes_up, np.int64),
            "bytes_down": np.full(rounds, phases * members * self.one_round.down_bytes(self.start), np.int64),
            "seconds": np.full(rounds, seconds),
        }
        return pa.table(columns)

    def samples(self, cohorts: Cohorts, rounds: int) -> np.ndarray:
        """The samples drawn in each of the first ``rounds`` rounds, by clients that refresh their memories too."""
        total = self.algorithm.cost()
        if cohorts.refresh is None:
            return self._samples(total, cohorts, rounds)
        assert isinstance(self.algorithm, RefreshingAlgorithm)
        refresh = self.algorithm.refresh_cost()
        work = self._samples(total.without(refresh), cohorts, rounds)
        return work + self._samples(refresh, cohorts.refresh, rounds)

    def _samples(self, cost: Cost, cohorts: Cohorts, rounds: int) -> np.ndarray:
        """The samples that a cohort draws in each round."""
        if FULL not in cost.batches:
            return np.full(rounds, self.plan.cohort * cost.samples(0))
        assert self.federation.counts is not None
        counts = self.federation.counts["train"][np.asarray(cohorts.clients)[:rounds, : self.plan.cohort]]
        return cost.samples(0) * self.plan.cohort + cost.batches[FULL] * counts.sum(axis=1)


def reported_type(column: jax.Array) -> Any:
    """As what type a metric is reported."""
    return column.dtype if column.dtype in (jnp.float32, jnp.float64) else jnp.float32


def owned(leaf: Any) -> jax.Array:
    """A copy, since a chunk is given the state's buffers, of a type that is not weak, since a chunk returns none."""
    array = jnp.array(leaf, copy=True)
    return jax.lax.convert_element_type(array, array.dtype)


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
