"""The steps that a search has found, tried again at full length: smaller and larger ones, with other seeds."""

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

__all__ = ["REFINING_SEEDS", "Try", "best_at_length", "tries"]

REFINING_SEEDS = 2
ALONG = (1.0, 0.1, 0.3, 3.0, 10.0)
"""Multiples of the step that was found, where it is the only one of training; of equals the first is taken."""
ACROSS = ((1.0, 1.0), (0.3, 1.0), (1.0, 0.3), (0.3, 0.3), (3.0, 1.0))
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


def best_at_length(
    algorithms: Sequence[Algorithm], job: Job, evaluation: Evaluation, rounds: int, *, seeds: Sequence[int]
) -> int:
    """Which of the algorithms serves validation clients best after all rounds, on average over seeds.

    One that diverges with any seed is not chosen, unless all do.
    """
    train = job.settings.train
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
    return min(range(len(scores)), key=lambda place: tuple(scores[place]))


def _score(table: Any, algorithm: int, seed: int, job: Job, steps: int) -> tuple[float, float]:
    """Less is better; infinity is what has diverged."""
    mine = pc.and_(pc.equal(table["algorithm"], algorithm), pc.equal(table["seed"], seed))
    score = score_of_table(table.filter(mine), job.problem, steps)
    return float(score.value), float(score.loss)
