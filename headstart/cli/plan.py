"""`headstart plan`, and `headstart run --plan`: constants estimated on the experiment's own data, settings from theorems."""

import dataclasses
import json
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

from headstart.cli.experiment import Experiment, read_experiment, with_settings
from headstart.cli.startup import prepare_jax
from headstart.core import Params, Purpose, checks, cohort_size, run_key, tree
from headstart.data import Federation
from headstart.errors import UsageError
from headstart.problems import Problem
from headstart.report import bounds_table, estimates_table, plans_table, plot_bound
from headstart.simulate import Simulation
from headstart.theory.constants import Constants
from headstart.theory.estimate import Ball, Effort, Estimate, Estimates, estimate_constants
from headstart.theory.measure import MetaLoss, Trace, trace
from headstart.theory.planner import METHODS, MethodPlan, PlannedRun, method_of, plan

__all__ = ["PlanOptions", "planned", "show_plan"]

CLIENTS = 4
"""Clients on which constants are estimated, unless told otherwise."""
EFFORT = Effort(starts=2, climbs=1, steps=4, products=6, samples=8)
"""A minute's search for the default experiment: what it finds is of the right size, and a lower bound."""
RADIUS_SHARE = 0.1
"""The region's radius, as a share of the norm of the initial parameters."""
EPSILON_SHARE = 0.1
"""What is to be left of the initial squared gradient norm."""
LOOKS = 60
"""How often a run is looked at for a picture."""
MEASURED_CLIENTS = 256
"""Clients that stand for all where there are more of them."""
FOURTH_MOMENTS = ("gradient_fourth_moment", "hessian_fourth_moment")
SIZES = ("batch_size", "inner_batch_size", "curvature_batch_size", "memory_batch_size")
DRAWN = "per-fedavg (exact)"
"""The method whose measured gradients a picture puts beside its bound."""


@dataclass(frozen=True)
class PlanOptions:
    """What the command line says about planning; left out, it is chosen from the experiment."""

    epsilon: float | None = None
    radius: float | None = None
    safety: float = 1.0
    clients: int | None = None

    def __post_init__(self) -> None:
        if self.epsilon is not None:
            checks.positive("--epsilon", self.epsilon)
        if self.radius is not None:
            checks.positive("--radius", self.radius)
        checks.at_least("--safety", self.safety, 1)
        if self.clients is not None:
            checks.whole("--clients", self.clients, 2)


@dataclass(frozen=True, eq=False)
class _Ground:
    """An experiment with its data, and all that was measured at its start."""

    experiment: Experiment
    federation: Federation
    problem: Problem
    start: Params
    radius: float
    estimates: Estimates
    constants: Constants
    initial_loss: float
    initial_gap: float
    squared_gradient: float
    epsilon: float

    @property
    def clients(self) -> int:
        return self.federation.trained

    def plans(self, methods: tuple[str, ...]) -> dict[str, MethodPlan]:
        own = self.experiment.resolved["algorithm"]
        counts = self.federation.counts
        return plan(
            self.constants,
            epsilon=self.epsilon,
            initial_gap=self.initial_gap,
            clients=self.clients,
            cohort=cohort_size(self.experiment.train.cohort, self.clients),
            inner_lr=_inner_lr(own),
            inner_steps=own.get("inner_steps", 1),
            curvature=_curvature(own),
            difference_radius=_difference_radius(own),
            most_samples=None if counts is None else int(counts["train"][: self.clients].max()),
            methods=methods,
        )

    def meta_loss(self, inner_lr: float, inner_steps: int = 1) -> MetaLoss:
        most = MEASURED_CLIENTS if self.clients > MEASURED_CLIENTS else None
        return MetaLoss(self.problem, self.federation, inner_lr, inner_steps, clients=most, seed=self.experiment.seed)


def show_plan(
    path: Path | None,
    settings: list[str],
    seed: int | None,
    options: PlanOptions,
    out: Path | None,
    picture: Path | None,
    rounds: int | None,
    console: Console,
) -> None:
    """Estimate, plan every method, print it all, and draw a run of Per-FedAvg beside its bound where asked to."""
    if rounds is not None:
        checks.whole("--rounds", rounds, 1)
        if picture is None:
            raise UsageError("--rounds is for the picture, and there is no --picture.", "Add --picture bound.png.")
    tables = with_settings(read_experiment(path), settings)
    if seed is not None:
        tables["seed"] = seed
    experiment = Experiment.from_tables(tables)
    prepare_jax(experiment)
    ground = _measured(experiment, experiment.federation(), options, console)
    plans = ground.plans(tuple(METHODS))
    console.print(plans_table(plans))
    console.print(bounds_table(plans))
    _say(_notes(ground, plans), console)
    if out is not None:
        out.write_text(json.dumps(_plain(ground, plans), indent=1) + "\n", encoding="utf-8")
        console.print(f"Plans: {escape(str(out))}")
    if picture is not None:
        _draw(ground, plans[DRAWN], picture, rounds, console)


def planned(
    tables: Mapping[str, Any], experiment: Experiment, federation: Federation, options: PlanOptions, console: Console
) -> dict[str, Any]:
    """An experiment's tables with the plan for its algorithm in them."""
    method = method_of(experiment.resolved["algorithm"])
    ground = _measured(experiment, federation, options, console)
    plans = ground.plans((method,))
    found = plans[method]
    own, settings = dict(tables["algorithm"]), found.settings()
    run = found.run
    assert run is not None, "settings() has checked"
    console.print(plans_table(plans))
    console.print(bounds_table(plans))
    wanted = experiment.train.rounds
    notes = list(found.notes)
    if run.rounds > wanted:
        notes.append(
            f"The theory asks for {run.rounds:,} rounds to promise ε = {ground.epsilon:.3g}; this run has {wanted:,}, "
            f"as the experiment says."
        )
    elif run.rounds < wanted:
        notes.append(f"The plan needs {run.rounds:,} of the experiment's {wanted:,} rounds, and the run has those.")
    training = {**tables.get("train", {}), "rounds": min(run.rounds, wanted)}
    if run.cohort != cohort_size(experiment.train.cohort, federation.trained):
        training["cohort"] = run.cohort
        notes.append(f"The plan's cohort is {run.cohort} clients.")
    _say([*_cautions(ground), *notes], console)
    kept = {name: value for name, value in own.items() if name not in SIZES}
    return {**tables, "algorithm": {**kept, **settings}, "train": training}


def _measured(experiment: Experiment, federation: Federation, options: PlanOptions, console: Console) -> _Ground:
    """Estimate the constants around the experiment's initial model, and measure the loss and gradient there."""
    own = experiment.resolved["algorithm"]
    problem = experiment.problem(federation)
    start = problem.init(run_key(experiment.seed, Purpose.INIT))
    norm = float(tree.norm(start))
    radius = options.radius or RADIUS_SHARE * (norm or 1.0)
    if federation.endless:
        raise UsageError(
            "Tasks are endlessly many, and the theorems are on a federation of some clients.",
            "Give the data a number of clients.",
        )
    chosen = min(CLIENTS if options.clients is None else options.clients, federation.trained)
    # Theorem 8 alone needs fourth moments, and with one inner step there is Theorem 4.5 for the same method.
    left_out = () if own.get("inner_steps", 1) > 1 else FOURTH_MOMENTS
    names = [field.name for field in dataclasses.fields(Constants) if field.name not in left_out]
    found: dict[str, Estimate] = {}
    with _bar(console, len(names)) as bar:
        for name in names:
            bar.update(bar.task_ids[0], description=name)
            found.update(
                estimate_constants(
                    problem,
                    federation,
                    Ball(start, radius),
                    names=[name],
                    clients=chosen,
                    effort=EFFORT,
                    seed=experiment.seed,
                )
            )
            bar.advance(bar.task_ids[0])
    estimates = Estimates(found)
    console.print(estimates_table(estimates))
    constants = estimates.constants(options.safety)
    ground = _Ground(
        experiment, federation, problem, start, radius, estimates, constants, math.nan, math.nan, math.nan, math.nan
    )
    safe_lr = min(_inner_lr(own), 1 / constants.smoothness)
    loss = ground.meta_loss(0.0, 0).at(start).value
    adapted = ground.meta_loss(_inner_lr(own), own.get("inner_steps", 1)).at(start).value
    squared = ground.meta_loss(safe_lr).at(start).squared_gradient
    return dataclasses.replace(
        ground,
        initial_loss=loss,
        initial_gap=max(loss, adapted),
        squared_gradient=squared,
        epsilon=options.epsilon or EPSILON_SHARE * squared,
    )


def _bar(console: Console, total: int) -> Progress:
    columns = (SpinnerColumn(), TextColumn("Estimating {task.description}"), BarColumn(), MofNCompleteColumn())
    bar = Progress(*columns, console=console, transient=True, disable=not sys.stdout.isatty())
    bar.add_task("constants", total=total)
    if bar.disable:
        console.print(f"Estimating {total} constants.")
    return bar


def _notes(ground: _Ground, plans: Mapping[str, MethodPlan]) -> list[str]:
    """What a reader of the tables should know."""
    notes = [
        f"A plan promises an average of ‖∇F(w)‖² over its rounds of at most ε = {ground.epsilon:.3g}. At the start it is "
        f"{ground.squared_gradient:.3g}.",
        f"F(w₀) − inf F is at most {ground.initial_gap:.4g}, the measured loss at the start: losses are not negative, "
        f"and a safe inner step does not raise them.",
        *_cautions(ground),
    ]
    for method, found in plans.items():
        if found.obstacle is not None:
            least = "" if found.floor is None else f" Smallest ε within reach: {found.floor:.3g}."
            notes.append(f"No plan for {method}: {found.obstacle}{least}")
        notes.extend(f"{method}: {note}" for note in found.notes)
    return notes


def _cautions(ground: _Ground) -> list[str]:
    """What the promises rest on."""
    notes = [
        f"The constants are searched for within {ground.radius:.3g} of the initial model, on "
        f"{ground.estimates['smoothness'].how.partition(' of ')[0].removeprefix('largest over ')}; what is found is a "
        f"lower bound, so the plan is only as good as the search. --safety 2 takes all constants twice as large.",
    ]
    if ground.experiment.resolved["model"].get("activation") == "relu":
        notes.append("ReLU has kinks, at which no Hessian is Lipschitz: hessian_lipschitz leaves them out.")
    if ground.experiment.train.weighting == "samples":
        notes.append('The theorems weigh all clients alike; train.weighting is "samples".')
    return notes


def _say(notes: list[str], console: Console) -> None:
    for note in notes:
        console.print(f"[dim]•[/] {escape(note)}")


def _draw(ground: _Ground, found: MethodPlan, picture: Path, rounds: int | None, console: Console) -> None:
    run = found.run
    if run is None:
        raise UsageError(f"There is no plan for {DRAWN} to draw: {found.obstacle}", "Ask for a larger epsilon.")
    length = min(run.rounds, ground.experiment.train.rounds) if rounds is None else rounds
    console.print(f"Running {DRAWN} as planned for {length:,} rounds.")
    measured = follow(ground, found, run, length)
    title = f"Per-FedAvg as planned, {ground.clients} clients, {run.cohort} a round"
    plot_bound(measured, run, ground.epsilon, title, picture)
    farthest = float(measured.distances.max())
    reach = farthest + found.inner_lr * ground.constants.gradient_bound
    inside = "stayed inside" if reach <= ground.radius else "left"
    _say(
        [
            f"After {length:,} rounds the measured average of ‖∇F‖² is {measured.running_average[-1]:.3g}, the bound "
            f"{sum(run.after(length).values()):.3g}.",
            f"The models and what clients adapt them to {inside} the region: farthest {reach:.3g} of {ground.radius:.3g}.",
        ],
        console,
    )
    console.print(f"Picture: {escape(str(picture))}")


def follow(ground: _Ground, found: MethodPlan, run: PlannedRun, rounds: int) -> Trace:
    """Run a plan of Per-FedAvg and look at the exact gradient along the way."""
    from headstart.algorithms import per_fedavg

    simulation = Simulation(
        per_fedavg(**found.settings()),
        ground.problem,
        ground.federation,
        cohort=run.cohort,
        seed=ground.experiment.seed,
    )
    return trace(simulation, ground.meta_loss(found.inner_lr), rounds, max(1, rounds // LOOKS))


def _inner_lr(own: Mapping[str, Any]) -> float:
    """The experiment's inner step size, or Per-FedAvg's own where its algorithm has none."""
    return float(own.get("inner_lr", 0.01))


def _curvature(own: Mapping[str, Any]) -> str:
    curvature = own.get("curvature", "exact")
    return str(curvature if isinstance(curvature, str) else curvature["name"])


def _difference_radius(own: Mapping[str, Any]) -> float:
    curvature = own.get("curvature", "exact")
    return float(curvature.get("radius", 1e-3)) if isinstance(curvature, Mapping) else 1e-3


def _plain(ground: _Ground, plans: Mapping[str, MethodPlan]) -> dict[str, Any]:
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
        "epsilon": ground.epsilon,
        "initial_gap": ground.initial_gap,
        "initial_squared_gradient": ground.squared_gradient,
        "radius": ground.radius,
        "estimates": {name: dataclasses.asdict(found) for name, found in ground.estimates.items()},
        "constants": dataclasses.asdict(ground.constants),
        "plans": {method: shown(found) for method, found in plans.items()},
    }
    plain: dict[str, Any] = finite(content)
    return plain
