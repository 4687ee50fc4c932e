"""Training one run, and what comes out of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any, Literal, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
from jax import Array

from headstart.core import Algorithm, Params, Round, Size, Weighting
from headstart.data import Federation
from headstart.errors import Diverged, UsageError
from headstart.hosts import crew
from headstart.problems import Problem
from headstart.simulate.callbacks import Callback, Run, watched
from headstart.simulate.drive import drive
from headstart.simulate.evaluate import Evaluation, keeping, kept_round, summarize
from headstart.simulate.hosted.simulation import HostedSimulation
from headstart.simulate.hosted.together import HostedJournal, Together
from headstart.simulate.identity import Identity, data_digest, digest
from headstart.simulate.journal import Journal, Unrecorded
from headstart.simulate.rounds import Backend, RunState
from headstart.simulate.simulation import Simulation
from headstart.wire import Wire

__all__ = ["Diverging", "Result", "Trainable", "identity_of", "train", "train_run"]

Diverging = Literal["refuse", "stop"]
"""Training that diverges is an error, or stops where it last was finite."""


class Trainable(Run, Protocol):
    """One federation in training, whoever drives its rounds."""

    algorithm: Algorithm
    """As it works on the problem."""
    evaluation_key: Array

    @property
    def federation(self) -> Federation:
        """Who the clients are."""

    @property
    def one_round(self) -> Round:
        """The round as every driver has it."""

    def client_states(self, ids: np.ndarray) -> Any:
        """The method's states of some clients, stacked."""

    def return_to(self, round_: int, state: RunState) -> None:
        """Go back to the model of an earlier round."""


@dataclass(frozen=True)
class Result:
    """What training leaves."""

    server: Any
    """The server's final state."""
    clients: Any
    """Every training client's final state (leading axis); ``()`` where clients keep nothing, or keep it on disk."""
    history: pa.Table
    """One row per round: metrics, gradients, Hessian-vector products, samples, bytes up and down, seconds."""
    table: pa.Table
    """One row per round evaluated, client and number of adaptation steps."""
    summary: pa.Table
    """The same over clients: mean, std, worst10, min, max."""
    rounds: int
    """Rounds done."""
    stopped: str | None
    """Why a callback ended the run before its last round; ``None`` if none did."""
    _simulation: Trainable
    _evaluation: Evaluation
    diverged: str | None = None
    """How training diverged, where it was asked to end there rather than with an error."""

    @property
    def params(self) -> Params:
        """The shared model."""
        return self.server.params

    @property
    def sent(self) -> Any:
        """What the server sends to a client that adapts now."""
        sim = self._simulation
        return sim.algorithm.broadcast(sim.one_round.of_method(self.server), sim.evaluation_key)

    def final(self, metric: str, steps: int, group: str = "all") -> dict[str, Any]:
        """The summary of one metric in the last round, or in the one that was kept."""
        kept = kept_round(self.summary)
        rows = self._rows(metric, steps, group)
        return next((row for row in reversed(rows) if row["round"] == kept), rows[-1])

    def best(self, metric: str, steps: int, group: str = "all") -> dict[str, Any]:
        """The summary of the round with the best mean."""
        rows, better = self._rows(metric, steps, group), self._simulation.problem.metric(metric).better
        return reduce(lambda best, row: row if better(row["mean"], than=best["mean"]) else best, rows)

    def personalize(self, client: int | str, steps: int = 1, batch_size: Size | None = None) -> Params:
        """A client's own model: the shared one adapted on the client's support data, as in evaluations.

        ``batch_size`` is that of the evaluations unless given.
        """
        sim, evaluation = self._simulation, self._evaluation
        algorithm = evaluation.adapting(sim.algorithm)
        index = _client_index(sim.federation, client)
        own = jax.tree.map(lambda rows: rows[0], sim.client_states(np.array([index])))
        key = sim.evaluation_key
        return algorithm.personalize(
            sim.problem.objective(),
            algorithm.broadcast(sim.one_round.of_method(self.server), key),
            own,
            sim.problem.view(sim.federation.clients.view("support", jnp.asarray(index))),
            jax.random.fold_in(key, index),
            steps,
            evaluation.batch_size if batch_size is None else batch_size,
        )

    def with_model_of(self, round_: int, state: RunState, evaluation: Evaluation | None) -> "Result":
        """The result with the model of an earlier round, by which some more clients are evaluated.

        What is in training goes back to that round, too.
        """
        sim, table = self._simulation, self.table
        sim.return_to(round_, state)
        if evaluation is not None and evaluation.clients(sim.federation.tasks or sim.federation).size:
            table = pa.concat_tables([table, sim.evaluate(evaluation)])
        summary = keeping(summarize(table, sim.problem.metrics), round_)
        return replace(self, server=sim.state.server, clients=sim.state.clients, table=table, summary=summary)

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
    backend: Backend = "auto",
    devices: int | None = None,
    at_once: int | None = None,
    chunk: int | None = None,
    memory: str | Path | None = None,
    memory_limit: str | int | None = None,
    wire: Wire | None = None,
    journal: Journal | None = None,
    callbacks: Sequence[Callback] = (),
    diverging: Diverging = "refuse",
) -> Result:
    """Train for ``rounds`` rounds and evaluate every client before and after it adapts.

    ``cohort`` is a share in (0, 1] (``1.0`` is everyone) or a number of clients. ``params`` starts from given
    parameters instead of fresh ones. A cohort is computed on all cores, unless ``backend`` or ``devices`` say otherwise
    or its work is too small to be divided; numbers are the same to rounding. ``chunk`` fixes how many rounds run as one
    program between checkpoints; left out, one round at first and then about a second's worth. ``memory`` names a folder
    to keep clients' states in, where they would not fit in RAM. ``memory_limit``, such as ``"4GB"``, is what a device
    may use; how many clients are computed at once and how long chunks are follow from it. ``wire`` is what updates go
    through on their way to the server. ``journal`` is told all that happens, and brings a run back that was stopped.
    ``callbacks`` watch the run and may stop it. Training that is ``diverging`` is an error, or stops where it last was
    finite.

    >>> import headstart as hs
    >>> federation = hs.data.sine(clients=5, held_out=1)
    >>> problem = hs.Regression(hs.MLP(inputs=1, outputs=1, hidden=(8,)))
    >>> algorithm = hs.per_fedavg(batch_size=10, inner_lr=0.01)
    >>> result = hs.train(algorithm, problem, federation, rounds=2, evaluation=hs.Evaluation(batch_size=10))
    >>> result.history.num_rows, sorted(set(result.table["steps"].to_pylist()))
    (2, [0, 1])
    """
    evaluation = evaluation or Evaluation()
    identity: Identity = {}
    if journal is not None:
        identity = identity_of(algorithm, problem, federation, cohort, weighting, seed, params, wire)
    joined = crew()
    if joined is None:
        alone = Simulation(
            algorithm, problem, federation, cohort=cohort, weighting=weighting, seed=seed, params=params,
            backend=backend, devices=devices, at_once=at_once, memory=memory, memory_limit=memory_limit, wire=wire,
        )  # fmt: skip
        return train_run(
            alone, rounds=rounds, evaluation=evaluation, journal=journal, identity=identity, chunk=chunk,
            callbacks=callbacks, diverging=diverging,
        )  # fmt: skip
    _refuse_on_hosts(backend, memory)
    with joined.blamed(jax.errors.JaxRuntimeError):
        hosted = HostedSimulation(
            joined, algorithm, problem, federation, cohort=cohort, weighting=weighting, seed=seed, params=params,
            devices=devices, at_once=at_once, memory_limit=memory_limit, wire=wire,
        )  # fmt: skip
        return train_run(
            hosted, rounds=rounds, evaluation=evaluation,
            journal=journal if isinstance(journal, HostedJournal) else HostedJournal(joined, journal),
            identity=identity, chunk=chunk, callbacks=[Together(joined, callbacks)], diverging=diverging,
        )  # fmt: skip


def _refuse_on_hosts(backend: Backend, memory: str | Path | None) -> None:
    if backend == "loop":
        raise UsageError("backend = 'loop' runs in one process, not on several hosts.", "Leave the hosts out.")
    if memory is not None:
        raise UsageError(
            "Clients' memories cannot be kept on disk by several hosts.",
            "Set train.memory = 'ram': every host keeps those of its own clients.",
        )


def identity_of(
    algorithm: Algorithm,
    problem: Problem,
    federation: Federation,
    cohort: float | int,
    weighting: Weighting,
    seed: int,
    params: Params | None,
    wire: Wire | None,
) -> Identity:
    """What decides a run.

    Not how long or on what it runs, nor when it is evaluated: a run may be made longer, or go on elsewhere.
    """
    decisive = {
        "algorithm": algorithm, "problem": problem, "seed": seed, "cohort": cohort, "weighting": weighting,
        "params": params, "wire": wire,
    }  # fmt: skip
    return {name: digest(part) for name, part in decisive.items()} | {"data": data_digest(federation)}


def train_run(
    run: Trainable,
    *,
    rounds: int,
    evaluation: Evaluation,
    journal: Journal | None,
    identity: Identity,
    chunk: int | None = None,
    callbacks: Sequence[Callback] = (),
    diverging: Diverging = "refuse",
) -> Result:
    """Drive a run until ``rounds`` rounds are done, and gather what it leaves."""
    if journal is None:
        journal = Unrecorded()
    journal.identify(identity)
    with watched(callbacks):
        stopped, diverged = None, None
        try:
            stopped = drive(
                run, rounds=rounds, evaluation=evaluation, journal=journal, chunk=chunk, callbacks=callbacks,
                check=refuse_divergence,
            )  # fmt: skip
        except Diverged as error:
            if diverging == "refuse":
                raise
            diverged = str(error).splitlines()[0]
        history, evaluations = journal.tables()
        assert evaluations is not None
        result = Result(
            server=run.state.server,
            clients=run.state.clients,
            history=history if history is not None else pa.table({}),
            table=evaluations,
            summary=summarize(evaluations, run.problem.metrics),
            rounds=run.round if diverged is None else 0 if history is None else len(history),
            stopped=stopped,
            _simulation=run,
            _evaluation=evaluation,
            diverged=diverged,
        )
        for callback in callbacks:
            callback.on_end(result)
    return result


def refuse_divergence(run: Run, table: pa.Table) -> None:
    """Raise if a chunk of rounds has led to a loss or to parameters that are not finite."""
    bad = np.flatnonzero(~np.isfinite(table["loss"].to_numpy()))
    if bad.size:
        what = f"The training loss is not finite from round {table['round'][int(bad[0])].as_py()} on"
    elif not all_finite(run.state.server.params):
        what = f"The model's parameters are not finite after round {table['round'][-1].as_py()}"
    else:
        return
    raise Diverged(f"{what}.\n  Lower outer_lr or inner_lr; backend = 'loop' names the client where it begins.")


@jax.jit
def all_finite(params: Params) -> Array:
    """Whether no number of a pytree is infinite or NaN."""
    return jax.tree.reduce(lambda finite, leaf: finite & jnp.all(jnp.isfinite(leaf)), params, jnp.asarray(True))


def _client_index(federation: Federation, client: int | str) -> int:
    if isinstance(client, str):
        names = [federation.name(i) for i in range(federation.total)]
        if client not in names:
            raise UsageError(f"There is no client {client!r}.", "See the client column of result.table.")
        return names.index(client)
    if not 0 <= client < federation.total:
        raise UsageError(f"There is no client {client}.", f"Clients are numbered 0 to {federation.total - 1}.")
    return client
