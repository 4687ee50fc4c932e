"""The steps that a search has found, tried again at full length: smaller and larger ones, with other seeds."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow.compute as pc

from headstart.config import Plan
from headstart.core import Algorithm
from headstart.experiment.running import Job
from headstart.simulate import Evaluation, sweep
from headstart.tuning import trains_without_adapting
from headstart.tuning.choosing import score_of_table

__all__ = ["REFINING_SEEDS", "Try", "best_at_length", "steadiest", "tries"]

REFINING_SEEDS = 2
MARGIN = 2.0
"""How much larger steps may be without diverging, where a step is to be chosen."""
ALONG = (1.0, 0.25, 0.5, 2.0, 4.0)
"""Multiples of the step that was found, where it is the only one of training; of equals the first is taken."""
ACROSS = ((1.0, 1.0), (0.5, 1.0), (1.0, 0.5), (0.5, 0.5), (2.0, 1.0))
"""The same where training also adapts: multiples of its step, and of that of adaptation."""
STEPS = ("server_lr", "outer_lr")
"""By which the shared model moves, the first that a method has."""
INNER = "inner_lr"


class Try(NamedTuple):
    """A method with another step."""

    changed: Mapping[str, float]
    algorithm: Algorithm


def tries(method: Plan, searched: Collection[str]) -> list[Try]:
    """The method as it was found, and with other sizes of its steps; none if no step was left to the search."""
    name = str(method.resolved["name"])
    step = next((step for step in STEPS if step in searched), None)
    inner = INNER if INNER in searched and not trains_without_adapting(name) else None
    if step is not None and inner is not None:
        points = [{step: outer, inner: own} for outer, own in ACROSS]
    else:
        points = [{named: factor} for factor in ALONG if (named := step or inner) is not None]
    found = []
    for factors in points:
        changed = {key: float(f"{factor * method.resolved[key]:.4g}") for key, factor in factors.items()}
        found.append(Try(changed, method.call(**{**method.arguments, **changed})))
    return found


def best_at_length(tried: Sequence[Try], job: Job, evaluation: Evaluation, rounds: int, *, seeds: Sequence[int]) -> int:
    """Which of the tries serves validation clients best after all rounds, on average over seeds, with some margin."""
    train = job.settings.train
    algorithms = [one.algorithm for one in tried]
    looking = replace(evaluation, every=rounds, groups=("trained", "validation"))
    done = sweep(
        algorithms, job.problem, job.federation, seeds=seeds, rounds=rounds, cohort=train.cohort,
        weighting=train.weighting, wire=job.wire, evaluation=looking,
    )  # fmt: skip
    last = done.table.filter(pc.equal(done.table["round"], rounds))
    scores = [
        np.mean([_score(last, place, seed, job, evaluation.steps[-1]) for seed in seeds], axis=0)
        for place in range(len(algorithms))
    ]
    return steadiest([one.changed for one in tried], [(float(value), float(loss)) for value, loss in scores])


def steadiest(steps: Sequence[Mapping[str, float]], scores: Sequence[tuple[float, float]]) -> int:
    """The place of the best score, of which less is better, with a margin; infinity is what has diverged.

    A few seeds do not find that a step diverges with one in five. So steps are chosen only where twice as large ones
    were tried, each by itself, and have not diverged; where there are none such, among all that have not.
    """
    held = [place for place, score in enumerate(scores) if math.isfinite(sum(score))]
    safe = [place for place in held if (next_ := _larger(steps, place)) and set(next_) <= set(held)]
    return min(safe or held or range(len(scores)), key=lambda place: scores[place])


def _larger(steps: Sequence[Mapping[str, float]], place: int) -> list[int]:
    """The tries of which one step is larger, within the margin, and the others are the same."""
    digits = 1 + 1e-3  # that steps are rounded to
    found = []
    for other, sizes in enumerate(steps):
        ratios = [sizes[name] / size if size else 1.0 for name, size in steps[place].items()]
        grown = [ratio for ratio in ratios if ratio > digits]
        if len(grown) == 1 and max(ratios) < MARGIN * digits and min(ratios) > 1 / digits:
            found.append(other)
    return found


def _score(table: Any, algorithm: int, seed: int, job: Job, steps: int) -> tuple[float, float]:
    """Less is better; infinity is what has diverged."""
    mine = pc.and_(pc.equal(table["algorithm"], algorithm), pc.equal(table["seed"], seed))
    score = score_of_table(table.filter(mine), job.problem, steps)
    return float(score.value), float(score.loss)
