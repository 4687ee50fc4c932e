"""Successive halving: many settings of a method for a few rounds, the best of them for more, and how to adapt."""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, cast

import jax
import numpy as np

from headstart.algorithms import LocalOnly
from headstart.core import Algorithm, tree
from headstart.tuning.adapting import judged, step_sizes
from headstart.tuning.alone import search_alone
from headstart.tuning.budget import SETTINGS, Ladder, Rung, affordable, cost_of, run_cost, rungs, size_of
from headstart.tuning.choosing import Score, choosers, headline
from headstart.tuning.contest import Contest, Found, Told
from headstart.tuning.ranges import Range, around, spread

__all__ = ["search"]

QUICK = Ladder((0, 1, 10, 30), 3, 100)
"""How settings are judged on the way."""
WHOLE = Ladder((0, 1, 3, 10, 30, 100, 300), 12, 200)
"""How to adapt is chosen from these, with settings of the last rung."""
QUICK_SHARE, WHOLE_SHARE = 0.2, 0.3
"""What these may cost, as shares of a run."""
FREE = 4e10
"""What each of these may cost in any case, as a product of gradients of single samples and parameters: some seconds."""
LOOKS = (1 / 2, 1.0)
"""When settings of the last rung are looked at, as shares of a run's rounds."""
FINALISTS = 2
"""The most settings that are trained to the end together."""
ATTEMPTS = 4
"""So often settings are trained to the end, until one has not diverged by then."""
GENTLER = 1.4
"""The next ones have outer steps at least so many times smaller, those after them by the square of this, and so on."""
OUTER = ("outer_lr", "server_lr")
"""The size of the shared model's steps, which are too large where training diverges."""
STEP_SIZES = ("inner_lr", *OUTER, "learning_rate", "initial_lr")
"""All that make training diverge where they are too large."""
MARGIN = 2.0
"""What diverges with steps at most so many times as large is at the edge of stability, where rounding decides."""
MEMORY = 2**31
"""So many bytes of clients' memories are held together."""


def search(
    contest: Contest,
    method: str,
    build: Callable[[Mapping[str, float | int]], Algorithm],
    ranges: Mapping[str, Range],
    *,
    smoothness: float,
    free_steps: bool,
    own_step: bool = False,
    settings: int = SETTINGS,
    budget: float | None = None,
) -> Found:
    """The best settings of a method within ``ranges``, and how to adapt with them.

    ``build`` gives the method with some settings. ``free_steps`` says that it trains without the step size of
    adaptation; ``own_step`` that clients adapt by the method's own, which somebody has said. ``budget`` is what a run
    costs, if not what one of this method does.
    """
    example = build({name: size.at(0.5) for name, size in ranges.items()})
    cost = budget or run_cost(example, contest.federation, contest.rounds, contest.cohort)
    if isinstance(example, LocalOnly):
        return search_alone(contest, method, cast(Callable[..., LocalOnly], build), ranges, 2 * cost)
    plan = rungs(contest.rounds, min(settings, _most_in_memory(contest, example)) if ranges else 1)
    points = spread(ranges, plan[0].settings) if ranges else [{}]
    sizes = _Sizes(smoothness, None)
    if example.adapts_by is None or own_step:
        sizes = _Sizes(None, None)
    elif contest.inner_lr is not None:
        sizes = _Sizes(None, lambda algorithm: contest.inner_lr)
    elif not free_steps:
        sizes = _Sizes(smoothness, lambda algorithm: vars(algorithm)[algorithm.adapts_by])
    return _Halving(contest, method, build, ranges, plan, points, sizes, cost).run()


def _most_in_memory(contest: Contest, algorithm: Algorithm) -> int:
    """How many settings have room, where every client keeps a memory."""
    params = jax.eval_shape(contest.problem.init, jax.random.key(0))
    client = jax.eval_shape(algorithm.init_client, params)
    return max(2, MEMORY // max(1, tree.nbytes(client) * contest.federation.trained))


class _Sizes(NamedTuple):
    """Step sizes of adaptation that are tried: what fits the loss, and what each setting trains with or was given."""

    smoothness: float | None
    own: Callable[[Any], float | None] | None

    @property
    def several(self) -> bool:
        """Whether there is anything to choose."""
        return self.smoothness is not None

    def of(self, algorithms: Sequence[Algorithm], number: int) -> np.ndarray | None:
        """One row per setting; ``None`` for methods that know best themselves."""
        columns = []
        if self.smoothness is not None:
            columns.append(np.tile(step_sizes(number, self.smoothness), (len(algorithms), 1)))
        if self.own is not None:
            columns.append(np.array([[self.own(each)] for each in algorithms], float))
        return np.concatenate(columns, axis=1) if columns else None


class _Judged(NamedTuple):
    """What a setting was worth in some round, by all ways to adapt."""

    trial: int
    score: Score
    """Over (step size, number of steps)."""
    sizes: np.ndarray | None

    @property
    def value(self) -> float:
        """The score of the best way."""
        return float(self.score.value[self.score.best()])

    @property
    def rank(self) -> tuple[float, float]:
        """What it is compared by: the best is least."""
        place = self.score.best()
        return float(self.score.compared[place]), float(self.score.loss[place])


class _Halving:
    """One method's search."""

    def __init__(
        self,
        contest: Contest,
        method: str,
        build: Callable[[Mapping[str, float | int]], Algorithm],
        ranges: Mapping[str, Range],
        plan: Sequence[Rung],
        points: Sequence[Mapping[str, float | int]],
        sizes: _Sizes,
        cost: float,
    ):
        self.contest, self.method, self.build, self.sizes, self.rungs = contest, method, build, sizes, plan
        # The shared model's steps matter most, and are varied first.
        self.ranges = dict(sorted(ranges.items(), key=lambda item: item[0] not in OUTER))
        self.points = list(points)
        self.algorithms = [build(point) for point in points]
        later = sum(rung.beside for rung in plan)
        self.trials = contest.trials([*self.algorithms, *self.algorithms[:1] * later], int(min(contest.rounds, 256)))
        # What is trained together with the best costs nothing.
        self.finalists = min(max(plan[-1].settings, self.trials.together), FINALISTS, len(self.points))
        self.total = float(cost_of(plan))
        self.done = 0.0
        self.metric = headline(contest.problem)
        least = FREE / max(1, size_of(contest.problem))
        looks = len(LOOKS) * self.finalists + 1
        self.quick = self._affordable(QUICK, sum(rung.settings for rung in self.rungs[:-1]), QUICK_SHARE * cost, least)
        self.whole = self._affordable(WHOLE, looks, WHOLE_SHARE * cost, least)
        self.tried: dict[int, dict[str, Any]] = {}
        self.values: dict[int, float] = {}

    def _affordable(self, ladder: Ladder, times: int, most: float, least: float) -> Ladder:
        """A ladder that can be judged so many times."""
        given = self.contest.steps
        if not self.sizes.several:
            ladder = ladder._replace(sizes=1)
        if given is not None:
            ladder = ladder._replace(steps=given)
        return affordable(
            self.contest.federation, ladder, self.contest.batch_size, max(times, 1), max(most, least), given is not None
        )

    def run(self) -> Found:
        """Train, judge and drop, until the best are trained to the end."""
        alive = list(range(len(self.points)))
        # Where sharing brings nothing, clients had best take many steps of their own from where training begins.
        begun = self._judge([0], self.whole, _Sizes(self.sizes.smoothness, None)) if self.sizes.several else []
        for closer, (rung, following) in enumerate(pairwise(self.rungs)):
            self._advance(alive, rung.rounds)
            scores = self._judge(alive, self.quick, self.sizes)
            order = [each.trial for each in sorted(scores, key=self._steadier)]
            new = self._beside(order, following.beside, closer)
            number = self.finalists if following is self.rungs[-1] else following.settings
            alive = sorted(order[: number - len(new)]) + new
        judged = self._to_the_end(alive)
        chosen = min(judged, key=self._steadier)
        way = min([each for each in judged if each.trial == chosen.trial] + begun, key=lambda each: each.rank)
        size, steps = way.score.best()
        return Found(
            settings=dict(self.points[chosen.trial]),
            steps=self.whole.steps[steps],
            inner_lr=None if way.sizes is None else float(f"{way.sizes[size]:.4g}"),
            score=way.value * self._sign,
            tried=[self.tried[i] for i in sorted(self.tried)],
        )

    def _beside(self, order: Sequence[int], number: int, closer: int) -> list[int]:
        """So many new settings beside the best that there are, before their first round, closer from rung to rung."""
        among, added = self.rungs[0].settings * 2 ** (len(self.ranges) * closer), list[int]()
        for trial in order:
            for point in around(self.ranges, self.points[trial], number, among):
                if len(added) < number and point not in self.points and np.isfinite(self.values[trial]):
                    added.append(len(self.points))
                    self.points.append(point)
                    self.algorithms.append(self.build(point))
                    self.trials.restart(added[-1], self.algorithms[-1])
        return added

    def _to_the_end(self, finalists: list[int]) -> list[_Judged]:
        """What finalists are worth, of those that have not diverged by the last round; others take their place."""
        rounds, looked = self.contest.rounds, []
        waiting = sorted(set(self.values) - set(finalists), key=lambda trial: self._rank(trial))
        for attempt in range(ATTEMPTS):
            judged = []
            for share in LOOKS:
                if self._advance(finalists, max(1, round(share * rounds))):
                    judged += self._judge(finalists, self.whole, self.sizes)
            looked += judged
            lasting = {each.trial for each in judged[-len(finalists) :] if np.isfinite(each.value)}
            if lasting:
                return [each for each in judged if each.trial in lasting]
            waiting = self._gentler(waiting, finalists, GENTLER ** (2**attempt))
            if not waiting:
                break
            finalists, waiting = sorted(waiting[: len(finalists)]), waiting[len(finalists) :]
        return looked

    def _gentler(self, waiting: list[int], diverged: list[int], times: float) -> list[int]:
        """Those with outer steps so many times below all that have diverged; all, where there are none."""
        name = next((name for name in OUTER if name in self.points[0]), None)
        if name is None:
            return waiting
        most = min(self.points[trial][name] for trial in diverged) / times
        return [trial for trial in waiting if self.points[trial][name] <= most] or waiting

    def _steadier(self, judged: _Judged) -> tuple[bool, tuple[float, float]]:
        """What settings are chosen by: those with a margin to what has diverged first, of these the best."""
        return self._at_the_edge(judged.trial), judged.rank

    def _at_the_edge(self, trial: int) -> bool:
        """Whether anything diverged with steps not much larger; where it did, this one may with another seed."""
        point, names = self.points[trial], [name for name in STEP_SIZES if name in self.ranges]
        return any(
            not np.isfinite(value) and all(self.points[other][name] <= MARGIN * point[name] for name in names)
            for other, value in self.values.items()
        )

    def _rank(self, trial: int) -> tuple[int, float]:
        return -int(self.trials.rounds[trial]), self.values[trial]

    def _advance(self, alive: list[int], rounds: int) -> bool:
        """Train some until they have so many rounds, and whether they had fewer."""
        self._tell(self._trying(alive))
        behind = [trial for trial in alive if self.trials.rounds[trial] < rounds]
        for done in sorted({int(self.trials.rounds[trial]) for trial in behind}):
            level = [trial for trial in behind if self.trials.rounds[trial] == done]
            self.trials.advance(level, rounds - done, lambda more: self._trained(more, alive))
        return bool(behind)

    def _judge(self, alive: list[int], ladder: Ladder, tried: _Sizes) -> list[_Judged]:
        self._tell("adapting")
        by, sizes = (
            choosers(self.contest.federation, ladder.clients),
            tried.of([self.algorithms[trial] for trial in alive], ladder.sizes),
        )
        score = judged(
            self.trials, alive, sizes, ladder, by, self.metric, self.contest.batch_size, lambda: self._tell("adapting")
        )
        found = []
        for place, trial in enumerate(alive):
            own = None if sizes is None else sizes[place]
            found.append(_Judged(trial, score.at(place), own))
            value, rounds = found[-1].value, int(self.trials.rounds[trial])
            if rounds:
                self.values[trial] = value
                shown = value * self._sign if np.isfinite(value) else None
                self.tried[trial] = {**self.points[trial], "rounds": rounds, self.metric.name: shown}
        return found

    @property
    def _sign(self) -> int:
        return -1 if self.metric.higher_is_better else 1

    def _trying(self, alive: Sequence[int]) -> str:
        return f"trying {len(alive)} settings" if len(alive) > 1 else "training"

    def _trained(self, rounds: int, alive: Sequence[int]) -> None:
        self.done += rounds
        self._tell(self._trying(alive))

    def _tell(self, doing: str) -> None:
        finite = [value for value in self.values.values() if np.isfinite(value)]
        best = min(finite) * self._sign if finite else None
        self.contest.watch(Told(self.method, min(1.0, self.done / self.total), doing, best))
