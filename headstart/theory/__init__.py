"""The papers' lemmas and theorems as functions of the losses' constants, one module a paper and one function a result.

Each docstring gives the number of the result and says where what is printed was wrong or ambiguous. A bound comes in
its separate terms, so that a planner can see which one dominates:

>>> constants = Constants(
...     smoothness=1.0, hessian_lipschitz=0.5, gradient_bound=2.0, gradient_noise=1.0, hessian_noise=0.3,
...     gradient_dissimilarity=0.02, hessian_dissimilarity=0.1,
... )
>>> error = per_fedavg.estimator_error(constants, inner_lr=0.1, inner_batch=40, outer_batch=40, curvature_batch=40)
>>> schedule = Schedule(outer_lr=0.002, local_steps=10, rounds=10**5)
>>> bound = per_fedavg.average_gradient_bound(
...     constants, 0.1, error, schedule, clients=50, cohort=10, initial_gap=3.0
... )
>>> bound.dominant
'noise'
"""

from headstart.theory import (
    complexity,
    compositional,
    compositional_steps,
    diminishing,
    distance,
    drift,
    local_memory,
    memory,
    multi_step,
    per_fedavg,
    unbounded_memory,
)
from headstart.theory.constants import Constants
from headstart.theory.estimate import Ball, Effort, Estimate, Estimates, Hull, estimate_constants
from headstart.theory.planner import MethodPlan, PlannedRun, plan
from headstart.theory.stationarity import EstimatorError, GradientBound, Schedule

__all__ = [
    "Ball",
    "Constants",
    "Effort",
    "Estimate",
    "Estimates",
    "EstimatorError",
    "GradientBound",
    "Hull",
    "MethodPlan",
    "PlannedRun",
    "Schedule",
    "complexity",
    "compositional",
    "compositional_steps",
    "diminishing",
    "distance",
    "drift",
    "estimate_constants",
    "local_memory",
    "memory",
    "multi_step",
    "per_fedavg",
    "plan",
    "unbounded_memory",
]
