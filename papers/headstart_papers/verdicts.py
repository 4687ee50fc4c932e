"""Whether what a paper claims is what we found."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from headstart_papers.numbers import p_value, signed
from headstart_papers.record import Claim, Comparison, Operand, PaperExperiment, Score
from headstart_papers.results import Cell, Results
from headstart_papers.statistics import Estimate, difference, paired_difference

__all__ = ["Outcome", "Single", "Verdict", "judge"]

Outcome = Literal["reproduced", "not reproduced", "undecided"]

SHOWN = 4
"""A verdict that rests on more comparisons shows the weakest of them only."""


@dataclass(frozen=True)
class Single:
    """One comparison in one row."""

    outcome: Outcome
    words: str
    """The statistic, or why there is none."""
    difference: Estimate | None = None
    """Of the larger less the smaller, as the paper orders them, in the units shown."""
    absent: tuple[tuple[str, str], ...] = ()
    """Reasons why there is nothing to compare, each with what it is the reason of."""


@dataclass(frozen=True)
class Verdict:
    """What is to be said of a claim."""

    claim: Claim
    singles: tuple[Single, ...]

    @property
    def outcome(self) -> Outcome:
        """Reproduced if all comparisons are, not reproduced if any is not.

        All have to hold, so that looking at several makes no false "reproduced" likelier.
        """
        outcomes = {single.outcome for single in self.singles}
        if "not reproduced" in outcomes:
            return "not reproduced"
        return "reproduced" if outcomes == {"reproduced"} else "undecided"

    @property
    def holding(self) -> int:
        """How many single comparisons hold."""
        return sum(single.outcome == "reproduced" for single in self.singles)

    @property
    def compared(self) -> list[Single]:
        """The comparisons for which there is something to compare."""
        return [single for single in self.singles if not single.absent]

    @property
    def statistic(self) -> str:
        """In one line; of many comparisons, how many hold and the weakest."""
        compared = self.compared
        said = [single.words for single in compared]
        if len(compared) > SHOWN:
            weakest = min(compared, key=_strength)
            said = [f"{self.holding} of {len(self.singles)} comparisons hold; the weakest: {weakest.words}"]
        absent: dict[str, dict[str, None]] = {}
        for single in self.singles:
            for reason, name in single.absent:
                absent.setdefault(reason, {})[name] = None
        return "; ".join([*said, *(f"{reason}: {', '.join(names)}" for reason, names in absent.items())])


def judge(claim: Claim, experiment: PaperExperiment, results: Results) -> Verdict:
    """Compare what a claim compares, in all its rows."""
    judged: dict[tuple[Operand, Operand, bool], Single] = {}
    for row in claim.rows:
        for comparison in claim.comparisons:
            left, right = (_placed(operand, row) for operand in (comparison.left, comparison.right))
            key = (left, right, comparison.strict)
            if key not in judged:  # an order between named rows is the same whichever row is being judged
                judged[key] = _Pair(claim, comparison, left, right, experiment, results).single()
    return Verdict(claim, tuple(judged.values()))


def _placed(operand: Operand, row: str) -> Operand:
    return operand if operand.row else Operand(operand.method, row)


def _strength(single: Single) -> tuple[int, float]:
    rank = ("not reproduced", "undecided", "reproduced").index(single.outcome)
    return rank, -np.inf if single.difference is None else single.difference.low


class _Pair:
    """A comparison whose operands both name their row."""

    def __init__(
        self,
        claim: Claim,
        comparison: Comparison,
        left: Operand,
        right: Operand,
        experiment: PaperExperiment,
        results: Results,
    ):
        self.claim, self.strict, self.operands = claim, comparison.strict, (left, right)
        self.score: Score = experiment.scores[claim.score]
        self.results = results
        same = left.row == right.row
        self.name = f"{left.method} - {right.method}" if same else f"{left} - {right}"
        self.where = f" in {left.row}" if same and len(experiment.rows) > 1 else ""

    def single(self) -> Single:
        absent = tuple(self._absent())
        if absent:
            said = ", ".join(f"{name} {reason}" for reason, name in absent)
            return Single("undecided", f"{self.name}{self.where}: {said}", absent=absent)
        left, right = (self._cell(operand) for operand in self.operands)
        if self.score.extra:
            # Repetitions of a measurement, which do not belong together in pairs.
            return self._judged(left.final(self.score.id), right.final(self.score.id), "repetition")
        common = [seed for seed in left.seeds if seed in right.seeds]
        if not common:
            return Single("undecided", f"{self.name}{self.where}: no seed has been run of both")
        return self._judged(self._values(left, common), self._values(right, common), "seed")

    def _cell(self, operand: Operand) -> Cell:
        return self.results.cells[str(operand.row), operand.method]

    def _absent(self) -> Iterator[tuple[str, str]]:
        for operand in self.operands:
            if (operand.row, operand.method) not in self.results.wanted:
                yield f"not part of the {self.results.profile} run", str(operand)
            elif (operand.row, operand.method) not in self.results.cells:
                yield "not run yet", str(operand)

    def _values(self, cell: Cell, seeds: list[int]) -> np.ndarray:
        if self.claim.curve:
            # Without the start, where all are alike; an evaluation stands for the rounds since the one before.
            values = cell.curve(self.score.id)[:, 1:] @ np.diff(cell.x("round")) / cell.rounds
        else:
            values = cell.final(self.score.id)
        return np.asarray(values[[cell.seeds.index(seed) for seed in seeds]])

    def _judged(self, left: np.ndarray, right: np.ndarray, of: str) -> Single:
        diverged = [int(np.sum(~np.isfinite(values))) for values in (left, right)]
        if any(diverged):
            return self._diverged(diverged, len(left))
        found = (difference if of == "repetition" else paired_difference)(left, right)
        shown = signed(found, self.score, max(abs(left.mean()), abs(right.mean())))
        p = "" if found.p is None else f"{p_value(found.p)}, "
        counted = f"{found.count} {of}{'s' if found.count > 1 else ''}"
        words = f"{self.name}: {shown} ({p}{counted}){self.where}"
        if found.half_width is None:
            sign = "the paper's sign" if found.mean > 0 else "no difference" if found.mean == 0 else "the other sign"
            return Single("undecided", f"{words}, {sign}, but one {of} decides nothing", found)
        return Single(self._outcome(found), words, found)

    def _outcome(self, found: Estimate) -> Outcome:
        bound = 0.0 if self.strict else -self.claim.margin
        if found.low > bound or (found.low == bound and not self.strict):
            return "reproduced"
        return "not reproduced" if found.high < bound else "undecided"

    def _diverged(self, diverged: list[int], seeds: int) -> Single:
        """A run that diverged is the worst possible, so the other side is better."""
        told = " and ".join(
            f"{operand.method} diverged with {count} of {seeds} seed{'s' if seeds > 1 else ''}"
            for operand, count in zip(self.operands, diverged, strict=True)
            if count
        )
        words = f"{self.name}: {told}, which counts as worst{self.where}"
        if all(diverged) or seeds < 2:
            return Single("undecided", words)
        # The worst accuracy is the lowest, the worst loss the highest.
        left_is_larger = bool(diverged[0]) != self.score.higher_is_better
        return Single("reproduced" if left_is_larger else "not reproduced", words)
