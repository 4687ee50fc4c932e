"""Plans for Per-FedAvg (Theorem 4.5) and for several inner steps (Theorem 8), which have one formula in common."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from headstart.core import Size
from headstart.theory import multi_step, per_fedavg
from headstart.theory.planner.choice import NOISELESS, batch_sizes, best, cost_of, size_of
from headstart.theory.planner.plans import Circumstances, MethodPlan, PlannedRun
from headstart.theory.stationarity import EstimatorError, GradientBound, Schedule

__all__ = ["plan_meta_fl", "plan_per_fedavg"]

LOCAL_STEPS = tuple(2**power for power in range(11))
MORE_SAMPLES = ("exact", "hessian-free")
"""Curvatures that look at a batch of their own."""


@dataclass(frozen=True)
class _Theorem:
    """What the search needs to know of a theorem, for given constants and inner steps."""

    smoothness: float
    """``L_F``."""
    error: Callable[[int, int], EstimatorError]
    """Of the inner batches' size, and of the outer and curvature batches' size."""
    bound: Callable[[EstimatorError, Schedule], GradientBound]
    inner_steps: int
    curvature: str

    def largest_outer_lr(self, local_steps: int) -> float:
        return 1 / (10 * local_steps * self.smoothness)

    def samples(self, inner: int, outer: int) -> int:
        """Of one local step."""
        others = 1 + (self.inner_steps if self.curvature in MORE_SAMPLES else 0)
        return self.inner_steps * inner + others * outer

    @property
    def floor(self) -> float:
        """The bias that is left without any noise."""
        schedule = Schedule(self.largest_outer_lr(1), 1, 1)
        return self.bound(self.error(NOISELESS, NOISELESS), schedule).bias


def plan_per_fedavg(circumstances: Circumstances, curvature: str) -> MethodPlan:
    """Theorem 4.5 with Lemma 4.3, H.1 or H.2."""
    constants = circumstances.constants
    inner_lr = circumstances.safe_inner_lr(1 / constants.smoothness)

    def error(inner: int, outer: int) -> EstimatorError:
        if curvature == "exact":
            return per_fedavg.estimator_error(constants, inner_lr, inner, outer, outer)
        if curvature == "first-order":
            return per_fedavg.first_order_error(constants, inner_lr, inner, outer)
        return per_fedavg.hessian_free_error(constants, inner_lr, circumstances.difference_radius, inner, outer, outer)

    def bound(error: EstimatorError, schedule: Schedule) -> GradientBound:
        return per_fedavg.average_gradient_bound(
            constants,
            inner_lr,
            error,
            schedule,
            circumstances.clients,
            circumstances.cohort,
            circumstances.initial_gap,
        )

    theorem = _Theorem(per_fedavg.meta_smoothness(constants, inner_lr), error, bound, 1, curvature)
    return _planned(
        circumstances,
        theorem,
        method=f"per-fedavg ({curvature})",
        algorithm="per-fedavg",
        title="fallah Theorem 4.5",
        largest_inner_lr=1 / constants.smoothness,
        inner_lr=inner_lr,
    )


def plan_meta_fl(circumstances: Circumstances) -> MethodPlan:
    """Theorem 8 with Lemma 6, 10 or 11."""
    constants, inner_lr, steps = circumstances.constants, circumstances.inner_lr, circumstances.inner_steps
    curvature = circumstances.curvature
    no_moments = constants.gradient_fourth_moment is None or constants.hessian_fourth_moment is None
    if curvature == "exact" and no_moments:
        one = " With one inner step it is per-fedavg, for which there is a plan." if steps == 1 else ""
        return MethodPlan(
            method="meta-fl",
            algorithm="meta-fl",
            theorem="jamali Theorem 8",
            largest_inner_lr=None,
            inner_lr=inner_lr,
            run=None,
            obstacle=f"Theorem 8 needs the fourth moments of the noise, which were not given.{one}",
        )

    def error(inner: int, outer: int) -> EstimatorError:
        if curvature == "exact":
            return multi_step.estimator_error(constants, inner_lr, steps, inner, outer, outer)
        if curvature == "first-order":
            return multi_step.first_order_error(constants, inner_lr, steps, inner, outer)
        return multi_step.hessian_free_error(
            constants, inner_lr, steps, circumstances.difference_radius, inner, outer, outer
        )

    def bound(error: EstimatorError, schedule: Schedule) -> GradientBound:
        return multi_step.average_gradient_bound(
            constants,
            inner_lr,
            steps,
            error,
            schedule,
            circumstances.clients,
            circumstances.cohort,
            circumstances.initial_gap,
        )

    theorem = _Theorem(multi_step.meta_smoothness(constants, inner_lr, steps), error, bound, steps, curvature)
    return _planned(
        circumstances,
        theorem,
        method="meta-fl",
        algorithm="meta-fl",
        title="jamali Theorem 8",
        largest_inner_lr=None,
        inner_lr=inner_lr,
    )


def _planned(
    circumstances: Circumstances,
    theorem: _Theorem,
    method: str,
    algorithm: str,
    title: str,
    largest_inner_lr: float | None,
    inner_lr: float,
) -> MethodPlan:
    floor = theorem.floor
    chosen = None if floor >= circumstances.epsilon else best(_candidates(circumstances, theorem))
    run = None if chosen is None else _run(circumstances, theorem, chosen)
    obstacle = None
    if run is None:
        without = {
            "exact": "even without noise the estimate's error is that large",
            "first-order": "leaving out the curvature biases the estimate, which no batch, step size or round mends",
            "hessian-free": "differences of gradients with this radius bias the estimate; a smaller one biases it less",
        }[theorem.curvature]
        obstacle = f"the bound stays above {floor:.3g}: {without}."
    return MethodPlan(
        method=method,
        algorithm=algorithm,
        theorem=title,
        largest_inner_lr=largest_inner_lr,
        inner_lr=inner_lr,
        run=run,
        floor=None if run else floor,
        obstacle=obstacle,
    )


class _Candidate(NamedTuple):
    """Batches and a schedule that reach epsilon."""

    samples: int
    rounds: int
    schedule: Schedule
    error: EstimatorError
    inner: int
    outer: int


def _candidates(circumstances: Circumstances, theorem: _Theorem) -> Iterator[_Candidate]:
    sizes = batch_sizes(circumstances)
    for inner in sizes:
        for outer in sizes:
            error = theorem.error(inner, outer)
            step = theorem.samples(cost_of(inner, circumstances), cost_of(outer, circumstances))
            for local_steps in LOCAL_STEPS:
                schedule = _fewest_rounds(circumstances.epsilon, theorem, error, local_steps)
                if schedule is None:
                    break
                samples = schedule.rounds * circumstances.cohort * local_steps * step
                yield _Candidate(samples, schedule.rounds, schedule, error, inner, outer)


def _fewest_rounds(epsilon: float, theorem: _Theorem, error: EstimatorError, local_steps: int) -> Schedule | None:
    """The outer step size that needs the fewest rounds, for given batches and local steps.

    At ``s`` times the largest step size the bound is ``start/(s K) + linear s + quadratic s^2 + bias``. So ``K = start
    / (s (room - linear s - quadratic s^2))`` with ``room = epsilon - bias``, smallest where ``room = 2 linear s + 3
    quadratic s^2``.
    """
    largest = theorem.largest_outer_lr(local_steps)
    terms = theorem.bound(error, Schedule(largest, local_steps, 1))
    room = epsilon - terms.bias
    if room <= 0:
        return None
    apart = largest * theorem.smoothness * local_steps * (local_steps - 1)
    linear = terms.noise / (1 + apart) + terms.sampling
    quadratic = terms.noise * apart / (1 + apart) + terms.drift
    slower = min(1.0, room / (linear + math.sqrt(linear**2 + 3 * quadratic * room))) if linear + quadratic else 1.0
    left = room - linear * slower - quadratic * slower**2
    rounds = max(1, math.ceil(terms.start / (slower * left)))
    return Schedule(slower * largest, local_steps, rounds)


def _run(circumstances: Circumstances, theorem: _Theorem, chosen: _Candidate) -> PlannedRun:
    schedule = chosen.schedule
    batches: dict[str, Size] = {
        "batch_size": size_of(chosen.outer, circumstances),
        "inner_batch_size": size_of(chosen.inner, circumstances),
    }
    if theorem.curvature in MORE_SAMPLES:
        batches["curvature_batch_size"] = size_of(chosen.outer, circumstances)
    return PlannedRun(
        outer_lr=schedule.outer_lr,
        largest_outer_lr=theorem.largest_outer_lr(schedule.local_steps),
        local_steps=schedule.local_steps,
        rounds=schedule.rounds,
        cohort=circumstances.cohort,
        batches=batches,
        samples=chosen.samples,
        terms=theorem.bound(chosen.error, schedule)._asdict(),
        more={},
    )
