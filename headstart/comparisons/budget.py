"""What a round of a method costs, and how many rounds a budget is worth."""

from typing import Literal, NamedTuple

import numpy as np

from headstart.core import FULL, Algorithm, RefreshingAlgorithm, Weighting, tree
from headstart.data import Federation
from headstart.problems import Problem
from headstart.simulate import Simulation
from headstart.wire import Wire

__all__ = ["Budget", "Spent", "affordable", "per_round"]

Budget = Literal["rounds", "samples", "bytes"]
"""What methods are given equally much of."""


class Spent(NamedTuple):
    """What training has cost."""

    rounds: float
    samples: float
    bytes: float

    def times(self, rounds: float) -> "Spent":
        """The cost of so many."""
        return Spent(*(rounds * part for part in self))


def per_round(
    algorithm: Algorithm,
    problem: Problem,
    federation: Federation,
    *,
    cohort: float | int,
    weighting: Weighting = "uniform",
    wire: Wire | None = None,
) -> Spent:
    """The cost of one round, on average over cohorts: samples drawn, and bytes up and down.

    Clients that learn by themselves alone need no rounds, and spend nothing in them.
    """
    if not algorithm.cost().gradients:
        return Spent(1.0, 0.0, 0.0)
    simulation = Simulation(algorithm, problem, federation, cohort=cohort, weighting=weighting, wire=wire)
    cost, members, start = algorithm.cost(), simulation.plan.cohort, simulation.start
    up, down = simulation.one_round.up_bytes(start), simulation.one_round.down_bytes(start)
    if isinstance(simulation.algorithm, RefreshingAlgorithm):
        # A second cohort is sent the model too, and sends what it has refreshed.
        up, down = up + tree.nbytes(start.ups[0]), 2 * down
    mean = 0.0
    if FULL in cost.batches:
        assert federation.counts is not None
        mean = float(np.mean(federation.counts["train"][: federation.trained]))
    samples = cost.samples(0) + cost.batches.get(FULL, 0.0) * mean
    return Spent(1.0, members * samples, float(members * (up + down)))


def affordable(each: Spent, budget: Spent, at: Budget) -> int:
    """How many rounds a budget pays for; where they cost nothing, as many as the budget was made of."""
    price = getattr(each, at)
    return max(1, round(getattr(budget, at) / price)) if price else int(budget.rounds)
