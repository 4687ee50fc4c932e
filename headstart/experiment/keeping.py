"""The round to keep: the one whose model served the clients that choose best, on disk while the run goes on."""

from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
import pyarrow as pa

from headstart.problems import Problem
from headstart.simulate import Callback, Evaluated, RunState
from headstart.simulate.callbacks import Run
from headstart.simulate.files import read_tree, write_tree
from headstart.tuning import Score, score_of_table

__all__ = ["BestRound"]

FILES = 2
"""So many rounds' models are kept: should the newest checkpoint be damaged, a run goes on from the one before."""


class BestRound(Callback):
    """Keeps the state of the round with the best score after ``steps`` steps of adaptation.

    A checkpoint is written before a round is told of here. So of a run that is resumed, every round is in ``folder``
    that was the best before its checkpoint, and the checkpoint's own state is at hand. ``agree`` gives what the first
    of several hosts says.
    """

    def __init__(
        self,
        problem: Problem,
        steps: int,
        folder: Path | None,
        told: Callable[[], pa.Table | None],
        agree: Callable[[bool], bool] = lambda has: has,
    ):
        self.problem, self.steps, self.folder, self._told = problem, steps, folder, told
        self._agree = agree
        self.round = 0
        self.state: RunState | None = None
        self._best: Score | None = None

    def on_start(self, run: Run, rounds: int) -> None:
        """Find the best of the rounds before a run was stopped."""
        self._best, self.state = None, None
        table = self._told()
        if table is None:
            return
        evaluated = table["round"].to_numpy()
        for round_ in np.unique(evaluated):
            score = score_of_table(table.filter(pa.array(evaluated == round_)), self.problem, self.steps)
            if self._better(score):
                self._best, self.round = score, int(round_)
        if self.round == run.round:
            self._keep(run.round, run.state)
        elif self.folder is not None and self._file(self.round).exists():
            self.state, _ = read_tree(self._file(self.round), run.state)
        if self._agree(self.state is not None) and self.state is None:
            self.state = run.state  # the first of several hosts has the one that counts

    def on_evaluation(self, evaluated: Evaluated) -> str | None:
        score = score_of_table(evaluated.table, self.problem, self.steps)
        if self.state is None or self._better(score):
            self._best = score
            self._keep(evaluated.round, evaluated.state)
        return None

    def _better(self, score: Score) -> bool:
        if self._best is None:
            return True
        return (float(score.value), float(score.loss)) < (float(self._best.value), float(self._best.loss))

    def _keep(self, round_: int, state: RunState) -> None:
        self.round, self.state = round_, jax.tree.map(np.array, state)
        if self.folder is not None:
            write_tree(self._file(round_), self.state, {"round": str(round_)})
            for old in sorted(self.folder.glob("[0-9]*.safetensors"))[:-FILES]:
                old.unlink()

    def _file(self, round_: int) -> Path:
        assert self.folder is not None
        return self.folder / f"{round_:09d}.safetensors"
