"""Whether what a paper claims is what we found."""

import bisect
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from headstart_papers.numbers import p_value, signed
from headstart_papers.record import Claim, Comparison, Operand, PaperExperiment, Score
from headstart_papers.results import Cell, Results
from headstart_papers.statistics import CONTRARY, Estimate, difference, diverges_more, holm, paired_difference

__all__ = ["SHOWN", "Outcome", "Single", "Verdict", "judge"]

Outcome = Literal["reproduced", "not reproduced", "undecided"]
OPEN: Outcome = "undecided"

SHOWN = 4
"""A verdict that rests on more comparisons shows the weakest of them only."""

IN_SIZE = 0.5
"""The share of the paper's difference from which ours counts as one of its size."""


MOST_SEEDS = 10_000
"""More are not counted."""


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
    effect: float | None = None
    """The difference that the paper reports."""
    strict: bool = True
    bound: float = 0.0
    """What the difference has to exceed."""
    contrary: float = 1.0
    """The one-sided p of the difference's being at least the bound."""
    small: float = 1.0
    """The same of its being at least half of the paper's, where it does not hold."""
    name: str = ""
    """What is compared, and where."""
    score: Score | None = None
    size: float = 0.0
    """The larger of the two means, which says how many digits a difference has."""

    @property
    def in_size(self) -> bool | None:
        """Whether our difference is at least half of the paper's; ``None`` where either is not known."""
        if not self.strict or self.effect is None or self.effect <= 0 or self.difference is None:
            return None
        return self.difference.mean >= IN_SIZE * self.effect

    def with_seeds(self, count: int) -> "Single":
        """The same with so many seeds, if mean and spread stay as they are."""
        if self.difference is None or self.difference.error is None:
            return self
        found = self.difference.with_count(count)
        return replace(self, difference=found, **_weighed(found, self.strict, self.bound, self.effect))

    def shown(self, value: "float | Estimate | None") -> str:
        """A difference with the digits that its values have."""
        if value is None or self.score is None:
            return "·"
        estimate = value if isinstance(value, Estimate) else Estimate(value, None, 0)
        return signed(estimate, self.score, self.size)


@dataclass(frozen=True)
class Verdict:
    """What is to be said of a claim."""

    claim: Claim
    singles: tuple[Single, ...]

    @property
    def outcome(self) -> Outcome:
        """Reproduced if all comparisons are; not reproduced if one is contrary, or far below the paper's size.

        All have to hold, so that looking at several makes no false "reproduced" likelier. It makes a false "not
        reproduced" likelier, which Holm's correction makes up for.
        """
        if all(single.outcome == "reproduced" for single in self.singles):
            return "reproduced"
        return "not reproduced" if self._contrary or self._small else "undecided"

    @property
    def _contrary(self) -> bool:
        return min(holm([single.contrary for single in self.singles]), default=1.0) < CONTRARY

    @property
    def _small(self) -> bool:
        """Whether a difference that does not hold is less than half of the paper's."""
        return min(holm([single.small for single in self.singles]), default=1.0) < CONTRARY

    @property
    def label(self) -> str:
        """The outcome; of a reproduced one, whether differences have the paper's size or its direction only."""
        if self.outcome == "not reproduced" and not self._contrary:
            return f"{self.outcome} in size"
        if self.outcome != "reproduced" or self.claim.substantial:
            return self.outcome
        sizes = [single.in_size for single in self.singles if single.in_size is not None]
        if not sizes:
            return self.outcome
        return f"{self.outcome} in {'size' if all(sizes) else 'direction'}"

    @property
    def holding(self) -> int:
        """How many single comparisons hold."""
        return sum(single.outcome == "reproduced" for single in self.singles)

    @property
    def compared(self) -> list[Single]:
        """The comparisons for which there is something to compare."""
        return [single for single in self.singles if not single.absent]

    @property
    def weakest(self) -> Single | None:
        """The comparison that holds least."""
        return min(self.compared, key=_strength, default=None)

    @property
    def seeds_to_decide(self) -> int | None:
        """How many seeds would decide it, means and spreads staying as they are; ``None`` where it is very many."""

        def decided(count: int) -> bool:
            return replace(self, singles=tuple(single.with_seeds(count) for single in self.singles)).outcome != OPEN

        # More seeds only widen what they decide, so that halving finds the first.
        if not decided(MOST_SEEDS):
            return None
        return bisect.bisect_left(range(MOST_SEEDS), True, lo=2, key=decided)

    @property
    def statistic(self) -> str:
        """In one line; of many comparisons, how many hold and the weakest."""
        compared = self.compared
        said = [single.words for single in compared]
        if len(compared) > SHOWN and self.weakest:
            words = self.weakest.words
            said = [f"{self.holding} of {len(self.singles)} comparisons hold; the weakest: {words}"]
        absent: dict[str, dict[str, None]] = {}
        for single in self.singles:
            for reason, name in single.absent:
                absent.setdefault(reason, {})[name] = None
        return "; ".join([*said, *(f"{reason}: {', '.join(names)}" for reason, names in absent.items())])


def judge(claim: Claim, experiment: PaperExperiment, results: Results) -> Verdict:
    """Compare what a claim compares, in all its rows."""
    judged: dict[tuple[Operand, Operand, bool, str | None], Single] = {}
    for row in claim.rows:
        for comparison in claim.comparisons:
            left, right = (_placed(operand, row) for operand in (comparison.left, comparison.right))
            key = (left, right, comparison.strict, comparison.score)
            if key not in judged:  # an order between named rows is the same whichever row is being judged
                judged[key] = _Pair(claim, comparison, left, right, experiment, results).single()
    return Verdict(claim, tuple(judged.values()))


def _placed(operand: Operand, row: str) -> Operand:
    return operand if operand.row or operand.number is not None else replace(operand, row=row)


def _strength(single: Single) -> tuple[int, float, float]:
    rank = ("not reproduced", "undecided", "reproduced").index(single.outcome)
    return rank, single.contrary, -np.inf if single.difference is None else single.difference.low


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
        self.score: Score = experiment.scores[comparison.score or claim.score]
        self.results = results
        same = None in (left.row, right.row) or left.row == right.row
        self.name = " - ".join(str(replace(side, row=None) if same else side) for side in (left, right))
        if comparison.score:
            self.name = f"{comparison.score}: {self.name}"
        self.where = f" in {left.row or right.row}" if same and len(experiment.rows) > 1 else ""
        self.effect = self._reported(experiment)
        self.bound = 0.0 if self.strict else -claim.margin
        if claim.substantial and self.effect is not None:
            self.bound = IN_SIZE * self.effect

    def single(self) -> Single:
        absent = tuple(self._absent())
        if absent:
            said = ", ".join(f"{name} {reason}" for reason, name in absent)
            return self._said("undecided", f"{self.name}{self.where}: {said}", absent=absent)
        cells = [cell for operand in self.operands for cell in self._cells(operand)]
        if self.score.extra:
            # Repetitions of a measurement, which do not belong together in pairs.
            found = cells[0].final(self.score.id), cells[1].final(self.score.id)
            return self._judged(difference(*found), "repetition", max(abs(values.mean()) for values in found))
        common = [seed for seed in cells[0].seeds if all(seed in cell.seeds for cell in cells)]
        if not common:
            return self._said("undecided", f"{self.name}{self.where}: no seed has been run of both")
        left, right = (self._values(operand, cells, common) for operand in self.operands)
        return self._paired(left, right)

    def _said(self, outcome: Outcome, words: str, found: Estimate | None = None, **more: object) -> Single:
        name = f"{self.name}{self.where}"
        return Single(
            outcome, words, found, effect=self.effect, strict=self.strict, bound=self.bound, name=name,
            score=self.score, **more,  # type: ignore[arg-type]
        )  # fmt: skip

    def _reported(self, experiment: PaperExperiment) -> float | None:
        """The difference of what the paper's tables report, which are ends of runs; times depend on the machine."""
        if self.claim.curve or self.claim.within or self.score.extra:
            return None
        total = 0.0
        for sign, operand in zip((1, -1), self.operands, strict=True):
            values = [
                experiment.rows[str(operand.row)].reported.get(self.score.id, {}).get(method)
                for method in operand.methods
            ]
            if not values or None in values:
                return None
            total += sign * (values[0][0] - sum(value[0] for value in values[1:] if value))  # type: ignore[index]
        return total

    def _cells(self, operand: Operand) -> list[Cell]:
        return [self.results.cells[str(operand.row), method] for method in operand.methods]

    def _absent(self) -> Iterator[tuple[str, str]]:
        for operand in self.operands:
            for method in operand.methods:
                key = (str(operand.row), method)
                if key not in self.results.wanted:
                    yield f"not part of the {self.results.profile} run", "/".join(key)
                elif key not in self.results.cells:
                    yield "not run yet", "/".join(key)

    def _values(self, operand: Operand, compared: list[Cell], seeds: list[int]) -> np.ndarray:
        """One number per seed of one side."""
        if operand.number is not None:
            return np.full(len(seeds), operand.number)
        found = []
        for cell in self._cells(operand):
            if self.claim.within:
                values = _until(cell, compared, self.score.id, self.claim.curve)
            elif self.claim.late:
                values = cell.curve(self.score.id)[:, -self.claim.late :].mean(axis=1)
            elif self.claim.curve:
                # Without the start, where all are alike; an evaluation stands for the rounds since the one before.
                values = cell.curve(self.score.id)[:, 1:] @ np.diff(cell.x("round")) / cell.rounds
            else:
                values = cell.final(self.score.id)
            found.append(np.asarray(values[[cell.seeds.index(seed) for seed in seeds]]))
        return found[0] - found[1] if operand.less else found[0]

    def _paired(self, left: np.ndarray, right: np.ndarray) -> Single:
        """By the seeds that converged on both sides, unless one side diverges more often than by chance."""
        lost = [int(np.sum(~np.isfinite(values))) for values in (left, right)]
        count = len(left)
        told = ""
        if any(lost):
            counts = (
                f"{replace(operand, row=None)} diverged with {number} of {count} seed{'s' if count > 1 else ''}"
                for operand, number in zip(self.operands, lost, strict=True)
                if number
            )
            told = f", {' and '.join(counts)}"
            if 2 * lost[0 if self.score.higher_is_better else 1] > count:
                words = f"{self.name}: {told[2:]}, and what diverges with most seeds is not better{self.where}"
                return self._said("not reproduced", words, contrary=0.0)
            # The worst accuracy is the lowest, the worst loss the highest: who diverges more is at that end.
            larger, smaller = reversed(lost) if self.score.higher_is_better else lost
            for outcome, p in (
                ("reproduced", diverges_more(larger, smaller, count)),
                ("not reproduced", diverges_more(smaller, larger, count)),
            ):
                if p < CONTRARY:
                    words = f"{self.name}: {told[2:]}, which decides ({p_value(2 * p)}){self.where}"
                    contrary = p if outcome == "not reproduced" else 1.0
                    return self._said(outcome, words, contrary=contrary)  # type: ignore[arg-type]
        both = np.isfinite(left) & np.isfinite(right)
        if 2 * both.sum() < count or (any(lost) and both.sum() < 2):
            return self._said("undecided", f"{self.name}: {told[2:]}, so that too few are left to compare{self.where}")
        left, right = left[both], right[both]
        return self._judged(paired_difference(left, right), "seed", max(abs(left.mean()), abs(right.mean())), told)

    def _judged(self, found: Estimate, of: str, size: float, told: str = "") -> Single:
        shown = signed(found, self.score, size)
        p = "" if found.p is None else f"{p_value(found.p)}, "
        counted = f"{found.count} {of}{'s' if found.count > 1 else ''}{told}"
        paper = "" if self.effect is None else f"; the paper {signed(Estimate(self.effect, None, 0), self.score, size)}"
        words = f"{self.name}: {shown} ({p}{counted}{paper}){self.where}"
        if found.half_width is None:
            sign = "the paper's sign" if found.mean > 0 else "no difference" if found.mean == 0 else "the other sign"
            return self._said("undecided", f"{words}, {sign}, but one {of} decides nothing", found, size=size)
        weighed = _weighed(found, self.strict, self.bound, self.effect)
        return self._said(words=words, found=found, size=size, **weighed)


def _weighed(found: Estimate, strict: bool, bound: float, effect: float | None) -> dict[str, Any]:
    """The outcome of one comparison, and how unlikely it is that the claim, or half of the paper's size, holds."""
    outcome: Outcome = "not reproduced" if found.high < bound else "undecided"
    if found.low > bound or (found.low == bound and not strict):
        outcome = "reproduced"
    small = 1.0
    if outcome != "reproduced" and strict and effect is not None and effect > 0:
        small = found.p_below(IN_SIZE * effect)
    return {"outcome": outcome, "contrary": found.p_below(bound), "small": small}


def _until(cell: Cell, compared: list[Cell], score: str, whole: bool) -> np.ndarray:
    """A score of every seed when the first of the methods compared has finished, or its mean until then."""
    seconds, curves = cell.seconds(), cell.curve(score)
    end = min(other.seconds()[:, -1].mean() for other in compared)
    values = []
    for at, curve in zip(seconds, curves, strict=True):
        if whole:
            times = np.linspace(0.0, end, 201)
            values.append(np.interp(times, at, curve)[1:].mean())
        else:
            values.append(np.interp(end, at, curve))
    return np.array(values)
