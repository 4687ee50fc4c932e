"""From the constants of the losses to the settings of a run, method by method.

>>> from headstart.theory import Constants, plan
>>> constants = Constants(
...     smoothness=1.0, hessian_lipschitz=0.5, gradient_bound=2.0, gradient_noise=1.0, hessian_noise=0.3,
...     gradient_dissimilarity=0.02, hessian_dissimilarity=0.1,
... )
>>> plans = plan(constants, epsilon=0.1, initial_gap=3.0, clients=50, cohort=10, inner_lr=0.1)
>>> plans["per-fedavg (exact)"].run.bound <= 0.1
True
>>> plans["per-fedavg (first-order)"].obstacle[:28]
'the bound stays above 0.64: '
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from headstart.core.checks import any_whole
from headstart.errors import UsageError, did_you_mean
from headstart.theory.constants import Constants
from headstart.theory.planner.plans import Circumstances, MethodPlan, PlannedRun
from headstart.theory.planner.remembering import plan_local_moml, plan_local_scgdm, plan_moml, plan_moml_v2
from headstart.theory.planner.stepping import plan_meta_fl, plan_per_fedavg

__all__ = ["METHODS", "Circumstances", "MethodPlan", "PlannedRun", "method_of", "plan", "plan_within"]

METHODS: dict[str, Callable[[Circumstances], MethodPlan]] = {
    "per-fedavg (exact)": lambda circumstances: plan_per_fedavg(circumstances, "exact"),
    "per-fedavg (first-order)": lambda circumstances: plan_per_fedavg(circumstances, "first-order"),
    "per-fedavg (hessian-free)": lambda circumstances: plan_per_fedavg(circumstances, "hessian-free"),
    "meta-fl": plan_meta_fl,
    "moml": plan_moml,
    "moml-v2": plan_moml_v2,
    "local-moml (cross-device)": lambda circumstances: plan_local_moml(circumstances, keep_memory=False),
    "local-moml (cross-silo)": lambda circumstances: plan_local_moml(circumstances, keep_memory=True),
    "local-scgdm": plan_local_scgdm,
}
"""Every method that a theorem here speaks of."""


def plan(
    constants: Constants,
    *,
    epsilon: float,
    initial_gap: float,
    clients: int,
    cohort: int,
    inner_lr: float,
    inner_steps: int = 1,
    curvature: str = "exact",
    difference_radius: float = 1e-3,
    most_samples: int | None = None,
    methods: Sequence[str] = tuple(METHODS),
) -> dict[str, MethodPlan]:
    """Settings with which each method's theorem promises an average of ``E ||grad F||^2`` of at most ``epsilon``.

    ``inner_lr`` is kept where it is safe, and is otherwise the largest safe one. The outer step size, local steps,
    rounds and batch sizes are searched for: of all plans that draw at most twice the fewest samples, the one with the
    fewest rounds. ``Circumstances`` explains the arguments.
    """
    for method in methods:
        if method not in METHODS:
            raise UsageError(f"There is no theorem on {method!r} to plan with.", did_you_mean(method, METHODS))
    circumstances = Circumstances(
        constants=constants,
        epsilon=epsilon,
        initial_gap=initial_gap,
        clients=clients,
        cohort=cohort,
        inner_lr=inner_lr,
        inner_steps=inner_steps,
        curvature=curvature,
        difference_radius=difference_radius,
        most_samples=most_samples,
    )
    return {method: METHODS[method](circumstances) for method in methods}


CLOSE = 1.05
"""How close, as a factor, `plan_within` comes to the smallest epsilon."""
FARTHEST = 1e30


def plan_within(circumstances: Circumstances, method: str, rounds: int) -> tuple[float, MethodPlan]:
    """The plan with the smallest epsilon that so many rounds reach, and that epsilon.

    The epsilon of ``circumstances`` is where the search begins. Rounds only fall as epsilon grows.
    """
    any_whole("rounds", rounds, 1)

    def at(epsilon: float) -> MethodPlan:
        return METHODS[method](replace(circumstances, epsilon=epsilon))

    def fits(found: MethodPlan) -> bool:
        return found.run is not None and found.run.rounds <= rounds

    high, factor = circumstances.epsilon, 10.0
    while not fits(found := at(high)):
        high *= factor
        if high > FARTHEST:
            raise UsageError(
                f"No plan for {method} has at most {rounds} rounds: {found.obstacle or 'it needs more.'}",
                "Give it more rounds, lower inner_lr, or choose another algorithm.",
            )
    low = high / factor
    while low > 1 / FARTHEST and fits(at(low)):
        low /= factor
    while high / low > CLOSE:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if fits(at(middle)) else (middle, high)
    return high, at(high)


def method_of(settings: Mapping[str, Any]) -> str:
    """The method that the settings of a section ``[algorithm]`` ask for."""
    name = settings["name"]
    curvature = settings.get("curvature", "exact")
    curvature = curvature if isinstance(curvature, str) else curvature["name"]
    for option in ("shared_batch", "reuse_batch"):
        if settings.get(option):
            raise UsageError(
                f"The theorems are on independent batches, and {option} uses a batch more than once.",
                f"Set algorithm.{option} = false.",
            )
    if curvature == "automatic":
        raise UsageError(
            "The theorems are on independent batches, and automatic curvature looks at the inner step's batch again.",
            'Set algorithm.curvature = "exact".',
        )
    if name == "meta-fl":
        return name
    if name != "per-fedavg" and curvature != "exact":
        raise UsageError(
            f"There is no theorem on {name} with {curvature} curvature.", 'Set algorithm.curvature = "exact".'
        )
    kinds = {
        "per-fedavg": f"per-fedavg ({curvature})",
        "local-moml": f"local-moml ({'cross-silo' if settings.get('keep_memory') else 'cross-device'})",
    }
    method = kinds.get(name, name)
    if method not in METHODS:
        known = sorted({planned.partition(" ")[0] for planned in METHODS})
        raise UsageError(f"There is no theorem on {name} to plan with.", did_you_mean(name, known))
    return method
