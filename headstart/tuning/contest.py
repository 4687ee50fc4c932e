"""Where settings of a method compete, what is told of it, and what is found."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from headstart.core import FULL, Algorithm, Size, Weighting
from headstart.data import Federation
from headstart.problems import Problem
from headstart.simulate.trials import Trials
from headstart.wire import Wire

__all__ = ["Contest", "Found", "SearchStopped", "Told"]


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
