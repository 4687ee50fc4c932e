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

__all__ = ["LONG_SIZES", "Ladder", "Rung", "adaptation_cost", "affordable", "cost_of", "run_cost", "rungs", "size_of"]

SETTINGS = 20
"""How many settings of a method are tried, those beside the best of the earlier ones included."""
BESIDE = (0.2, 0.1)
"""Which shares of these are beside the best of the first and of the second rung."""
SHARES = ((1.0, 1 / 30), (0.5, 1 / 10), (0.36, 1 / 4), (0.07, 1.0))
"""For every rung, how many settings take part, as a share of the first ones, and which share of all rounds it has by
its end."""
RUNS = 2.9
"""All rungs together train for no more rounds than so many runs have."""
LONG = 30
"""More steps of adaptation than so many are tried with a few step sizes only, the largest that are stable: with smaller
ones, fewer steps of a larger size come as far."""
LONG_SIZES = 2
FEW_SIZES = 6
"""So many step sizes of adaptation are as good as twice as many with half the clients."""
UNKNOWN = 20
"""Samples of a client that generates them."""


class Rung(NamedTuple):
    """A stage of successive halving."""

    settings: int
    """How many take part."""
    rounds: int
    """How many rounds each has been trained for by its end."""
    beside: int = 0
    """How many of them are new, beside the best so far."""


class Ladder(NamedTuple):
    """Numbers of adaptation steps, and how many step sizes of each are tried."""

    steps: tuple[int, ...]
    sizes: int
    clients: int
    """The most clients of a group by whom they are judged."""

    @property
    def short(self) -> tuple[int, ...]:
        """Those that are tried with all step sizes; all, if only many would tell which sizes are stable."""
        few = tuple(n for n in self.steps if n <= LONG)
        return few if any(few) else self.steps

    @property
    def long(self) -> tuple[int, ...]:
        """Those that are tried with a few."""
        return self.steps[len(self.short) :]

    def cost(self, federation: Federation, batch_size: Size) -> float:
        """What it costs to judge one setting."""
        short, long = (adaptation_cost(federation, steps, batch_size) for steps in (self.short, self.long))
        return self.clients * (self.sizes * short + min(self.sizes, LONG_SIZES) * long)


def rungs(rounds: int, settings: int = SETTINGS) -> tuple[Rung, ...]:
    """Many settings for a few rounds, the best and others beside for more, nearer each time, and the best for all.

    >>> [tuple(rung) for rung in rungs(300)]
    [(14, 10, 0), (7, 30, 4), (5, 75, 2), (1, 300, 0)]
    >>> rungs(300, settings=1)
    (Rung(settings=1, rounds=300, beside=0),)
    """
    while True:
        beside = [0, *(int(settings * share + 0.5) for share in BESIDE), 0]
        first = settings - sum(beside)
        found = [
            Rung(max(1, round(first * share)), max(1, round(rounds * length)), new)
            for (share, length), new in zip(SHARES, beside, strict=True)
        ]
        kept = [rung for i, rung in enumerate(found) if i == len(found) - 1 or rung.settings > found[i + 1].settings]
        if settings <= 2 or cost_of(kept) <= RUNS * rounds:
            return tuple(kept)
        settings -= 1


def cost_of(plan: Sequence[Rung]) -> int:
    """How many rounds of single settings they are."""
    before = [0, *(rung.rounds for rung in plan)]
    return sum(
        rung.settings * (rung.rounds - done) + rung.beside * done for rung, done in zip(plan, before, strict=False)
    )


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
    """A ladder that costs no more than ``most``: with fewer step sizes, then clients, and steps at last, if need be.

    ``settings`` is how many it is tried on. The least that is left is one number of steps beside none, and all of those
    that somebody has given.
    """
    fewest = len(ladder.steps) if steps_given else 2
    tested = federation.tasks or federation
    if not tested.endless:
        ladder = ladder._replace(clients=min(ladder.clients, max(tested.trained, tested.validation)))
    while ladder.cost(federation, batch_size) * settings > most:
        steps, sizes, clients = ladder
        if sizes > FEW_SIZES:
            ladder = ladder._replace(sizes=max(FEW_SIZES, sizes - 2))
        elif clients > 10:
            ladder = ladder._replace(clients=clients - 1)
        elif len(steps) > max(4, fewest) or (sizes <= 3 and len(steps) > fewest):
            ladder = ladder._replace(steps=steps[:-1])
        elif sizes > 3:
            ladder = ladder._replace(sizes=max(3, sizes - 2))
        elif clients > 4:
            ladder = ladder._replace(clients=clients - 1)
        else:
            break
    return ladder


def size_of(problem: Problem) -> int:
    """How many parameters a model has."""
    shapes = jax.eval_shape(problem.init, jax.random.key(0))
    return sum(leaf.size for leaf in jax.tree.leaves(shapes))
