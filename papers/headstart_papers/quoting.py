"""Numbers in prose, looked up in the results: ``{{wang/table3 K1/maml test}}`` becomes what was found.

Its words are an experiment, operands (``row/method``; of a single row the method alone) and a score:

- ``{{wang/table3 K1/maml test}}``: the mean over seeds that converged, with its interval;
- ``{{difference fallah/table1 mnist-tau4/hf mnist-tau4/fo accuracy}}``: paired by seed;
- ``{{diverged wang/table3 K1/maml test}}``: ``4 of 5``;
- ``{{after 500 fallah/table1 mnist-tau10/hf accuracy}}``: the mean of the curve after so many rounds;
- ``{{together fallah/appendix-i hf fedavg accuracy}}``: the first's mean when the first of the two has finished.
"""

import re
from collections.abc import Callable, Mapping

import numpy as np

from headstart.errors import UsageError
from headstart_papers.numbers import decimals, signed, with_interval
from headstart_papers.record import Score
from headstart_papers.results import Cell, Results
from headstart_papers.statistics import estimate, paired_difference

__all__ = ["Quoting"]

QUOTATION = re.compile(r"\{\{\s*([^{}]+?)\s*\}\}")


class Quoting:
    """Fills quotations in from the results of experiments by name."""

    def __init__(self, results: Callable[[str], Results], smaller: bool = False):
        """With ``smaller`` runs, which lack rows and evaluations, what cannot be looked up is left open."""
        self._results, self._smaller = results, smaller
        self._kinds: Mapping[str, Callable[[list[str]], str]] = {
            "difference": self._difference,
            "diverged": self._diverged,
            "after": self._after,
            "together": self._together,
        }

    def filled(self, text: str) -> str:
        """The text with its quotations looked up; ``·`` where nothing has been run."""

        def found(match: re.Match[str]) -> str:
            words = match[1].split()
            kind = self._kinds.get(words[0], self._value)
            try:
                return kind(words[1:] if words[0] in self._kinds else words)
            except _NotRun:
                return "·"
            except (ValueError, IndexError, KeyError) as error:
                if self._smaller:
                    return "·"
                raise UsageError(
                    f"The quotation {match[0]} cannot be looked up: {error}.",
                    "Write it as {{experiment row/method score}}; headstart_papers.quoting has the other kinds.",
                ) from error

        return QUOTATION.sub(found, text)

    def _value(self, words: list[str]) -> str:
        experiment, operand, score = words
        cell, asked = self._cell(experiment, operand), self._score(experiment, score)
        values = cell.final(asked.id)
        values = values[np.isfinite(values)]
        if not len(values):
            return "diverged"
        found = estimate(values)
        return with_interval(found.mean, found.half_width, asked)

    def _difference(self, words: list[str]) -> str:
        experiment, first, second, score = words
        asked = self._score(experiment, score)
        cells = [self._cell(experiment, operand) for operand in (first, second)]
        seeds = [seed for seed in cells[0].seeds if seed in cells[1].seeds]
        left, right = (cell.final(asked.id)[[cell.seeds.index(seed) for seed in seeds]] for cell in cells)
        both = np.isfinite(left) & np.isfinite(right)
        return signed(paired_difference(left[both], right[both]), asked, float(np.abs(left[both]).mean()))

    def _diverged(self, words: list[str]) -> str:
        experiment, operand, score = words
        values = self._cell(experiment, operand).final(self._score(experiment, score).id)
        return f"{int(np.sum(~np.isfinite(values)))} of {len(values)}"

    def _after(self, words: list[str]) -> str:
        rounds, experiment, operand, score = words
        cell, asked = self._cell(experiment, operand), self._score(experiment, score)
        place = [int(at) for at in cell.x("round")].index(int(rounds))
        return self._plain(cell.curve(asked.id)[:, place], asked)

    def _together(self, words: list[str]) -> str:
        experiment, first, second, score = words
        asked = self._score(experiment, score)
        cell, other = self._cell(experiment, first), self._cell(experiment, second)
        end = min(cell.seconds()[:, -1].mean(), other.seconds()[:, -1].mean())
        pairs = zip(cell.seconds(), cell.curve(asked.id), strict=True)
        return self._plain(np.array([np.interp(end, at, curve) for at, curve in pairs]), asked)

    def _plain(self, values: np.ndarray, score: Score) -> str:
        mean = float(values.mean())
        return f"{mean:.{1 if score.percent else decimals(mean, score)}f}"

    def _score(self, experiment: str, score: str) -> Score:
        return self._results(experiment).experiment.scores[score]

    def _cell(self, experiment: str, operand: str) -> Cell:
        results = self._results(experiment)
        row, _, method = operand.rpartition("/")
        row = row or next(iter(results.experiment.rows))
        if (row, method) not in results.wanted:
            raise KeyError(f"{experiment} has no {row}/{method}")
        cell = results.cell(row, method)
        if cell is None:
            raise _NotRun
        return cell


class _NotRun(Exception):
    """There is no result yet."""
