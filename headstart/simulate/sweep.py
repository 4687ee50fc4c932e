"""A grid of hyperparameters, each point with several seeds, trained as one program."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from jax import Array

from headstart.core import Algorithm, Params, Weighting
from headstart.data import Federation
from headstart.errors import UsageError
from headstart.problems import Problem
from headstart.simulate.callbacks import Callback, watched
from headstart.simulate.drive import drive
from headstart.simulate.ensemble import MEASURED, Ensemble
from headstart.simulate.evaluate import Evaluation, in_group, validating
from headstart.simulate.identity import data_digest, digest
from headstart.simulate.journal import FolderJournal, Unrecorded
from headstart.wire import Wire

__all__ = ["Scores", "Sweep", "sweep"]

NOT_METRICS = ("round", "client", "held_out", "validation", "steps", "run", "algorithm", "seed")


@dataclass(frozen=True)
class Scores:
    """What evaluations of all runs found, as arrays."""

    rounds: np.ndarray
    """The rounds evaluated."""
    clients: np.ndarray
    """The clients' numbers."""
    held_out: np.ndarray
    """Which of them never train."""
    validation: np.ndarray
    """Which of these are for choosing settings."""
    steps: tuple[int, ...]
    values: dict[str, np.ndarray]
    """For every metric an array over (round, run, number of steps, client)."""

    def mean(
        self, metric: str, steps: int | Sequence[int], group: str = "all", clients: tuple[int, int] | None = None
    ) -> np.ndarray:
        """The mean of a metric over clients and numbers of steps: one row per round evaluated, one column per run.

        ``group`` is ``all``, ``trained``, ``held-out``, or of those held out ``validation`` or ``new``; ``clients``
        takes a stretch of that group only.
        """
        wanted = [steps] if isinstance(steps, int) else list(steps)
        missing = [n for n in wanted if n not in self.steps]
        if metric not in self.values or missing:
            raise UsageError(
                f"Nothing was evaluated for metric {metric!r} after {wanted} steps.",
                f"There are {', '.join(self.values)} after {', '.join(map(str, self.steps))} steps.",
            )
        places = np.flatnonzero(in_group(group, self.held_out, self.validation))
        if clients is not None:
            places = places[slice(*clients)]
        if not places.size:
            raise UsageError(f"No client of the group {group!r} was evaluated.", "Evaluate more clients.")
        positions = [self.steps.index(n) for n in wanted]
        return np.asarray(self.values[metric][:, :, positions][..., places].mean(axis=(2, 3)))

    @classmethod
    def of(cls, table: pa.Table, evaluation: Evaluation, tested: Federation, runs: int) -> "Scores":
        """From the rows of one or more evaluations, which come by round, run, number of steps and client."""
        ids = evaluation.clients(tested)
        shape = (-1, runs, len(evaluation.steps), len(ids))
        columns = {
            name: table[name].to_numpy().reshape(shape)
            for name in table.column_names
            if name not in NOT_METRICS and not name.startswith(MEASURED)
        }
        return cls(
            rounds=table["round"].to_numpy().reshape(shape)[:, 0, 0, 0],
            clients=ids,
            held_out=ids >= tested.trained,
            validation=validating(tested, ids),
            steps=evaluation.steps,
            values=columns,
        )


@dataclass(frozen=True)
class Sweep:
    """What a sweep leaves. Runs are numbered: the first algorithm with every seed, then the second, and so on."""

    seeds: tuple[int, ...]
    evaluated: Scores
    """Along the way."""
    final: Scores
    """At the end, by the final evaluation if one was asked for."""
    measured: dict[str, np.ndarray]
    """What ``measure`` found: one row per round evaluated, one column per run."""
    table: pa.Table
    """One row per round evaluated, run, number of steps and client; ``algorithm`` and ``seed`` name the run."""
    loss: np.ndarray
    """The training loss of every run (rows) and round (columns); NaN where a run has diverged."""
    server: Any
    """The servers' final states (leading axis: runs)."""
    samples: np.ndarray
    """Samples that a run, on average, had drawn when it was evaluated."""
    seconds: np.ndarray
    """How long all runs together had trained by then, without compiling and evaluating."""
    stopped: str | None
    """Why a callback ended the sweep before its last round; ``None`` if none did."""
    _problem: Problem

    def scores(self, metric: str, steps: int, group: str = "all", reduce: str = "last") -> np.ndarray:
        """The mean of a metric over clients: one row per algorithm, one column per seed; at the last round or the best.

        ``group`` is as in `Scores.mean`; ``reduce`` is ``last``, ``best`` or ``curve``.
        """
        means = self.evaluated.mean(metric, steps, group).T
        best = np.nanmax if self._problem.metric(metric).higher_is_better else np.nanmin
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
    wire: Wire | None = None,
    evaluation: Evaluation | None = None,
    final: Evaluation | None = None,
    measure: Callable[[Params], dict[str, Array]] | None = None,
    devices: int | None = None,
    memory_limit: str | int | None = None,
    checkpoint: Path | None = None,
    checkpoint_seconds: float = 30.0,
    callbacks: Sequence[Callback] = (),
) -> Sweep:
    """Train every algorithm with every seed, all in one compiled program, and evaluate them together.

    The algorithms must differ in numbers only, such as step sizes and averaging weights: what shapes depend on
    (batch sizes, local steps, curvature) is the same in all. A run is what ``train`` with its algorithm and seed
    does, to rounding; one that diverges goes on with NaN and does not disturb the others. Runs of a small model
    are computed together, of a large one after another, on each of ``devices`` devices, of which each may use
    ``memory_limit`` (``"4GB"``, say).

    ``wire`` is what updates go through on their way to the server. ``final`` is another evaluation for the end, of
    more clients, say. ``measure`` computes numbers from every run's shared model whenever there is an evaluation.
    ``checkpoint`` names a folder, written every ``checkpoint_seconds``, from which a sweep that was stopped goes on,
    and no other; it is removed at the end. ``callbacks`` watch all runs together and may stop them.

    >>> import headstart as hs
    >>> federation = hs.data.sine(clients=5, held_out=2)
    >>> problem = hs.Regression(hs.MLP(inputs=1, outputs=1, hidden=(8,)))
    >>> grid = [hs.maml(batch_size=5, outer_lr=lr) for lr in (0.001, 0.01)]
    >>> evaluation = hs.Evaluation(steps=(1,), batch_size=10)
    >>> done = sweep(grid, problem, federation, seeds=range(3), rounds=4, cohort=2, evaluation=evaluation)
    >>> done.scores("loss", steps=1, group="held-out").shape
    (2, 3)
    """
    evaluation = evaluation or Evaluation()
    ensemble = Ensemble(
        algorithms, problem, federation, seeds=seeds, cohort=cohort, weighting=weighting, wire=wire,
        devices=devices, memory_limit=memory_limit, measure=measure,
    )  # fmt: skip
    journal = Unrecorded() if checkpoint is None else FolderJournal(checkpoint, keep=1)
    if checkpoint is not None:
        decisive = {
            "algorithms": list(algorithms), "problem": problem, "seeds": ensemble.seeds, "rounds": rounds,
            "cohort": cohort, "weighting": weighting, "wire": wire, "evaluation": evaluation,
            "measure": measure,
        }  # fmt: skip
        journal.identify({name: digest(part) for name, part in decisive.items()} | {"data": data_digest(federation)})
    with watched(callbacks):
        stopped = drive(
            ensemble, rounds=rounds, evaluation=evaluation, journal=journal, callbacks=callbacks,
            checkpoint_seconds=checkpoint_seconds,
        )  # fmt: skip
        history, evaluations = journal.tables()
        assert evaluations is not None
        result = _result(ensemble, evaluation, final, history, evaluations, stopped)
        if stopped is None and isinstance(journal, FolderJournal):
            journal.remove()
        for callback in callbacks:
            callback.on_end(result)
    return result


def _result(
    ensemble: Ensemble,
    evaluation: Evaluation,
    final: Evaluation | None,
    history: pa.Table | None,
    evaluations: pa.Table,
    stopped: str | None,
) -> Sweep:
    runs, tested = ensemble.number, ensemble.tested
    evaluated = Scores.of(evaluations, evaluation, tested, runs)
    last = evaluated if final is None else Scores.of(ensemble.evaluate(final), final, tested, runs)
    measured = [name for name in evaluations.column_names if name.startswith(MEASURED)]
    whole = (len(evaluated.rounds), runs, -1)

    def over_runs(name: str) -> np.ndarray:
        """A column of the rounds' table, one row per round and one column per run."""
        return np.zeros((0, runs)) if history is None else history[name].to_numpy().reshape(-1, runs)

    def by_then(per_round: np.ndarray) -> np.ndarray:
        """Sums of the rounds before each that was evaluated."""
        return np.concatenate([[0.0], np.cumsum(per_round)])[evaluated.rounds]

    return Sweep(
        seeds=ensemble.seeds,
        evaluated=evaluated,
        final=last,
        measured={
            name.removeprefix(MEASURED): evaluations[name].to_numpy().reshape(whole)[:, :, 0] for name in measured
        },
        table=evaluations.drop_columns(measured),
        loss=over_runs("loss").T,
        server=ensemble.state.server,
        samples=by_then(over_runs("samples").mean(axis=1)),
        seconds=by_then(over_runs("seconds").sum(axis=1)),
        stopped=stopped,
        _problem=ensemble.problem,
    )
