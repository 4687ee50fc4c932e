"""Planning: the constants of an experiment's losses, estimated on its data, and settings from theorems."""

import dataclasses
import math
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from headstart.algorithms import per_fedavg
from headstart.core import Purpose, checks, cohort_size, run_key, tree
from headstart.data import Federation
from headstart.errors import UsageError
from headstart.experiment.settings import Settings
from headstart.problems import Problem
from headstart.simulate import Simulation
from headstart.theory.constants import Constants
from headstart.theory.estimate import Ball, Effort, Estimate, Estimates, estimate_constants
from headstart.theory.measure import Look, MetaLoss, Trace, trace
from headstart.theory.planner import METHODS, Circumstances, MethodPlan, method_of, plan_within

__all__ = ["DRAWN", "Followed", "PlannedSettings", "Plans", "make_plans"]

CLIENTS = 4
"""Clients on which constants are estimated, unless told otherwise."""
EFFORT = Effort(starts=2, climbs=1, steps=3, products=6, samples=8)
"""A minute's search for the default experiment: what it finds is of the right size, and a lower bound."""
TOGETHER = (
    ("hessian_noise", "hessian_fourth_moment"),
    ("hessian_dissimilarity",),
    ("hessian_lipschitz",),
    ("gradient_noise", "gradient_fourth_moment"),
    ("smoothness",),
    ("gradient_dissimilarity",),
    ("gradient_bound",),
)
"""Constants that share a compiled program, the slowest first."""
RADIUS_SHARE = 0.1
"""The region's radius, as a share of the norm of the initial parameters."""
EPSILON_SHARE = 0.1
"""What is to be left of the initial squared gradient norm."""
MEASURED_CLIENTS = 256
"""Clients that stand for all where there are more of them."""
SIZES = ("batch_size", "inner_batch_size", "curvature_batch_size", "memory_batch_size")
DRAWN = "per-fedavg (exact)"
"""The method whose measured gradients a picture puts beside its bound."""


Told = Callable[[str, int, int], object]
"""Is told what was found, and how many steps of how many are done."""


@dataclass(frozen=True, eq=False)
class PlannedSettings:
    """A plan for the experiment's own algorithm, and the settings that follow from it."""

    method: str
    plan: MethodPlan
    notes: list[str]
    """What a reader of the plan should know."""
    tables: dict[str, Any]
    """The experiment's tables with the plan in them."""


@dataclass(frozen=True, eq=False)
class Followed:
    """A run of Per-FedAvg as planned, beside what was promised."""

    plan: MethodPlan
    measured: Trace
    notes: list[str]


@dataclass(frozen=True, eq=False)
class Plans:
    """An experiment's data, all that was measured at its start, and what the theorems make of it."""

    settings: Settings
    federation: Federation
    problem: Problem
    radius: float
    looked_at: int
    """Clients on which the constants were estimated."""
    estimates: Estimates
    constants: Constants
    initial_gap: float
    squared_gradient: float
    epsilon: float
    """What the mean squared gradient norm is to be at most."""
    epsilon_given: bool

    @property
    def clients(self) -> int:
        """Clients that train."""
        return self.federation.trained

    @property
    def cohort(self) -> int:
        """Clients that take part in a round."""
        return cohort_size(self.settings.train.cohort, self.clients)

    @property
    def followed_method(self) -> str:
        """The method that `follow` runs."""
        return DRAWN

    @cached_property
    def methods(self) -> dict[str, MethodPlan]:
        """A plan for every method that a theorem speaks of."""
        circumstances = self.circumstances()
        return {method: planner(circumstances) for method, planner in METHODS.items()}

    def circumstances(self) -> Circumstances:
        """What the planners need to know."""
        own = self.settings.resolved["algorithm"]
        counts = self.federation.counts
        return Circumstances(
            constants=self.constants,
            epsilon=self.epsilon,
            initial_gap=self.initial_gap,
            clients=self.clients,
            cohort=self.cohort,
            inner_lr=_inner_lr(own),
            inner_steps=own.get("inner_steps", 1),
            curvature=_curvature(own),
            difference_radius=_difference_radius(own),
            most_samples=None if counts is None else int(counts["train"][: self.clients].max()),
        )

    def notes(self) -> list[str]:
        """What a reader of the plans should know."""
        notes = [
            _promise(self),
            f"Cohorts are the experiment's, {self.cohort} of {self.clients} clients, where nothing else is said.",
            f"F(w₀) - inf F is at most {self.initial_gap:.4g}, the measured loss at the start: losses are not "
            f"negative, and a safe inner step does not raise them.",
            *_cautions(self),
            "--safety 2 plans with all constants twice as large.",
        ]
        for method, found in self.methods.items():
            if found.obstacle is not None:
                least = "" if found.floor is None else f" Smallest ε within reach: {found.floor:.3g}."
                notes.append(f"No plan for {method}: {found.obstacle}{least}")
            notes.extend(f"{method}: {note}" for note in found.notes)
        return notes

    def planned(self, tables: Mapping[str, Any]) -> PlannedSettings:
        """The plan for the experiment's own algorithm, and its tables with the plan in them.

        Where no epsilon was given, it is about the smallest that the experiment's rounds reach.
        """
        method, wanted = method_of(self.settings.resolved["algorithm"]), self.settings.train.rounds
        plans = self
        if self.epsilon_given:
            found = METHODS[method](self.circumstances())
        else:
            epsilon, found = plan_within(self.circumstances(), method, wanted)
            plans = dataclasses.replace(self, epsilon=epsilon)
        settings, run = found.settings(), found.run
        assert run is not None, "settings() has checked"
        notes = [_promise(plans), *_cautions(plans), *found.notes]
        rounds = wanted
        if not self.epsilon_given:
            notes.append(f"That is about the smallest ε within {wanted:,} rounds; --epsilon asks for another.")
        elif run.rounds > wanted:
            notes.append(
                f"The theory asks for {run.rounds:,} rounds, and this run has {wanted:,}, as the experiment says: so "
                f"it promises nothing about it. Set train.rounds for more, or leave --epsilon out for the best in so "
                f"many."
            )
        elif run.rounds < wanted:
            rounds = run.rounds
            notes.append(f"The plan needs {rounds:,} of the experiment's {wanted:,} rounds, and the run has those.")
        if plans.epsilon >= plans.squared_gradient:
            notes.append("ε is no less than ‖∇F‖² at the start: the step sizes are safe, but no progress is promised.")
        training = {**tables.get("train", {}), "rounds": rounds}
        if run.cohort != plans.cohort:
            training["cohort"] = run.cohort
        kept = {name: value for name, value in tables["algorithm"].items() if name not in SIZES}
        return PlannedSettings(method, found, notes, {**tables, "algorithm": {**kept, **settings}, "train": training})

    def rounds_to_follow(self, rounds: int | None = None) -> int:
        """How long a run of Per-FedAvg as planned is, unless told: no longer than the experiment's."""
        run = self.methods[DRAWN].run
        if run is None:
            obstacle = self.methods[DRAWN].obstacle
            raise UsageError(f"There is no plan for {DRAWN} to draw: {obstacle}", "Ask for a larger epsilon.")
        return min(run.rounds, self.settings.train.rounds) if rounds is None else rounds

    def follow(self, rounds: int | None = None, progress: Callable[[int], None] = lambda done: None) -> Followed:
        """Run Per-FedAvg as planned, and look at the exact gradient along the way."""
        rounds, found = self.rounds_to_follow(rounds), self.methods[DRAWN]
        run = found.run
        assert run is not None, "rounds_to_follow has checked"
        simulation = Simulation(
            per_fedavg(**found.settings()), self.problem, self.federation, cohort=run.cohort, seed=self.settings.seed
        )
        meta_loss = _meta_loss(self.settings, self.federation, self.problem, found.inner_lr)
        measured = trace(simulation, meta_loss, rounds, observer=progress)
        reach = float(measured.distances.max()) + found.inner_lr * self.constants.gradient_bound
        inside = "stayed inside" if reach <= self.radius else "left"
        notes = [
            f"After {rounds:,} rounds the measured average of ‖∇F‖² is {measured.running_average[-1]:.3g}, the bound "
            f"{sum(run.after(rounds).values()):.3g}.",
            f"The models and what clients adapt them to {inside} the region of the constants: at most {reach:.3g} "
            f"away, and its radius is {self.radius:.3g}.",
        ]
        return Followed(found, measured, notes)

    def to_json(self) -> dict[str, Any]:
        """Everything as JSON has it; what is not finite is null."""

        def finite(value: Any) -> Any:
            if isinstance(value, Mapping):
                return {key: finite(item) for key, item in value.items()}
            if isinstance(value, list | tuple):
                return [finite(item) for item in value]
            return None if isinstance(value, float) and not math.isfinite(value) else value

        def shown(found: MethodPlan) -> dict[str, Any]:
            run = found.run
            extra = {} if run is None else {"bound": run.bound, "dominant": run.dominant, "settings": found.settings()}
            return {**dataclasses.asdict(found), **extra}

        content = {
            "epsilon": self.epsilon,
            "initial_gap": self.initial_gap,
            "initial_squared_gradient": self.squared_gradient,
            "radius": self.radius,
            "estimates": {name: dataclasses.asdict(found) for name, found in self.estimates.items()},
            "constants": dataclasses.asdict(self.constants),
            "plans": {method: shown(found) for method, found in self.methods.items()},
        }
        plain: dict[str, Any] = finite(content)
        return plain


def make_plans(
    settings: Settings,
    federation: Federation,
    *,
    epsilon: float | None = None,
    radius: float | None = None,
    safety: float = 1.0,
    clients: int | None = None,
    progress: Told | None = None,
) -> Plans:
    """Estimate the constants around the experiment's initial model, and measure the loss and gradient there."""
    check_options(epsilon, radius, safety, clients)
    if federation.endless:
        raise UsageError(
            "Tasks are endlessly many, and the theorems are on a federation of some clients.",
            "Give the data a number of clients.",
        )
    own = settings.resolved["algorithm"]
    problem = settings.problem(federation)
    start = problem.init(run_key(settings.seed, Purpose.INIT))
    around = RADIUS_SHARE * (float(tree.norm(start)) or 1.0) if radius is None else radius
    chosen = min(CLIENTS, federation.trained) if clients is None else clients
    region = Ball(start, around)

    def search(names: Sequence[str]) -> Mapping[str, Estimate]:
        return estimate_constants(
            problem, federation, region, names=names, clients=chosen, effort=EFFORT, seed=settings.seed
        )

    estimates = _side_by_side(search, progress)
    constants = estimates.constants(safety)
    inner_lr, inner_steps = _inner_lr(own), own.get("inner_steps", 1)

    def look(inner_lr: float, inner_steps: int) -> Look:
        return _meta_loss(settings, federation, problem, inner_lr, inner_steps).at(start)

    squared = look(min(inner_lr, 1 / constants.smoothness), 1).squared_gradient
    return Plans(
        settings=settings,
        federation=federation,
        problem=problem,
        radius=around,
        looked_at=chosen,
        estimates=estimates,
        constants=constants,
        # A safe inner step does not raise a loss; of one that is not safe the loss after it is known.
        initial_gap=max(look(0.0, 0).value, look(inner_lr, inner_steps).value),
        squared_gradient=squared,
        epsilon=EPSILON_SHARE * squared if epsilon is None else epsilon,
        epsilon_given=epsilon is not None,
    )


def check_options(epsilon: float | None, radius: float | None, safety: float, clients: int | None) -> None:
    """Refuse options of a plan that have no meaning."""
    if epsilon is not None:
        checks.positive("epsilon", epsilon)
    if radius is not None:
        checks.positive("radius", radius)
    checks.at_least("safety", safety, 1)
    if clients is not None:
        checks.whole("clients", clients, 2)


def _meta_loss(
    settings: Settings, federation: Federation, problem: Problem, inner_lr: float, inner_steps: int = 1
) -> MetaLoss:
    most = MEASURED_CLIENTS if federation.trained > MEASURED_CLIENTS else None
    return MetaLoss(problem, federation, inner_lr, inner_steps, clients=most, seed=settings.seed)


def _side_by_side(search: Callable[[Sequence[str]], Mapping[str, Estimate]], progress: Told | None) -> Estimates:
    """All constants: most of a short search is compilation, which one core does, so several are searched at once."""
    found: dict[str, Estimate] = {}
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        searches = {pool.submit(search, names): names for names in TOGETHER}
        try:
            for number, done in enumerate(as_completed(searches)):
                found.update(done.result())
                if progress is not None:
                    progress(searches[done][0], number + 1, len(searches))
        finally:
            pool.shutdown(cancel_futures=True)
    return Estimates({field.name: found[field.name] for field in dataclasses.fields(Constants)})


def _promise(plans: Plans) -> str:
    return (
        f"A plan promises an average of ‖∇F(w)‖² over its rounds of at most ε = {plans.epsilon:.3g}. "
        f"At the start it is {plans.squared_gradient:.3g}."
    )


def _cautions(plans: Plans) -> list[str]:
    """What the promises rest on."""
    notes = [
        f"The constants are searched for within {plans.radius:.3g} of the initial model, on {plans.looked_at} "
        f"clients. What is found is a lower bound, so a plan is only as good as the search.",
    ]
    if plans.settings.resolved["model"].get("activation") == "relu":
        notes.append("ReLU has kinks, at which no Hessian is Lipschitz: hessian_lipschitz leaves them out.")
    if plans.settings.train.weighting == "samples":
        notes.append('The theorems weigh all clients alike; train.weighting is "samples".')
    return notes


def _inner_lr(own: Mapping[str, Any]) -> float:
    """The experiment's inner step size, or Per-FedAvg's own where its algorithm has none."""
    return float(own.get("inner_lr", 0.01))


def _curvature(own: Mapping[str, Any]) -> str:
    curvature = own.get("curvature", "exact")
    return str(curvature if isinstance(curvature, str) else curvature["name"])


def _difference_radius(own: Mapping[str, Any]) -> float:
    curvature = own.get("curvature", "exact")
    return float(curvature.get("radius", 1e-3)) if isinstance(curvature, Mapping) else 1e-3
