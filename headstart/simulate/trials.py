"""Settings of one method on trial: trained a few at a time by one program, and dropped as they fall behind."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from headstart.core import Algorithm, Keys, Size, Weighting, Wired, checks
from headstart.data import Clients, Federation, MappedClients
from headstart.errors import UsageError
from headstart.problems import Problem
from headstart.simulate.drive import Pace
from headstart.simulate.evaluate import score_clients
from headstart.simulate.members import Member, method_states, over_members, stack
from headstart.simulate.rounds import Cohorts, RoundPlan, RunState, draw_cohorts, run_chunk
from headstart.simulate.setting import owned
from headstart.simulate.simulation import Simulation
from headstart.wire import Wire

__all__ = ["Trials"]

TOGETHER = 2
"""How many settings of a small model are trained together; of a large one it is one on each device. More are no quicker
on a CPU, take longer to compile, and would be trained in vain where only a few are left."""
CLIENTS_TOGETHER = 16


class Trials:
    """Algorithms that differ in numbers only, each with a federation of its own in training.

    All begin as ``train`` with this seed does. One that diverges goes on with NaN and does not disturb the others.
    """

    def __init__(
        self,
        algorithms: Sequence[Algorithm],
        problem: Problem,
        federation: Federation,
        *,
        seed: int = 0,
        cohort: float | int = 1.0,
        weighting: Weighting = "uniform",
        wire: Wire | None = None,
        devices: int | None = None,
        longest: int = 256,
    ):
        checks.whole("the number of algorithms", len(algorithms), 1)
        if isinstance(federation.clients, MappedClients):
            raise UsageError("Settings cannot be tried on samples that stay on disk.", "Take some of the clients.")
        self.problem, self.federation = problem, federation
        self.tested = federation.tasks or federation
        """The clients that are evaluated: single tasks, where clients have several."""
        first = Simulation(algorithms[0], problem, federation, cohort=cohort, weighting=weighting, seed=seed, wire=wire)
        self._plan, self._wire = first.plan, first.wire
        self._longest = longest
        self._keys, self._evaluation_key = first.keys, first.evaluation_key
        self._begin = partial(_trial, first)
        trials = [self._begin(algorithm) for algorithm in algorithms]
        self.number = len(trials)
        self.rounds = np.zeros(self.number, int)
        """How far each has come."""
        available = devices or jax.local_device_count()  # of several hosts, the first one searches
        small = self._plan.at_once is None or self._plan.at_once > 1
        width = min(TOGETHER, self.number) if small else 1
        self.together = -(-width // available) * available if self.number > 1 else 1
        """How many one program trains; it costs as much for fewer."""
        self._devices = min(available, self.together)
        self._together = TOGETHER if small else 1
        self._trials = jax.tree.map(lambda leaf: np.array(leaf), stack(trials))
        self._advance: Any = None
        self._evaluates: dict[Any, Any] = {}

    def advance(self, which: Sequence[int], rounds: int, told: Callable[[int], None] = lambda done: None) -> None:
        """Train some of them, which have come equally far, for more rounds.

        ``told`` hears after every stretch how many rounds of a single setting that was, and may raise.
        """
        if self._advance is None:
            one = partial(_state_after, self.problem, self._plan, self._wire)
            self._advance = over_members(one, self._together, self._devices)
        for block, places in self._blocks(which):
            pace = Pace(None, self._longest)
            first, end = int(self.rounds[block[0]]), int(self.rounds[block[0]]) + rounds
            while first < end:
                length = min(pace.length, end - first)
                began = time.perf_counter()
                # All have the seed of the run that is to come, and so its cohorts.
                cohorts = draw_cohorts(self._plan, self._keys, jnp.int32(first), self._longest)
                state = self._advance(
                    self._at(places), self._keys, self.federation.clients, cohorts, jnp.int32(first), jnp.int32(length)
                )
                self._put(block, state)
                first += length
                pace.took(length, time.perf_counter() - began)
                told(length * len(block))
            self.rounds[block] = end

    def restart(self, place: int, algorithm: Algorithm) -> None:
        """Put another algorithm in the place of one, before its first round."""

        def put(all_: np.ndarray, new: Array) -> np.ndarray:
            all_[place] = np.asarray(new)
            return all_

        jax.tree.map(put, self._trials, self._begin(algorithm))
        self.rounds[place] = 0

    def scores(
        self,
        which: Sequence[int],
        *,
        steps: tuple[int, ...],
        ids: np.ndarray,
        batch_size: Size,
        sizes: np.ndarray | None = None,
        told: Callable[[], None] = lambda: None,
    ) -> dict[str, np.ndarray]:
        """Every metric of some of them as an array over (setting, step size, number of steps, client).

        ``sizes`` are step sizes of adaptation, one row per setting; left out, each adapts by its own alone.
        """
        own = np.zeros((len(which), 1), np.float32) if sizes is None else np.asarray(sizes, np.float32)
        # Always so many clients, however many there are, so that one program serves all.
        width = -(-len(ids) // CLIENTS_TOGETHER) * CLIENTS_TOGETHER
        padded = np.resize(ids, width).astype(np.int32).reshape(-1, CLIENTS_TOGETHER)
        position = {int(trial): place for place, trial in enumerate(which)}
        found = []
        for block, places in self._blocks(which):
            trials, rows = self._at(places), own[[position[int(trial)] for trial in places]]
            by_size = []
            for size in rows.T:
                run = (trials, None if sizes is None else size)
                by_steps = [self._score(run, n, batch_size, padded, len(block), len(ids)) for n in steps]
                by_size.append({name: np.stack([each[name] for each in by_steps], 1) for name in by_steps[0]})
                told()
            found.append({name: np.stack([each[name] for each in by_size], 1) for name in by_size[0]})
        return {name: np.concatenate([part[name] for part in found]) for name in found[0]}

    def _score(
        self,
        run: tuple["_Trial", np.ndarray | None],
        steps: int,
        batch_size: Size,
        ids: np.ndarray,
        real: int,
        clients: int,
    ) -> dict[str, np.ndarray]:
        """Metrics over (setting, client) after some number of steps."""
        traces = run[0].algorithm.traces_steps
        how = (batch_size, run[1] is None, None if traces else steps)
        if how not in self._evaluates:
            known = 0 if self.federation.tasks else self.federation.trained
            one = partial(_score, self.problem, self._wire, None if traces else steps, batch_size, known)
            self._evaluates[how] = over_members(one, self._together, self._devices)
        evaluate, clients_data = self._evaluates[how], self.tested.clients
        found = [
            evaluate(run, self._keys, self._evaluation_key, clients_data, jnp.asarray(some), jnp.int32(steps))
            for some in ids
        ]
        return {
            name: np.concatenate([np.asarray(part[name], np.float64) for part in found], axis=1)[:real, :clients]
            for name in found[0]
        }

    def _blocks(self, which: Sequence[int]) -> list[tuple[np.ndarray, np.ndarray]]:
        """Settings a few at a time, and the same filled up to the width of the program."""
        chosen = np.asarray(which, int)
        blocks = [chosen[start : start + self.together] for start in range(0, len(chosen), self.together)]
        return [(block, np.resize(block, self.together)) for block in blocks]

    def _at(self, places: np.ndarray) -> "_Trial":
        trial: _Trial = jax.tree.map(lambda leaf: leaf[places], self._trials)
        return trial

    def _put(self, block: np.ndarray, state: RunState) -> None:
        """Keep the states of a block; what only filled it up is dropped."""

        def put(all_: np.ndarray, new: Array) -> np.ndarray:
            all_[block] = np.asarray(new)[: len(block)]
            return all_

        jax.tree.map(put, self._trials.state, state)


class _Trial(NamedTuple):
    """What differs between settings, stacked along a leading axis, in the memory of the host: a program that is given
    its own results again, which lie where it put them, would be compiled a second time."""

    algorithm: Algorithm
    state: RunState
    newcomer: Any
    """The method's state of a client that has never taken part."""


def _trial(first: Simulation, algorithm: Algorithm) -> _Trial:
    """A setting before its first round; what depends on shapes alone is the first one's."""
    params = first.one_round.of_method(first.start.server).params
    samples = first.problem.view(first.federation.clients.shapes())
    algorithm = algorithm.prepare(first.problem.objective(), params, samples)
    server, client = algorithm.init_server(params), algorithm.init_client(params)
    own = client
    if first.wire is not None:
        server = Wired(server, first.start.server.wire)
        client = Wired(client, first.start.client.wire)
    trained = first.federation.trained
    everyone = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (trained, *leaf.shape)), client)
    return _Trial(algorithm, jax.tree.map(owned, RunState(server, everyone)), own)


def _state_after(
    problem: Problem, plan: RoundPlan, wire: Wire | None, trial: _Trial, keys: Keys, clients: Clients,
    cohorts: Cohorts, first: Array, rounds: Array,
) -> RunState:  # fmt: skip
    return run_chunk(problem, plan, trial.algorithm, wire, clients, trial.state, keys, cohorts, first, rounds)[0]


def _score(
    problem: Problem, wire: Wire | None, steps: int | None, batch_size: Size, known: int,
    run: tuple[_Trial, Array | None], keys: Keys, key: Array, clients: Clients, ids: Array, traced_steps: Array,
) -> dict[str, Array]:  # fmt: skip
    """One setting's metrics of some clients, who adapt by steps of a given size; ``steps`` of a method that cannot
    trace them."""
    trial, size = run
    member = Member(trial.algorithm, trial.state, keys, key, trial.newcomer)
    server, states = method_states(problem, wire, known, member, ids)
    algorithm = trial.algorithm if size is None else trial.algorithm.adapting(size)
    number = cast(int, traced_steps) if steps is None else steps
    return score_clients(problem, (number,), batch_size, algorithm, clients, server, states, key, ids, ids)[0]
