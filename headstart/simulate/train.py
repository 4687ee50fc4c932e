"""Training: rounds in compiled chunks, evaluations between them, and what comes out."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa

from headstart.core import (
    Algorithm,
    Params,
    Size,
    Weighting,
    checks,
)
from headstart.core.batch import FULL
from headstart.data import Federation
from headstart.errors import Diverged, UsageError
from headstart.problems import Problem
from headstart.simulate.evaluate import Evaluation, summarize
from headstart.simulate.rounds import (
    Backend,
    RunState,
)
from headstart.simulate.simulation import LARGEST_CHUNK, Simulation

__all__ = ["Journal", "Progress", "Result", "train"]

CHUNK_SECONDS = 1.0
"""How long an automatically sized chunk should take: often enough to checkpoint and to show progress."""


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
        key = sim.evaluation_key
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


def _client_index(federation: Federation, client: int | str) -> int:
    if isinstance(client, str):
        names = [federation.name(i) for i in range(federation.total)]
        if client not in names:
            raise UsageError(f"There is no client {client!r}.", "See the client column of result.table.")
        return names.index(client)
    if not 0 <= client < federation.total:
        raise UsageError(f"There is no client {client}.", f"Clients are numbered 0 to {federation.total - 1}.")
    return client
