"""Any settings in competition: those that differ in numbers alone are one program, others one after another."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from headstart.simulate.trials import Trials
from headstart.tuning.budget import rungs
from headstart.tuning.choosing import Score, choosers, headline, score_of
from headstart.tuning.contest import Contest, Told

__all__ = ["Entrants", "compete"]


class Entrants(NamedTuple):
    """Points whose methods differ in numbers only, on one federation."""

    contest: Contest
    algorithms: Sequence[Any]
    places: Sequence[int]
    """Of all points, which these are."""


class _Field:
    """All points in training."""

    def __init__(self, groups: Sequence[Entrants], longest: int, watch: Callable[[Told], None], method: str):
        self.trials = [group.contest.trials(group.algorithms, longest) for group in groups]
        self.groups, self.watch, self.method = groups, watch, method
        self.done, self.total = 0, 1

    def advance(self, alive: Sequence[int], rounds: int) -> None:
        """Train those that are left until they have so many rounds."""
        for trials, own in self._parts(alive):
            trials.advance(own, rounds - int(trials.rounds[own[0]]), self._trained)

    def judge(self, alive: Sequence[int]) -> Score:
        """The score of each, after the best of the numbers of steps that it is to be evaluated by."""
        values, losses = {}, {}
        for group, trials in zip(self.groups, self.trials, strict=True):
            own = [place for place in alive if place in group.places]
            if not own:
                continue
            contest, by = group.contest, choosers(group.contest.federation)
            indices = [list(group.places).index(place) for place in own]
            given = None if contest.inner_lr is None else np.full((len(own), 1), contest.inner_lr)
            found = trials.scores(
                indices, steps=contest.steps or (0, 1), ids=by.ids, batch_size=contest.batch_size, sizes=given,
                told=lambda: self._tell("adapting"),
            )  # fmt: skip
            score = score_of(found, by.weights, headline(contest.problem))
            for row, place in enumerate(own):
                best = Score(score.value[row], score.loss[row]).best()
                values[place], losses[place] = score.value[row][best], score.loss[row][best]
        return Score(np.array([values[place] for place in alive]), np.array([losses[place] for place in alive]))

    def _parts(self, alive: Sequence[int]) -> list[tuple[Trials, list[int]]]:
        parts = []
        for group, trials in zip(self.groups, self.trials, strict=True):
            own = [i for i, place in enumerate(group.places) if place in alive]
            if own:
                parts.append((trials, own))
        return parts

    def _trained(self, rounds: int) -> None:
        self.done += rounds
        self._tell("training")

    def _tell(self, doing: str) -> None:
        self.watch(Told(self.method, min(1.0, self.done / self.total), doing, None))


def compete(
    groups: Sequence[Entrants], points: Sequence[Mapping[str, Any]], method: str, rounds: int, halving: bool,
    watch: Callable[[Told], None],
) -> list[dict[str, Any]]:  # fmt: skip
    """One row per point: its settings, for how many rounds it was trained, and its score then; the best one first.

    With ``halving`` those that fall behind are dropped on the way; else all are trained for all rounds.
    """
    plan = [(rung.settings, rung.rounds) for rung in rungs(rounds, len(points))] if halving else []
    plan = [(len(points), plan[0][1]), *plan[1:]] if plan else [(len(points), rounds)]
    if halving:
        # Nobody takes the place of what diverges late here, so that two are trained to the end.
        plan[-1] = (max(plan[-1][0], min(2, len(points))), rounds)
    field = _Field(groups, min(rounds, 256), watch, method)
    lengths = np.diff([0, *(length for _, length in plan)])
    field.total = int(sum(number * length for (number, _), length in zip(plan, lengths, strict=True)))
    alive, rows = list(range(len(points))), {}
    metric = headline(groups[0].contest.problem)
    sign = -1 if metric.higher_is_better else 1
    for number, (_, length) in enumerate(plan):
        field.advance(alive, length)
        score = field.judge(alive)
        for place, value in zip(alive, score.value, strict=True):
            shown = float(value) * sign if np.isfinite(value) else None
            rows[place] = {**points[place], "rounds": length, metric.name: shown}
        order = [alive[place] for place in score.order()]
        if number + 1 < len(plan):
            alive = sorted(order[: plan[number + 1][0]])

    def rank(place: int) -> tuple[int, float]:
        shown = rows[place][metric.name]
        return -rows[place]["rounds"], np.inf if shown is None else shown * sign

    rest = sorted((place for place in rows if place not in order), key=rank)
    return [rows[place] for place in [*order, *rest]]
