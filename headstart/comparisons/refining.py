"""The step that a search has found, tried again at full length: smaller and larger ones, with other seeds."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow.compute as pc

from headstart.config import Plan
from headstart.core import Algorithm
from headstart.experiment.running import Job
from headstart.simulate import Evaluation, sweep
from headstart.tuning.choosing import score_of_table

__all__ = ["REFINING_SEEDS", "Try", "best_at_length", "tries"]

REFINING_SEEDS = 2
FACTORS = (1.0, 0.2, 0.5, 2.5, 8.0)
"""Of the step that was found; of equals the first is taken."""
STEPS = ("server_lr", "outer_lr", "inner_lr")
"""By which the shared model moves in a round, the first that a method has."""


class Try(NamedTuple):
    """A method with another step."""

    changed: Mapping[str, float]
    algorithm: Algorithm


def tries(method: Plan, searched: Collection[str]) -> list[Try]:
    """The method as it was found, and with other sizes of its step; none if no step was left to the search."""
    # Reptile's ``outer_lr`` is how far the server goes towards its clients, which has an end.
    steps = STEPS[2:] if method.resolved["name"] == "reptile" else STEPS
    name = next((step for step in steps if step in searched), None)
    if name is None:
        return []
    sizes = [float(f"{factor * method.resolved[name]:.4g}") for factor in FACTORS]
    return [Try({name: size}, method.call(**{**method.arguments, name: size})) for size in sizes]


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
