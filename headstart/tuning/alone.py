"""Clients that train alone: how many steps, and of which size."""

from collections.abc import Callable, Mapping

import numpy as np

from headstart.algorithms import LocalOnly, fedavg
from headstart.tuning.adapting import judged
from headstart.tuning.budget import Ladder, affordable, size_of
from headstart.tuning.choosing import choosers, headline
from headstart.tuning.contest import Contest, Found, Told
from headstart.tuning.ranges import Range, grid

__all__ = ["search_alone"]

LADDER = Ladder((0, 10, 30, 100, 300), 12, 200)
"""Numbers of steps; none, for comparison."""
OWN_STEPS = "own_steps"
FREE = 4e10
"""What the search may cost in any case, as a product of gradients of single samples and parameters: some seconds."""


def search_alone(
    contest: Contest,
    method: str,
    build: Callable[[Mapping[str, float | int]], LocalOnly],
    ranges: Mapping[str, Range],
    most: float,
) -> Found:
    """The best step size and number of steps of clients that train alone, at a cost of at most ``most``.

    They are steps from where training begins: those that FedAvg's clients would take before the first round.
    """
    numbers = {name: size for name, size in ranges.items() if name != OWN_STEPS}
    points = grid(numbers, LADDER.sizes) if numbers else [{}]
    given = build(points[0])
    steps = LADDER.steps if OWN_STEPS in ranges else (0, given.own_steps)
    allowed = max(most, FREE / max(1, size_of(contest.problem)))
    ladder = affordable(
        contest.federation, LADDER._replace(steps=steps, sizes=len(points)), contest.batch_size, 1, allowed
    )
    if ladder.sizes < len(points):
        points = [points[i] for i in np.linspace(0, len(points) - 1, ladder.sizes).round().astype(int)]
    metric, by = headline(contest.problem), choosers(contest.federation, ladder.clients)
    done = 0

    def tell() -> None:
        nonlocal done
        contest.watch(Told(method, min(1.0, done / len(points)), f"trying {len(points)} step sizes", None))
        done += 1

    tell()
    untrained = contest.trials([fedavg(batch_size=given.batch_size)], 1)
    sizes = np.array([[float(build(point).learning_rate) for point in points]])
    score = judged(untrained, [0], sizes, ladder, by, metric, contest.batch_size, tell)
    taken = np.broadcast_to(np.array(ladder.steps) > 0, score.value.shape)  # whoever trains alone takes steps
    _, point, rung = score.only(taken).best()
    sign = -1 if metric.higher_is_better else 1
    rows = [
        {**numbers, OWN_STEPS: n, "rounds": 0, metric.name: float(value) * sign if np.isfinite(value) else None}
        for numbers, of_point in zip(points, score.value[0], strict=True)
        for n, value in zip(ladder.steps, of_point, strict=True)
        if n
    ]
    settings = {**points[point], **({OWN_STEPS: ladder.steps[rung]} if OWN_STEPS in ranges else {})}
    return Found(settings, 1, None, float(score.value[0, point, rung]) * sign, rows)
