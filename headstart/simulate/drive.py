"""The training loop: rounds in compiled chunks, evaluations and checkpoints between them, for one run or many."""

import time
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pyarrow as pa

from headstart.core import checks
from headstart.simulate.callbacks import Callback, Evaluated, Progress, Run
from headstart.simulate.evaluate import Evaluation
from headstart.simulate.journal import Journal
from headstart.simulate.simulation import LARGEST_CHUNK

__all__ = ["CHUNK_SECONDS", "Pace", "drive"]

CHUNK_SECONDS = 1.0
"""How long a chunk may be expected to take: often enough to checkpoint, to show progress and to hear Ctrl-C."""


class Pace:
    """How many rounds a chunk has: one at first, then up to twice as many each time, while that is quick enough.

    >>> pace = Pace(None, most=100)
    >>> pace.took(1, 20.0)  # the first compiles
    >>> pace.took(1, 0.3)
    >>> pace.length
    2
    >>> pace.took(2, 0.6)
    >>> pace.length
    3
    """

    def __init__(self, fixed: int | None, most: int):
        self._fixed, self._most = fixed, most
        self.length = min(fixed or 1, most)

    def took(self, rounds: int, seconds: float) -> None:
        """Learn from a chunk."""
        if self._fixed is None:
            affordable = int(CHUNK_SECONDS * rounds / max(seconds, 1e-9))
            self.length = max(1, min(2 * self.length, affordable, self._most))


def drive(
    run: Run,
    *,
    rounds: int,
    evaluation: Evaluation,
    journal: Journal,
    chunk: int | None = None,
    callbacks: Sequence[Callback] = (),
    check: Callable[[Run, pa.Table], None] = lambda run, table: None,
    checkpoint_seconds: float = 0.0,
) -> str | None:
    """Train until ``rounds`` rounds are done, from the journal's checkpoint if it has one.

    ``check`` may refuse what a chunk led to, before any of it is recorded. Checkpoints are at least
    ``checkpoint_seconds`` apart, but for the last. Returns why a callback stopped the run, if one did.
    """
    checks.whole("rounds", rounds, 1)
    if chunk is not None:
        checks.whole("chunk", chunk, 1)
    every = evaluation.every or max(1, rounds // 10)
    capacity = min(chunk or LARGEST_CHUNK, run.largest_chunk(), rounds)
    pace = Pace(chunk, capacity)
    keeper = _Keeper(run, journal, checkpoint_seconds)
    resumed = keeper.restore()
    for callback in callbacks:
        callback.on_start(run, rounds)
    stop = None
    if not resumed:
        table = run.evaluate(evaluation)
        journal.evaluated(table)
        keeper.keep()
        stop = _first(callback.on_evaluation(Evaluated(0, table, run.state)) for callback in callbacks)
    while run.round < rounds and stop is None:
        step = min(pace.length, rounds - run.round, every - run.round % every)
        table = run.advance(step, capacity)
        # As the run tells it, for on several hosts all must go on with chunks of one length.
        seconds = max(float(np.sum(table["seconds"].to_numpy())), 1e-9)
        pace.took(step, seconds)
        check(run, table)
        journal.rounds(table)
        scores = None
        if run.round % every == 0 or run.round == rounds:
            scores = run.evaluate(evaluation)
            journal.evaluated(scores)
        keeper.keep(at_once=run.round == rounds)
        progress = Progress(run.round, rounds, _last_loss(table), step / seconds, table, run.state)
        stop = _first(callback.on_chunk(progress) for callback in callbacks)
        if scores is not None:
            evaluated = Evaluated(run.round, scores, run.state)
            stop = _first([stop, *(callback.on_evaluation(evaluated) for callback in callbacks)])
    if stop is not None:
        keeper.keep(at_once=True)
    return stop


class _Keeper:
    """Writes checkpoints, not too often, with clients' memories on disk in step with them."""

    def __init__(self, run: Run, journal: Journal, seconds: float):
        self._run, self._journal, self._seconds = run, journal, seconds
        self._kept_round = -1
        self._kept_at = -np.inf

    def restore(self) -> bool:
        """Go back to the last checkpoint, if there is one."""
        restored = self._journal.restore(self._run.state)
        if restored is not None:
            self._run.round, self._run.state = restored
            self._kept_round, self._kept_at = self._run.round, time.monotonic()
        if self._run.store is not None:
            self._run.store.recover(self._run.round)
        return restored is not None

    def keep(self, at_once: bool = False) -> None:
        """Write a checkpoint if there has been none for long enough, or ``at_once`` if there is none of this round."""
        round_, store = self._run.round, self._run.store
        if round_ == self._kept_round or (not at_once and time.monotonic() - self._kept_at < self._seconds):
            return
        if store is not None:
            store.prepare(round_)
        self._journal.checkpoint(round_, self._run.state)
        if store is not None:
            store.commit(round_)
        self._kept_round, self._kept_at = round_, time.monotonic()


def _last_loss(table: pa.Table) -> float:
    """The loss of the last round; of several runs the mean over those that have not diverged."""
    losses = table["loss"].to_numpy()[table["round"].to_numpy() == table["round"][-1].as_py()]
    finite = losses[np.isfinite(losses)]
    return float(finite.mean()) if finite.size else float("nan")


def _first(reasons: Iterable[str | None]) -> str | None:
    """The first reason to stop, once all callbacks have been told."""
    return next((reason for reason in list(reasons) if reason is not None), None)
