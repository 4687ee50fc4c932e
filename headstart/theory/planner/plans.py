"""What a plan is made for, and what it consists of."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headstart.core import CURVATURES, Size
from headstart.core.checks import any_whole, at_least, positive
from headstart.errors import UsageError, did_you_mean
from headstart.theory.conditions import check_cohort
from headstart.theory.constants import Constants

__all__ = ["Circumstances", "MethodPlan", "PlannedRun"]


@dataclass(frozen=True, kw_only=True)
class Circumstances:
    """What a run has to live with, and what it is to reach."""

    constants: Constants
    epsilon: float
    """What the average of ``E ||grad F||^2`` over a run is to be at most."""
    initial_gap: float
    """At least ``F(w_0) - inf F``; where losses are not negative ``F(w_0)`` will do."""
    clients: int
    cohort: int
    """Clients a round. Theorems that need more of them, or all, say so in the plan."""
    inner_lr: float
    """The step size that is wanted; a smaller one is planned where a theorem asks for it."""
    inner_steps: int = 1
    """Of ``meta-fl``; all other methods take one."""
    curvature: str = "exact"
    """Of ``meta-fl``."""
    difference_radius: float = 1e-3
    """``delta`` of Hessian-free curvature."""
    most_samples: int | None = None
    """The samples of the largest client: a batch of as many is ``"full"`` and has no noise. None where endless."""

    def __post_init__(self) -> None:
        positive("epsilon", self.epsilon)
        at_least("initial_gap", self.initial_gap, 0)
        check_cohort(self.clients, self.cohort)
        at_least("inner_lr", self.inner_lr, 0)
        any_whole("inner_steps", self.inner_steps, 1)
        positive("difference_radius", self.difference_radius)
        if self.curvature not in CURVATURES:
            raise UsageError(f"There is no curvature {self.curvature!r}.", did_you_mean(self.curvature, CURVATURES))
        if self.most_samples is not None:
            any_whole("most_samples", self.most_samples, 1)

    @property
    def accuracy(self) -> float:
        """What ``||grad F||`` itself is to be: the epsilon of the papers on MOML and Local-SCGDM."""
        return float(self.epsilon) ** 0.5

    def safe_inner_lr(self, largest: float) -> float:
        """The wanted inner step size, or the largest safe one."""
        return min(self.inner_lr, largest)


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """Settings whose bound is at most epsilon."""

    outer_lr: float
    largest_outer_lr: float
    """The largest that the theorem allows with these local steps (and this ``averaging``)."""
    local_steps: int
    rounds: int
    cohort: int
    batches: Mapping[str, Size]
    """Samples of each batch, by the names of the algorithm's settings."""
    samples: int
    """Samples of all clients and rounds together."""
    terms: Mapping[str, float]
    """The bound in its separate terms."""
    more: Mapping[str, float | bool]
    """Further settings, such as ``averaging``."""

    @property
    def bound(self) -> float:
        """What the average of ``E ||grad F||^2`` is at most."""
        return sum(self.terms.values())

    @property
    def dominant(self) -> str:
        """The name of the largest term."""
        return max(self.terms, key=lambda name: self.terms[name])

    def after(self, rounds: int) -> dict[str, float]:
        """The terms of Theorem 4.5 or 8 for a run of other length: only ``start`` depends on it."""
        any_whole("rounds", rounds, 1)
        return {**self.terms, "start": self.terms["start"] * self.rounds / rounds}


@dataclass(frozen=True, kw_only=True)
class MethodPlan:
    """The plan for one method, or why there is none."""

    method: str
    algorithm: str
    """Its name in a configuration."""
    theorem: str
    largest_inner_lr: float | None
    """The largest safe one; None where the theorem takes any."""
    inner_lr: float
    run: PlannedRun | None
    floor: float | None = None
    """Where there is no plan: the smallest value of the bound, whatever samples and rounds cost."""
    obstacle: str | None = None
    """Where there is no plan: why."""
    notes: tuple[str, ...] = ()

    def settings(self) -> dict[str, Any]:
        """What is planned, as settings of ``[algorithm]``; name, curvature and inner steps are as asked for."""
        if self.run is None:
            raise UsageError(
                f"There is no plan for {self.method}: {self.obstacle}",
                "Ask for a larger epsilon, lower inner_lr, or choose another algorithm.",
            )
        own: dict[str, Any] = {"inner_lr": self.inner_lr, "outer_lr": self.run.outer_lr}
        if self.algorithm not in ("moml", "moml-v2"):
            own["local_steps"] = self.run.local_steps
        return {**own, **self.run.more, **self.run.batches}
