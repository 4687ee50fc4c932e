"""Successive halving: many settings of a method for a few rounds, the best of them for more, and how to adapt."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import jax
import numpy as np

from headstart.algorithms import LocalOnly, fedavg
from headstart.core import FULL, Algorithm, Size, Weighting, tree
from headstart.data import Federation
from headstart.metrics import LOSS
from headstart.problems import Problem
from headstart.simulate.trials import Trials
from headstart.tuning.budget import SETTINGS, Ladder, affordable, run_cost, rungs, size_of
from headstart.tuning.choosing import Score, choosers, headline, score_of, steady
from headstart.tuning.ranges import ADAPTATION_STEPS, Range, grid, spread
from headstart.wire import Wire

__all__ = ["Contest", "Found", "SearchStopped", "Told", "search"]

QUICK = Ladder((0, 1, 10), 3, 20)
"""How settings are judged on the way."""
WHOLE = Ladder((0, 1, 3, 10, 30, 100, 300), 7, 20)
"""How to adapt is chosen from these, with the settings of the last rung."""
ALONE = Ladder((10, 30, 100, 300), 1, 20)
"""Numbers of steps of a client that trains alone."""
ALONE_SIZES = 12
OWN_STEPS = "own_steps"
QUICK_SHARE, WHOLE_SHARE = 0.4, 0.4
"""What these may cost, as shares of a run."""
FREE = 2e11
"""What each of these may cost in any case, as a product of gradients of single samples and parameters: some seconds."""
MEMORY = 2**31
"""So many bytes of clients' memories are held together."""
FACTORS = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Step sizes of adaptation, as multiples of that in training."""


class Told(NamedTuple):
    """How far a search has come."""

    method: str
    done: float
    """Of all that is to be done, from 0 to 1."""
    doing: str
    best: float | None
    """The best score so far, in the headline metric."""


class SearchStopped(Exception):
    """Raised by whoever watches a search, to end it there."""


@dataclass(frozen=True)
class Found:
    """What a search has chosen."""

    settings: Mapping[str, float | int]
    steps: int
    """Of adaptation."""
    inner_lr: float | None
    """The step size of adaptation; ``None`` for the method's own."""
    score: float
    """The mean of the headline metric over the clients that chose."""
    tried: Sequence[Mapping[str, Any]]
    """One row per setting: its numbers, for how many rounds it was trained, and its score then."""


@dataclass(frozen=True)
class Contest:
    """Where settings of a method compete."""

    problem: Problem
    federation: Federation
    rounds: int
    """Of the run that they are for."""
    cohort: float | int
    weighting: Weighting
    seed: int
    wire: Wire | None = None
    batch_size: Size = FULL
    """Of adaptation."""
    steps: tuple[int, ...] | None = None
    """Numbers of adaptation steps to choose from, where somebody has said them."""
    inner_lr: float | None = None
    """The step size of adaptation, where somebody has said it."""
    devices: int | None = None
    watch: Callable[[Told], None] = field(default=lambda told: None)

    def trials(self, algorithms: Sequence[Algorithm], longest: int) -> Trials:
        """The settings, before their first round."""
        return Trials(
            algorithms, self.problem, self.federation, seed=self.seed, cohort=self.cohort, weighting=self.weighting,
            wire=self.wire, devices=self.devices, longest=longest,
        )  # fmt: skip


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
    adaptation, which is then chosen from multiples of 1 / ``smoothness``; ``own_step`` that clients adapt by the
    method's own, which somebody has said. ``budget`` is what a run costs, if not what one of this method does.
    """
    example = build({name: size.at(0.5) for name, size in ranges.items()})
    cost = budget or run_cost(example, contest.federation, contest.rounds, contest.cohort)
    if isinstance(example, LocalOnly):
        return _alone(contest, method, cast(Callable[..., LocalOnly], build), ranges, 2 * cost)
    points = spread(ranges, min(settings, _most_in_memory(contest, example))) if ranges else [{}]
    algorithms = [build(point) for point in points]
    adapts = None if own_step or contest.inner_lr is not None else example.adapts_by
    bases = None
    if adapts is not None:
        free = ADAPTATION_STEPS[2] / smoothness
        bases = np.array([free if free_steps else float(vars(each)[adapts]) for each in algorithms])
    return _Halving(contest, method, algorithms, points, bases, cost).run()


def _most_in_memory(contest: Contest, algorithm: Algorithm) -> int:
    """How many settings have room, where every client keeps a memory."""
    params = jax.eval_shape(contest.problem.init, jax.random.key(0))
    client = jax.eval_shape(algorithm.init_client, params)
    return max(2, MEMORY // max(1, tree.nbytes(client) * contest.federation.trained))


class _Halving:
    """One method's search."""

    def __init__(
        self,
        contest: Contest,
        method: str,
        algorithms: Sequence[Algorithm],
        points: Sequence[Mapping[str, float | int]],
        bases: np.ndarray | None,
        cost: float,
    ):
        self.contest, self.method, self.points = contest, method, points
        self.rungs = rungs(contest.rounds, len(points))
        self.points = points[: self.rungs[0].settings]
        self.algorithms = algorithms[: self.rungs[0].settings]
        lengths = np.diff([0, *(rung.rounds for rung in self.rungs)])
        self.trials = contest.trials(self.algorithms, int(min(lengths.max(), 256)))
        self.total = float(sum(rung.settings * length for rung, length in zip(self.rungs, lengths, strict=True)))
        self.done = 0.0
        self.best: float | None = None
        self.metric = headline(contest.problem)
        self.bases = bases
        """The step sizes of adaptation that others are tried as multiples of; ``None`` for one that is given."""
        sizes = 1 if self.bases is None else QUICK.sizes
        judged = sum(rung.settings for rung in self.rungs[:-1])
        quick, whole = QUICK._replace(sizes=sizes), WHOLE._replace(sizes=1 if sizes == 1 else WHOLE.sizes)
        given = contest.steps is not None
        if contest.steps is not None:
            quick, whole = quick._replace(steps=contest.steps), whole._replace(steps=contest.steps)
        federation, last = contest.federation, self.rungs[-1].settings
        least = FREE / max(1, size_of(contest.problem))
        self.quick = affordable(
            federation, quick, contest.batch_size, max(judged, 1), max(QUICK_SHARE * cost, least), given
        )
        self.whole = affordable(federation, whole, contest.batch_size, last, max(WHOLE_SHARE * cost, least), given)
        self.tried: dict[int, dict[str, Any]] = {}

    def run(self) -> Found:
        """Train, judge and drop, until one is left."""
        alive = list(range(len(self.points)))
        for number, rung in enumerate(self.rungs):
            self._tell(f"trying {len(alive)} settings" if len(alive) > 1 else "training")
            self.trials.advance(alive, rung.rounds - int(self.trials.rounds[alive[0]]), self._trained)
            last = number == len(self.rungs) - 1
            score, sizes = self._judge(alive, self.whole if last else self.quick)
            if last:
                break
            best = Score(*(part.reshape(len(alive), -1).min(axis=1) for part in _ranked(score)))
            alive = sorted(alive[place] for place in best.order()[: self.rungs[number + 1].settings])
        place = score.best()
        chosen = alive[place[0]]
        size = None if sizes is None else float(f"{sizes[place[0], place[1]]:.4g}")
        steps = self.whole.steps[place[2]]
        shown = float(score.value[place]) * (-1 if self.metric.higher_is_better else 1)
        return Found(dict(self.points[chosen]), steps, size, shown, [self.tried[i] for i in sorted(self.tried)])

    def _judge(self, alive: list[int], ladder: Ladder) -> tuple[Score, np.ndarray | None]:
        self._tell("adapting")
        middle = len(FACTORS) // 2
        factors = np.array(FACTORS[middle - ladder.sizes // 2 : middle + 1 + ladder.sizes // 2])
        sizes = None if self.bases is None else self.bases[alive][:, None] * factors
        if self.contest.inner_lr is not None and self.algorithms[0].adapts_by is not None:
            sizes = np.full((len(alive), 1), self.contest.inner_lr)
        by = choosers(self.contest.federation, ladder.clients)
        values = self.trials.scores(
            alive, steps=ladder.steps, ids=by.ids, batch_size=self.contest.batch_size, sizes=sizes,
            told=lambda: self._tell("adapting"),
        )  # fmt: skip
        score = score_of(values, by.weights, self.metric).only(steady(values[LOSS.name], ladder.steps))
        for place, trial in enumerate(alive):
            value = float(score.value[place].min()) * (-1 if self.metric.higher_is_better else 1)
            shown = value if np.isfinite(value) else None
            self.tried[trial] = {
                **self.points[trial], "rounds": int(self.trials.rounds[trial]), self.metric.name: shown
            }  # fmt: skip
        finite = [row[self.metric.name] for row in self.tried.values() if row[self.metric.name] is not None]
        if finite:
            self.best = max(finite) if self.metric.higher_is_better else min(finite)
        return score, sizes

    def _trained(self, rounds: int) -> None:
        self.done += rounds
        self._tell(f"trying {len(self.points)} settings" if len(self.points) > 1 else "training")

    def _tell(self, doing: str) -> None:
        self.contest.watch(Told(self.method, self.done / self.total, doing, self.best))


def _ranked(score: Score) -> tuple[np.ndarray, np.ndarray]:
    """Values and losses, where a setting's loss is that of its best way to adapt."""
    flat = Score(*(part.reshape(len(part), -1) for part in score))
    losses = np.where(flat.value == flat.value.min(axis=1, keepdims=True), flat.loss, np.inf)
    return flat.value, losses


def _alone(
    contest: Contest,
    method: str,
    build: Callable[[Mapping[str, float | int]], LocalOnly],
    ranges: Mapping[str, Range],
    most: float,
) -> Found:
    """The best step size and number of steps of clients that train alone.

    They are steps from where training begins: those that FedAvg's clients would take before the first round.
    """
    numbers = {name: size for name, size in ranges.items() if name != OWN_STEPS}
    points = grid(numbers, ALONE_SIZES) if numbers else [{}]
    given = build(points[0])
    steps = ALONE.steps if OWN_STEPS in ranges else (given.own_steps,)
    sizes = np.array([[float(build(point).learning_rate) for point in points]])
    ladder = affordable(
        contest.federation,
        ALONE._replace(steps=steps, sizes=len(points)),
        contest.batch_size,
        1,
        max(most, FREE / max(1, size_of(contest.problem))),
    )
    if ladder.sizes < len(points):  # those in the middle
        kept = np.linspace(0, len(points) - 1, ladder.sizes).round().astype(int)
        points, sizes = [points[i] for i in kept], sizes[:, kept]
    metric, by = headline(contest.problem), choosers(contest.federation, ladder.clients)
    done = 0

    def tell() -> None:
        nonlocal done
        contest.watch(Told(method, done / len(points), f"trying {len(points)} step sizes", None))
        done += 1

    tell()
    untrained = contest.trials([fedavg(batch_size=given.batch_size)], 1)
    tried = (0, *ladder.steps)  # none, for comparison
    values = untrained.scores(
        [0], steps=tried, ids=by.ids, batch_size=contest.batch_size, sizes=sizes, told=tell
    )  # fmt: skip
    allowed = steady(values[LOSS.name], tried)[..., len(tried) - len(ladder.steps) :]
    score = score_of(
        {name: of[..., len(tried) - len(ladder.steps) :, :] for name, of in values.items()}, by.weights, metric
    )
    score = score.only(allowed)
    _, point, rung = score.best()
    sign = -1 if metric.higher_is_better else 1
    rows = [
        {**numbers, OWN_STEPS: n, "rounds": 0, metric.name: float(value) * sign if np.isfinite(value) else None}
        for numbers, of_point in zip(points, score.value[0], strict=True)
        for n, value in zip(ladder.steps, of_point, strict=True)
    ]
    settings = {**points[point], **({OWN_STEPS: ladder.steps[rung]} if OWN_STEPS in ranges else {})}
    return Found(settings, 1, None, float(score.value[0, point, rung]) * sign, rows)
