"""What a search may cost: rungs of successive halving, and ladders of adaptation that fit into it.

Costs are counted in gradients of single samples, never in seconds, so that a search does the same wherever it runs.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from headstart.core import FULL, Algorithm, Size, cohort_size
from headstart.data import Federation
from headstart.problems import Problem

__all__ = ["Ladder", "Rung", "adaptation_cost", "affordable", "run_cost", "rungs", "size_of"]

SETTINGS = 24
"""How many settings of a method are tried."""
SHARES = ((1.0, 1 / 24), (1 / 3, 1 / 10), (1 / 6, 1 / 4))
"""For every rung, which share of the settings is still there, and which share of a run's rounds it has by its end."""
RUNS = 2.1
"""All rungs together train for no more rounds than so many runs have."""
UNKNOWN = 20
"""Samples of a client that generates them."""


class Rung(NamedTuple):
    """A stage of successive halving."""

    settings: int
    """How many take part."""
    rounds: int
    """How many rounds each has been trained for by its end."""


class Ladder(NamedTuple):
    """Numbers of adaptation steps, and how many step sizes of each are tried."""

    steps: tuple[int, ...]
    sizes: int
    clients: int
    """The most clients of a group by whom they are judged."""


def rungs(rounds: int, settings: int = SETTINGS) -> tuple[Rung, ...]:
    """Many settings for a few rounds, the best of them for more, and the best of those for a part of a whole run.

    >>> rungs(300)
    (Rung(settings=24, rounds=12), Rung(settings=8, rounds=30), Rung(settings=4, rounds=75))
    >>> rungs(300, settings=1)
    (Rung(settings=1, rounds=75),)
    """
    while True:
        found = [
            Rung(max(min(settings, 2), round(settings * share)), max(1, round(rounds * length)))
            for share, length in SHARES
        ]
        kept = [rung for i, rung in enumerate(found) if i == len(found) - 1 or rung.settings > found[i + 1].settings]
        before = [0, *(rung.rounds for rung in kept)]
        cost = sum(rung.settings * (rung.rounds - done) for rung, done in zip(kept, before, strict=False))
        if settings <= 2 or cost <= RUNS * rounds:
            return tuple(kept)
        settings -= 1


def run_cost(algorithm: Algorithm, federation: Federation, rounds: int, cohort: float | int) -> float:
    """What training costs; a Hessian-vector product is worth two gradients."""
    cost = algorithm.cost()
    counts = None if federation.counts is None else federation.counts["train"][: federation.trained]
    whole = UNKNOWN if counts is None else float(np.mean(counts))
    batches = sum(cost.batches.values())
    batch = cost.samples(1) if not batches else sum(
        n * (whole if size == FULL else int(size)) for size, n in cost.batches.items()
    ) / batches  # fmt: skip
    members = cohort_size(cohort, federation.trained)
    return rounds * members * (cost.gradients + 2 * cost.products) * batch


def adaptation_cost(federation: Federation, steps: Sequence[int], batch_size: Size) -> float:
    """What one client's adaptation costs for all of some numbers of steps, with predicting, a third of a gradient."""
    tested = federation.tasks or federation
    support = query = float(UNKNOWN)
    if tested.counts is not None:
        support, query = (float(np.mean(tested.counts[part])) for part in ("support", "query"))
    batch = support if batch_size == FULL else float(batch_size)
    return sum(steps) * batch + len(steps) * query / 3


def affordable(
    federation: Federation, ladder: Ladder, batch_size: Size, settings: int, most: float, steps_given: bool = False
) -> Ladder:
    """A ladder that costs no more than ``most``: with fewer clients, then step sizes and steps, if need be.

    ``settings`` is how many it is tried on. The least that is left is one number of steps beside none, and all of those
    that somebody has given.
    """
    steps, sizes, clients = ladder
    fewest = len(steps) if steps_given else 2
    while adaptation_cost(federation, steps, batch_size) * sizes * clients * settings > most:
        if clients > 10:
            clients -= 1
        elif len(steps) > max(4, fewest) or (sizes <= 3 and len(steps) > fewest):
            steps = steps[:-1]
        elif sizes > 3:
            sizes -= 2
        elif clients > 4:
            clients -= 1
        else:
            break
    return Ladder(steps, sizes, clients)


def size_of(problem: Problem) -> int:
    """How many parameters a model has."""
    shapes = jax.eval_shape(problem.init, jax.random.key(0))
    return sum(leaf.size for leaf in jax.tree.leaves(shapes))
