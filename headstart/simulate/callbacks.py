"""Those who watch a run: they see its state and its tables after every chunk and evaluation, and may stop it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from headstart.core import checks
from headstart.errors import UsageError
from headstart.problems import Problem
from headstart.simulate.evaluate import Evaluation, in_group
from headstart.simulate.rounds import RunState
from headstart.simulate.store import DiskStore

__all__ = ["Callback", "EarlyStopping", "Evaluated", "Progress", "Run", "watched"]


class Run(Protocol):
    """What the training loop drives: one federation in training, or an ensemble of them as one program."""

    problem: Problem
    round: int
    """Rounds done."""
    state: RunState
    store: DiskStore | None
    """Clients' memories, where they are kept on disk."""

    def advance(self, rounds: int, capacity: int | None = None) -> pa.Table:
        """Run some rounds and return their metrics."""

    def evaluate(self, evaluation: Evaluation) -> pa.Table:
        """Every client's scores now."""

    def largest_chunk(self) -> int:
        """How many rounds may run as one program."""


class Progress(NamedTuple):
    """How far a run has come, told after every chunk of rounds."""

    round: int
    """Rounds done."""
    rounds: int
    """Rounds asked for."""
    loss: float
    """The training loss of the last round; of several runs the mean over those that have not diverged."""
    rounds_per_second: float
    table: pa.Table
    """The metrics of this chunk's rounds: one row per round (and run)."""
    state: RunState
    """Its arrays are given to the next chunk: copy what is to be kept."""


class Evaluated(NamedTuple):
    """What an evaluation found."""

    round: int
    table: pa.Table
    """One row per (run,) client and number of adaptation steps."""
    state: RunState
    """Its arrays are given to the next chunk: copy what is to be kept."""

    def mean(self, metric: str, steps: int, group: str = "all") -> float:
        """Over the clients of a group, and over runs where there are several.

        ``group`` is ``all``, ``trained``, ``held-out``, or of those held out ``validation`` or ``new``.
        """
        columns = self.table.column_names
        if metric not in columns:
            raise UsageError(f"No metric {metric!r} was evaluated.", f"There are: {', '.join(columns)}.")
        held_out, validation = (
            self.table[name].to_numpy(zero_copy_only=False) if name in columns else None
            for name in ("held_out", "validation")
        )
        assert held_out is not None
        chosen = (self.table["steps"].to_numpy() == steps) & in_group(group, held_out, validation)
        if not chosen.any():
            raise UsageError(
                f"No client of the group {group!r} was evaluated after {steps} steps.",
                "Evaluate it, or look at another group or number of steps.",
            )
        return float(np.mean(self.table[metric].to_numpy()[chosen]))


class Callback:
    """What is told how a run goes on. A method that is not written does nothing.

    A text that ``on_chunk`` or ``on_evaluation`` returns is the reason for which the run ends there; its result
    says so, once every callback has been told and a checkpoint has been written.

    >>> class Patient(Callback):
    ...     def on_chunk(self, progress):
    ...         return "the loss is low enough" if progress.loss < 0.1 else None
    """

    def on_start(self, run: Run, rounds: int) -> None:
        """The run is about to begin, or to go on after ``run.round`` rounds, until there are ``rounds``."""
        return None

    def on_chunk(self, progress: Progress) -> str | None:
        """Some more rounds are done."""
        return None

    def on_evaluation(self, evaluated: Evaluated) -> str | None:
        """All clients have been evaluated; told after the chunk that went before."""
        return None

    def on_end(self, result: Any) -> None:
        """The run has ended, at its last round or where a callback stopped it, and this is its result."""
        return None

    def on_error(self, error: BaseException) -> None:
        """The run ends with an error, or was interrupted."""
        return None


class EarlyStopping(Callback):
    """Stops a run whose mean score has not become better, by more than ``least``, in ``patience`` evaluations.

    A run that is resumed is given its patience anew.

    >>> import headstart as hs
    >>> federation = hs.data.sine(clients=5, held_out=1)
    >>> problem = hs.Regression(hs.MLP(inputs=1, outputs=1, hidden=(8,)))
    >>> result = hs.train(
    ...     hs.fedavg(batch_size=10, outer_lr=0.0), problem, federation, rounds=50,
    ...     evaluation=hs.Evaluation(every=2), callbacks=[EarlyStopping("loss", steps=1, patience=3)],
    ... )
    >>> result.rounds, result.stopped
    (6, 'loss has not become better in 3 evaluations')
    """

    def __init__(self, metric: str, steps: int, group: str = "all", patience: int = 3, least: float = 0.0):
        checks.whole("patience", patience, 1)
        checks.at_least("least", least, 0)
        self.metric, self.steps, self.group = metric, steps, group
        self.patience, self.least = patience, least

    def on_start(self, run: Run, rounds: int) -> None:
        """Forget what an earlier run found."""
        self._sign = 1.0 if run.problem.metric(self.metric).higher_is_better else -1.0
        self._best, self._since = -np.inf, 0

    def on_evaluation(self, evaluated: Evaluated) -> str | None:
        value = self._sign * evaluated.mean(self.metric, self.steps, self.group)
        if value > self._best + self.least:
            self._best, self._since = value, 0
            return None
        self._since += 1
        if self._since < self.patience:
            return None
        return f"{self.metric} has not become better in {self.patience} evaluation{'s' * (self.patience > 1)}"


@contextmanager
def watched(callbacks: Sequence[Callback]) -> Iterator[None]:
    """Tell callbacks of the error that a run ends with."""
    try:
        yield
    except BaseException as error:
        for callback in callbacks:
            callback.on_error(error)
        raise
