"""Running an experiment: every method in turn, each from where its record ends."""

import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from headstart import simulate
from headstart.artifact import Predictor, trained_model
from headstart.core import Algorithm, cohort_size
from headstart.data import Federation
from headstart.errors import CannotWrite, UsageError
from headstart.experiment.hosted import HostsDirectory, HostsMethodJournal
from headstart.experiment.keeping import BestRound
from headstart.experiment.record import MethodJournal, RunDirectory, RunRecord, versions
from headstart.experiment.settings import Settings
from headstart.simulate import Callback, Evaluation, Result, train
from headstart.simulate.evaluate import in_group
from headstart.simulate.identity import data_digest
from headstart.simulate.train import Diverging
from headstart.wire import PrivacySpent, Wire, privacy_spent

__all__ = ["Callbacks", "Directory", "Job", "OneJournal", "RunResult", "Trainer"]

Callbacks = Sequence[Callback] | Callable[[str], Sequence[Callback]]
"""Who watches a run: the same for all methods, or what a function of the method's name returns."""

Directory = RunDirectory | HostsDirectory
OneJournal = MethodJournal | HostsMethodJournal

Trainer = Callable[["Job", str, OneJournal | None, Sequence[Callback], Diverging], Result]
"""What trains a method of a job, by its name, with its journal, those who watch, and what to do if it diverges."""

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True, eq=False)
class RunResult:
    """What an experiment leaves: the methods' results, and the record of them all."""

    results: dict[str, Result]
    """By the methods' names, those that have been trained or begun."""
    record: RunRecord
    """What ``hs.load_run`` reads from the run's folder; the same of a run that was not written."""
    stopped: str | None
    """The method during which a callback stopped the run; ``None`` if all were trained to the end."""

    @property
    def comparison(self) -> pa.Table:
        """The last round of all methods that are done: one row per method, group, metric and number of steps."""
        return self.record.comparison

    @property
    def privacy(self) -> PrivacySpent | None:
        """What each method spends by the last round; ``None`` without noise on the wire.

        Methods are trained on the same clients one after the other: whoever publishes several of their models spends
        the sum.
        """
        return self.record.privacy


class Job:
    """Checked settings with the data loaded and the algorithms built: what can be wrong with them has been found.

    Methods are trained by ``trainer``: in this process by the simulator, unless another driver is given. With another
    driver, ``secret_cohorts`` says whether nobody but the server can know who takes part in which round.
    """

    def __init__(
        self,
        settings: Settings,
        federation: Federation,
        trainer: Trainer | None = None,
        *,
        secret_cohorts: bool = True,
    ):
        self.settings, self.federation, self._secret_cohorts = settings, federation, secret_cohorts
        self._trainer = trainer or simulated
        self.algorithms: dict[str, Algorithm] = {label: method.build() for label, method in settings.methods.items()}
        self.problem = settings.problem(federation)
        self.wire: Wire | None = None if settings.wire is None else settings.wire.build()
        for algorithm in self.algorithms.values():
            simulate.check(
                algorithm, self.problem, federation, settings.train.cohort, settings.train.weighting, self.wire
            )
            settings.evaluate.adapting(algorithm)
        for label, adapting in settings.adapt.items():
            replace(settings.evaluate, inner_lr=adapting.inner_lr).adapting(self.algorithms[label])
        self.privacy = None if self.wire is None else self._spent(self.wire)

    def run(self, directory: Directory | None, callbacks: Callbacks) -> RunResult:
        """Train every method that is not done yet, in the directory or, if there is none, in memory alone."""
        rounds = self.settings.train.rounds
        results: dict[str, Result] = {}
        stopped = None
        for label in self.algorithms:
            journal = None if directory is None else directory.journal(label, self.settings.train.keep_checkpoints)
            if journal is not None and journal.done and not journal.restorable:
                continue  # trained to the end, and only its checkpoints have been removed
            watching = callbacks(label) if callable(callbacks) else callbacks
            try:
                results[label] = result = self._train(label, journal, watching)
                if result.stopped is not None or (result.diverged is None and result.rounds < rounds):
                    stopped = label
                    break
                if journal is not None and not journal.done:
                    lost = result.diverged is not None and self.settings.train.keep == "last"
                    journal.finish(result, None if lost else self._model(label, result))
            except (CannotWrite, OSError) as error:
                raise _kept(error, directory) from error

        def in_memory() -> RunRecord:
            return RunRecord.of_results(self.settings.resolved, results, rounds, self.privacy)

        return RunResult(results, in_memory() if directory is None else directory.record(in_memory), stopped)

    def _model(self, label: str, result: Result) -> Predictor:
        """What a method has trained, as its file has it."""
        return trained_model(
            result,
            method=label,
            algorithm=self.algorithms[label],
            problem=self.problem,
            federation=self.federation,
            evaluation=self.evaluation(label),
            steps=None if label not in self.settings.adapt else self.settings.adapt[label].steps,
            config=self.settings.resolved,
            data=data_digest(self.federation),
            versions=versions(),
        )

    def _spent(self, wire: Wire) -> PrivacySpent | None:
        train, clients = self.settings.train, self.federation.trained
        size = cohort_size(train.cohort, clients)
        return privacy_spent(wire, train.rounds, size, clients, self._secret_cohorts)

    def _train(self, label: str, journal: OneJournal | None, callbacks: Sequence[Callback]) -> Result:
        evaluation, keeps = self.evaluation(label), self.settings.train.keep == "best"
        best = self._best_round(evaluation, journal) if keeps else None
        # A method that others are compared with does not end the run; nor does one that has a round to go back to.
        spared = keeps or label != next(iter(self.algorithms))
        watching = callbacks if best is None else [best, *callbacks]
        result = self._trainer(self, label, journal, watching, "stop" if spared else "refuse")
        ended = result.rounds == self.settings.train.rounds or result.diverged is not None
        if best is None or best.state is None or not ended:
            return result
        done = journal is not None and journal.done
        return result.with_model_of(best.round, best.state, None if done else replace(evaluation, groups=("new",)))

    def _best_round(self, evaluation: Evaluation, journal: OneJournal | None) -> BestRound:
        """What keeps the best round; of a method that is done, among those that were evaluated as it trained."""

        def told() -> pa.Table | None:
            table = None if journal is None else journal.tables()[1]
            if table is None or not self.federation.total > self.federation.trained + self.federation.validation:
                return table
            new = in_group("new", *(_flags(table, name) for name in ("held_out", "validation")))
            return table.filter(pa.array(~new))

        if journal is None:
            return BestRound(self.problem, evaluation.steps[-1], None, told)
        return BestRound(self.problem, evaluation.steps[-1], journal.kept, told, journal.agree)

    def evaluation(self, label: str) -> Evaluation:
        """How a method's clients are evaluated.

        A method whose rounds compute no gradient stays as it is: it is looked at before and after them. Where the
        best round is kept, new clients are not looked at on the way to it.
        """
        evaluation, adapting = self.settings.evaluate, self.settings.adapt.get(label)
        if adapting is not None:
            steps = (0, adapting.steps) if adapting.steps else (0,)
            inner_lr = evaluation.inner_lr if adapting.inner_lr is None else adapting.inner_lr
            evaluation = replace(evaluation, steps=steps, inner_lr=inner_lr)
        if self.settings.train.keep == "best":
            evaluation = replace(evaluation, groups=tuple(group for group in evaluation.groups if group != "new"))
        if self.algorithms[label].cost().gradients:
            return evaluation
        return replace(evaluation, every=self.settings.train.rounds)


def simulated(
    job: Job, label: str, journal: OneJournal | None, callbacks: Sequence[Callback], diverging: Diverging
) -> Result:
    """Train a method in this process, with the data of all clients."""
    settings = job.settings.train
    memory: Path | None = None
    if settings.memory == "disk":
        if journal is None:
            raise UsageError("train.memory is 'disk', but the run has no folder.", "Name one with out.")
        memory = journal.path / "memory"
    return train(
        job.algorithms[label],
        job.problem,
        job.federation,
        rounds=settings.rounds,
        cohort=settings.cohort,
        weighting=settings.weighting,
        seed=job.settings.seed,
        evaluation=job.evaluation(label),
        backend=settings.backend,
        devices=settings.devices,
        at_once=settings.at_once,
        chunk=settings.chunk,
        memory=memory,
        memory_limit=settings.memory_limit,
        journal=None if journal is None else journal.told,
        callbacks=callbacks,
        wire=job.wire,
        diverging=diverging,
    )


def _flags(table: pa.Table, name: str) -> Any:
    """A column of yes and no; all no where there is none."""
    if name in table.column_names:
        return table[name].to_numpy(zero_copy_only=False)
    return np.zeros(len(table), bool)


def _kept(error: OSError | CannotWrite, directory: Directory | None) -> Exception:
    """What a disk without room means for the run: all that was recorded before is whole."""
    full = isinstance(error, CannotWrite) or error.errno in NO_ROOM
    if directory is None or not full:
        return error
    problem = error.problem if isinstance(error, CannotWrite) else f"The disk has no room: {error.strerror}."
    return UsageError(
        problem,
        f"Nothing was lost up to the last checkpoint. Free some room and go on with: "
        f"headstart run --resume {directory.path}",
    )
