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
    Algorithm,
    Params,
    Purpose,
    RefreshingAlgorithm,
    Weighting,
    checks,
    cohort_size,
    run_key,
)
from headstart.core.batch import FULL
from headstart.data import Federation
from headstart.errors import UsageError, did_you_mean
from headstart.problems import Problem
from headstart.simulate.evaluate import Evaluation, evaluate
from headstart.simulate.feed import Feed, spread
from headstart.simulate.loop import run_loop
from headstart.simulate.rounds import (
    Backend,
    Cohorts,
    Keys,
    RoundPlan,
    RunState,
    clients_at_once,
    run_chunk,
)
from headstart.simulate.store import DiskStore, compact

__all__ = ["LARGEST_CHUNK", "Simulation", "check"]

LARGEST_CHUNK = 512
CHUNK_BYTES = 2**28
"""How much of the clients' memories a chunk may bring into RAM when they are kept on disk."""


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
    if slots < most or drawn > fewest:
        raise UsageError(
            f"{name} is set to {slots} tasks a client and {drawn} a step, but clients have {fewest} to {most} tasks.",
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
    ):
        checks.whole("seed", seed, 0)
        self.seed = seed
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
        self.keys = Keys.of(seed)
        self._feed = Feed(federation.clients, self.plan, self.keys)
        self.evaluation_key = run_key(seed, Purpose.EVALUATE)
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
        clients, cohorts = self._feed.chunk(self.round, rounds, capacity)
        self._feed.expect(self.round + rounds, rounds, capacity)
        present = np.zeros(0, np.int64)
        if self.store is not None:
            cohorts, present = self._load(self.store, cohorts, rounds)
        if self.backend == "loop":
            self.state, metrics = run_loop(
                self.problem, self.plan, self.algorithm, clients, self.state, self.keys,
                cohorts, self.round, rounds, self.federation.name,
            )  # fmt: skip
        else:
            self.state = spread(self.state, self.plan.devices)
            self.state, metrics = run_chunk(
                self.problem, self.plan, self.algorithm, clients, self.state, self.keys,
                cohorts, jnp.asarray(self.round, jnp.int32), jnp.asarray(rounds, jnp.int32),
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
            self.evaluation_key,
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
        """How many rounds a chunk may have: with memories or samples on disk, as many as have room in RAM."""
        members = self.plan.members
        rounds = self.federation.clients.most_at_once(["train"], LARGEST_CHUNK * members) // members
        if self.store is not None:
            rounds = min(rounds, CHUNK_BYTES // (members * self.store.row_bytes))
        return max(1, rounds)

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
        self.state = RunState(self.state.server, jax.tree.map(_owned, rows))
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


def _owned(leaf: Any) -> jax.Array:
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
