"""A federation in training on several hosts: what ``Simulation`` is on one."""

import json
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa

from headstart.core import Algorithm, Params, Round, Weighting
from headstart.data import Clients, Federation, share_of, shared_clients
from headstart.devices import release_compiled_programs
from headstart.errors import UsageError
from headstart.hosts import Crew
from headstart.problems import Problem
from headstart.simulate.evaluate import Evaluation, score_table, scores_of
from headstart.simulate.fitting import Bound
from headstart.simulate.hosted.chunk import Room, run_hosted_chunk
from headstart.simulate.hosted.placing import beside, common, here, hosts_mesh, of_equal_shapes, owned, pack, unpack
from headstart.simulate.identity import data_digest
from headstart.simulate.rounds import Cohorts, RoundPlan, RunState, draw_cohorts
from headstart.simulate.setting import Setting, reported_type
from headstart.simulate.simulation import LARGEST_CHUNK
from headstart.simulate.store import DiskStore
from headstart.wire import Wire

__all__ = ["HostedSimulation", "living_on"]

NOBODY = np.iinfo(np.int32).max
"""A slot that no client has."""


class HostedSimulation:
    """A federation in training on the hosts of a crew, each with a share of the clients.

    Client i lives on host i modulo the number of hosts, with its samples and its state. All hosts draw the same cohorts
    and have the same server; everything here is asked of all of them in the same order.
    """

    store: DiskStore | None = None
    """Memories stay in RAM, each at its client's host."""

    def __init__(
        self,
        crew: Crew,
        algorithm: Algorithm,
        problem: Problem,
        federation: Federation,
        *,
        cohort: float | int = 1.0,
        weighting: Weighting = "uniform",
        seed: int = 0,
        params: Params | None = None,
        devices: int | None = None,
        at_once: int | None = None,
        memory_limit: str | int | None = None,
        wire: Wire | None = None,
    ):
        release_compiled_programs()
        available = int(min(crew.numbers(jax.local_device_count())))
        if devices is not None and devices > available:
            raise UsageError(
                f"{devices} devices are asked for on every host, but one of them has {available}.", "Ask for fewer."
            )
        self._crew = crew
        bound = Bound.of(memory_limit)
        self._chunk_bytes = None if bound is None else bound.chunk
        self.federation = share_of(federation, crew.index, crew.count, data_digest)
        self.problem = problem
        self.setting = Setting(
            algorithm, problem, self.federation, cohort=cohort, weighting=weighting, seed=seed, params=params,
            backend="sharded", devices=devices or available, at_once=at_once, wire=wire, hosts=crew.count,
        )  # fmt: skip
        self.plan, self.algorithm = self.setting.plan, self.setting.algorithm
        self.evaluation_key = self.setting.evaluation_key
        self.mesh = hosts_mesh(crew, self.plan.devices)
        self._room = Room.of(self.plan)
        self._keys = common(self.mesh, [jax.random.key_data(key) for key in self.setting.keys])
        self._resident = self._placed_clients()
        self.round = 0
        own = self.setting.start.client
        rows = -(-federation.trained // crew.count) if jax.tree.leaves(own) else 0
        states = jax.tree.map(lambda leaf: np.broadcast_to(np.asarray(leaf), (rows, *leaf.shape)), own)
        self._placed = owned(RunState(common(self.mesh, self.setting.start.server), beside(self.mesh, states)))
        self._whole: RunState | None = None

    @property
    def one_round(self) -> Round:
        """The round as every driver has it."""
        return self.setting.one_round

    @property
    def state(self) -> RunState:
        """The server's state, and at the first host every client's: those of the other hosts have been sent there."""
        if self._whole is None:
            own = jax.tree.map(lambda leaf: np.asarray(leaf[0]), here(self._placed.clients))
            server = jax.tree.map(np.array, here(self._placed.server))
            if jax.tree.leaves(own):
                parts = [unpack(each, own) for each in self._crew.gather(pack(own))]
                own = jax.tree.map(lambda *rows: _woven(rows, self.plan.clients), *parts) if parts else own
            self._whole = RunState(server, own)
        return self._whole

    @state.setter
    def state(self, state: RunState) -> None:
        """Take the state that the first host has: everyone the server's, and each host its own clients'."""
        self._whole = None
        parts = [pack(state.server)] * self._crew.count if self._crew.leads else None
        server = unpack(self._crew.hand_out(parts), self.setting.start.server)
        like = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), self._placed.clients)
        if self._crew.leads:
            parts = [
                pack(jax.tree.map(lambda rows, host=host: _share(rows, host, self._crew.count), state.clients))
                for host in range(self._crew.count)
            ]
        own = unpack(self._crew.hand_out(parts), like)
        self._placed = owned(RunState(common(self.mesh, server), beside(self.mesh, own)))

    def advance(self, rounds: int, capacity: int | None = None) -> pa.Table:
        """Run ``rounds`` rounds and return a row for each: metrics, cost, bytes and seconds, the same on all hosts."""
        capacity = max(rounds, capacity or 0)
        began = time.perf_counter()
        drawn = jax.device_get(draw_cohorts(self.plan, self.setting.keys, jnp.asarray(self.round, jnp.int32), capacity))
        clients, own = self._chunk(drawn, rounds)
        self._placed, metrics = run_hosted_chunk(
            self.problem, self.plan, self.mesh, _of_no_device(self.algorithm), _of_no_device(self.setting.wire),
            clients, self._placed, self._keys, beside(self.mesh, own), np.int32(self.round), np.int32(rounds),
        )  # fmt: skip
        self._whole = None
        values = {
            name: np.asarray(column[:rounds].astype(reported_type(column))) for name, column in here(metrics).items()
        }
        # Chunks must be equally long everywhere, and how long they are follows from how long they take.
        seconds = max(self._crew.numbers((time.perf_counter() - began) / rounds))
        table = self.setting.account(self.round, values, drawn, seconds)
        self.round += rounds
        return table

    def evaluate(self, evaluation: Evaluation) -> pa.Table:
        """Every client's scores now, each found where the client lives."""
        tested = self.federation.tasks or self.federation
        ids = evaluation.clients(tested)
        own = ids[ids % self._crew.count == self._crew.index]
        server = self.one_round.of_method(here(self._placed.server))
        states = self.setting.new_states if self.federation.tasks else self.client_states
        scores: list[dict[str, np.ndarray]] = []
        if own.size:
            scores = scores_of(
                evaluation, self.problem, self.algorithm, tested, own, server, states, self.evaluation_key,
                self._chunk_bytes,
            )  # fmt: skip
        names = max((json.loads(each) for each in self._crew.exchange(_names(scores))), key=len)
        shape = (len(evaluation.steps), len(names))
        found = [[by_steps[name] for name in names] for by_steps in scores]
        everyone = np.zeros((*shape, len(ids)))
        for host, packed in enumerate(self._crew.exchange(np.array(found, np.float64).tobytes())):
            everyone[..., ids % self._crew.count == host] = np.frombuffer(packed, np.float64).reshape(*shape, -1)
        joined = [dict(zip(names, by_steps, strict=True)) for by_steps in everyone]
        return score_table(evaluation, tested, ids, self.round, joined)

    def client_states(self, ids: np.ndarray) -> Any:
        """The method's states of some clients who live here, stacked; those that never train have new ones."""
        fresh = self.setting.new_states(ids)
        if not jax.tree.leaves(fresh):
            return fresh
        rows = self.one_round.of_method(jax.tree.map(lambda leaf: leaf[0], here(self._placed.clients)))

        def choose(new: Any, all_: Any) -> Any:
            old = all_[np.minimum(ids // self._crew.count, all_.shape[0] - 1)]
            return jnp.where((ids < self.federation.trained).reshape(-1, *[1] * (old.ndim - 1)), old, new)

        return jax.tree.map(choose, fresh, rows)

    def return_to(self, round_: int, state: RunState) -> None:
        """Go back to the state of an earlier round, which the first host has."""
        self.state, self.round = state, round_

    def largest_chunk(self) -> int:
        """How many rounds a chunk may have, on every host."""
        members = self._room.members * (2 if self.plan.refreshes else 1)
        most = self.federation.clients.most_at_once(["train"], LARGEST_CHUNK * members, self._chunk_bytes)
        return max(1, most // members)

    def _placed_clients(self) -> Clients | None:
        """The clients' data where they stay; of samples on disk, every chunk brings its own."""
        shared = shared_clients(self.federation)
        assert shared is not None
        if not isinstance(shared.own, Clients):
            return None
        keyless = jax.tree.map(_without_key, shared.own)
        return beside(self.mesh, of_equal_shapes(self._crew, keyless))

    def _chunk(self, drawn: Cohorts, rounds: int) -> tuple[Clients, Cohorts]:
        """The clients' data and those members of each round's cohorts who live here."""
        phases = [living_on(self._crew.index, self.plan, each) for each in (drawn, drawn.refresh) if each is not None]
        shared = shared_clients(self.federation)
        assert shared is not None
        if self._resident is not None:
            clients = self._resident
            where = [shared.places(np.asarray(c.places)).astype(np.int32) for c in phases]
            placed = [c._replace(places=p) for c, p in zip(phases, where, strict=True)]  # type: ignore[arg-type]
        else:
            room = min(len(phases[0].clients) * self._room.members * len(phases), self.plan.clients)
            members = np.stack([c.places for c in phases])
            members[:, rounds:] = members[0, 0, 0]  # rounds that are not computed need no data
            gathered, places = shared.gather(["train"], members, room)
            clients = beside(self.mesh, gathered)
            placed = [c._replace(places=p.astype(np.int32)) for c, p in zip(phases, places, strict=True)]
        return clients, placed[0]._replace(refresh=placed[1] if placed[1:] else None)


def living_on(host: int, plan: RoundPlan, drawn: Cohorts) -> Cohorts:
    """Of every round's members those of one host, first, and what fills its room up behind them.

    The places are their numbers, and of what fills up that of a client who lives there.
    """
    nobody, cohorts = plan.clients, np.asarray(drawn.clients)
    mine = np.where(cohorts % plan.hosts == host, cohorts, nobody)
    order = np.argsort(mine == nobody, axis=1, kind="stable")
    mine = np.take_along_axis(mine, order, axis=1)
    room = np.full((len(mine), Room.of(plan).members), nobody, np.int32)
    width = min(room.shape[1], mine.shape[1])
    room[:, :width] = mine[:, :width]
    lives = room < nobody
    return Cohorts(
        clients=room,  # type: ignore[arg-type]
        slots=np.where(lives, room // plan.hosts, NOBODY).astype(np.int32),  # type: ignore[arg-type]
        places=np.where(lives, room, min(host, nobody - 1)).astype(np.int32),  # type: ignore[arg-type]
    )


def _names(scores: list[dict[str, np.ndarray]]) -> bytes:
    return json.dumps(list(scores[0]) if scores else []).encode()


def _of_no_device(tree: Any) -> Any:
    """Numbers that a program of all hosts takes: arrays would lie on a device of one of them."""
    return jax.tree.map(lambda leaf: np.asarray(leaf) if isinstance(leaf, jax.Array) else leaf, tree)


def _woven(parts: tuple[np.ndarray, ...], clients: int) -> np.ndarray:
    """Rows of all hosts in the order of the clients."""
    woven = np.stack(parts, axis=1)
    return woven.reshape(-1, *woven.shape[2:])[:clients]


def _share(rows: Any, host: int, hosts: int) -> np.ndarray:
    """One host's rows of all clients', as many as any host has."""
    most = -(-len(rows) // hosts)
    own = np.asarray(rows)[host::hosts]
    return own if len(own) == most else np.concatenate([own, np.asarray(rows)[-1:]])


def _without_key(leaf: Any) -> Any:
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
