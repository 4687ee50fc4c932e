"""A federation in training: its state, and what moves it."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa

from headstart.core import Algorithm, Params, Round, Weighting, tree
from headstart.data import Federation, MappedClients
from headstart.devices import release_compiled_programs
from headstart.problems import Problem
from headstart.simulate.evaluate import Evaluation, evaluate
from headstart.simulate.feed import Feed, spread
from headstart.simulate.fitting import Bound, largest_fitting, program_bytes
from headstart.simulate.loop import run_loop
from headstart.simulate.rounds import Backend, Cohorts, RunState, draw_cohorts, run_chunk
from headstart.simulate.setting import Setting, owned, reported_type
from headstart.simulate.store import DiskStore, compact
from headstart.wire import Wire

__all__ = ["LARGEST_CHUNK", "Simulation"]

LARGEST_CHUNK = 512
CHUNK_BYTES = 2**28
"""How much of the clients' memories a chunk may bring into RAM when they are kept on disk."""


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
        memory_limit: str | int | None = None,
        wire: Wire | None = None,
    ):
        release_compiled_programs()
        self.setting = Setting(
            algorithm, problem, federation, cohort=cohort, weighting=weighting, seed=seed, params=params,
            backend=backend, devices=devices, at_once=at_once, wire=wire,
        )  # fmt: skip
        self.seed, self.backend, self.plan = seed, self.setting.backend, self.setting.plan
        self.problem, self.federation, self.wire = problem, federation, self.setting.wire
        self.algorithm, self.keys, self.start = self.setting.algorithm, self.setting.keys, self.setting.start
        self.evaluation_key = self.setting.evaluation_key
        self._feed = Feed(federation.clients, self.plan, self.keys)
        own = self.start.client
        self.store = None
        everyone: Any = ()
        if memory is not None and jax.tree.leaves(own):
            self.store = DiskStore(memory, federation.trained, own)
        else:
            everyone = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (federation.trained, *leaf.shape)), own)
        self.round = 0
        self.state = jax.tree.map(owned, RunState(self.start.server, everyone))
        self.bound = Bound.of(memory_limit)
        if self.bound is not None and self.backend != "loop":
            self._fit(self.bound)

    @property
    def one_round(self) -> Round:
        """The round as every driver has it."""
        return self.setting.one_round

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
        table = self.setting.account(self.round, values, cohorts, seconds)
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
            self.setting.new_states if self.federation.tasks else self.client_states,
            self.evaluation_key,
            self.round,
            self._room,
        )

    def client_states(self, ids: np.ndarray) -> Any:
        """The method's states of some clients, stacked; those that never train have new ones."""
        fresh = self.setting.new_states(ids)
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
        rounds = self.federation.clients.most_at_once(["train"], LARGEST_CHUNK * members, self._room) // members
        if self.store is not None:
            rounds = min(rounds, (self._room or CHUNK_BYTES) // (members * self.store.row_bytes))
        return max(1, rounds)

    @property
    def _room(self) -> int | None:
        """How much of the samples, or of clients' memories, may be brought into RAM at once, where that is bounded."""
        return None if self.bound is None else self.bound.chunk

    def _fit(self, bound: Bound) -> None:
        """Compute no more clients at once than the bound on memory allows, by what the compiled program says."""
        capacity, once = self.largest_chunk(), jnp.asarray(0, jnp.int32)
        clients, _ = self._feed.chunk(0, 1, capacity)
        state = spread(self.state, self.plan.devices)
        if self.store is not None:
            rows = capacity * self.plan.members
            own = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((rows, *leaf.shape), leaf.dtype), self.start.client)
            state = RunState(state.server, own)

        def needed(at_once: int) -> int:
            plan = replace(self.plan, at_once=at_once)
            cohorts = jax.eval_shape(lambda keys: draw_cohorts(plan, keys, once, capacity), self.keys)
            program = run_chunk.lower(
                self.problem, plan, self.algorithm, self.wire, clients, state, self.keys, cohorts, once, once
            )
            return program_bytes(program.compile())

        beside = tree.nbytes(clients) if isinstance(self.federation.clients, MappedClients) else 0
        fitting = largest_fitting(bound, self.plan.group, needed, "A round", beside)
        if fitting < self.plan.group:
            self.plan = self.setting.plan = replace(self.plan, at_once=fitting)
            self._feed = Feed(self.federation.clients, self.plan, self.keys)

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
