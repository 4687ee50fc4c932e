"""`headstart plan` and `headstart run --plan`: constants from the experiment's data, settings from theorems."""

import dataclasses
import json
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

from headstart.algorithms import per_fedavg
from headstart.cli.experiment import Experiment, read_experiment, with_settings
from headstart.cli.startup import prepare_jax
from headstart.core import Purpose, checks, cohort_size, run_key, tree
from headstart.data import Federation
from headstart.errors import UsageError
from headstart.problems import Problem
from headstart.report import bounds_table, estimates_table, plans_table, plot_bound
from headstart.simulate import Simulation
from headstart.theory.constants import Constants
from headstart.theory.estimate import Ball, Effort, Estimate, Estimates, estimate_constants
from headstart.theory.measure import Look, MetaLoss, Trace, trace
from headstart.theory.planner import METHODS, Circumstances, MethodPlan, PlannedRun, method_of, plan_within

__all__ = ["PlanOptions", "planned", "show_plan"]

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
    radius: float
    looked_at: int
    """Clients on which the constants were estimated."""
    estimates: Estimates
    constants: Constants
    initial_gap: float
    squared_gradient: float
    epsilon: float

    @property
    def clients(self) -> int:
        return self.federation.trained

    @property
    def cohort(self) -> int:
        return cohort_size(self.experiment.train.cohort, self.clients)

    def circumstances(self) -> Circumstances:
        own = self.experiment.resolved["algorithm"]
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


def _meta_loss(
    experiment: Experiment, federation: Federation, problem: Problem, inner_lr: float, inner_steps: int = 1
) -> MetaLoss:
    most = MEASURED_CLIENTS if federation.trained > MEASURED_CLIENTS else None
    return MetaLoss(problem, federation, inner_lr, inner_steps, clients=most, seed=experiment.seed)


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
    _check_files(out, picture)
    tables = with_settings(read_experiment(path), settings)
    if seed is not None:
        tables["seed"] = seed
    experiment = Experiment.from_tables(tables)
    prepare_jax(experiment)
    ground = _measured(experiment, experiment.federation(), options, console)
    circumstances = ground.circumstances()
    plans = {method: planner(circumstances) for method, planner in METHODS.items()}
    console.print(plans_table(plans))
    console.print(bounds_table(plans))
    _say(_notes(ground, plans), console)
    if out is not None:
        out.write_text(json.dumps(_plain(ground, plans), indent=1) + "\n", encoding="utf-8")
        console.print(f"Plans: {escape(str(out))}")
    if picture is not None:
        _draw(ground, plans[DRAWN], picture, rounds, console)


def _check_files(*paths: Path | None) -> None:
    """That results can be written is found out before they are computed."""
    for path in paths:
        if path is not None and not path.absolute().parent.is_dir():
            raise UsageError(f"There is no folder {path.parent} to write {path.name} into.", "Make it first.")


def planned(
    tables: Mapping[str, Any], experiment: Experiment, federation: Federation, options: PlanOptions, console: Console
) -> dict[str, Any]:
    """An experiment's tables with the plan for its algorithm in them."""
    method, wanted = method_of(experiment.resolved["algorithm"]), experiment.train.rounds
    ground = _measured(experiment, federation, options, console)
    if options.epsilon is None:
        epsilon, found = plan_within(ground.circumstances(), method, wanted)
        ground = dataclasses.replace(ground, epsilon=epsilon)
    else:
        found = METHODS[method](ground.circumstances())
    settings, run = found.settings(), found.run
    assert run is not None, "settings() has checked"
    console.print(plans_table({method: found}))
    console.print(bounds_table({method: found}))
    notes = [_promise(ground), *_cautions(ground), *found.notes]
    rounds = wanted
    if options.epsilon is None:
        notes.append(f"That is about the smallest ε within {wanted:,} rounds; --epsilon asks for another.")
    elif run.rounds > wanted:
        notes.append(
            f"The theory asks for {run.rounds:,} rounds, and this run has {wanted:,}, as the experiment says: so it "
            f"promises nothing about it. Set train.rounds for more, or leave --epsilon out for the best in so many."
        )
    elif run.rounds < wanted:
        rounds = run.rounds
        notes.append(f"The plan needs {rounds:,} of the experiment's {wanted:,} rounds, and the run has those.")
    if ground.epsilon >= ground.squared_gradient:
        notes.append("ε is no less than ‖∇F‖² at the start: the step sizes are safe, but no progress is promised.")
    training = {**tables.get("train", {}), "rounds": rounds}
    if run.cohort != ground.cohort:
        training["cohort"] = run.cohort
    _say(notes, console)
    kept = {name: value for name, value in tables["algorithm"].items() if name not in SIZES}
    return {**tables, "algorithm": {**kept, **settings}, "train": training}


def _measured(experiment: Experiment, federation: Federation, options: PlanOptions, console: Console) -> _Ground:
    """Estimate the constants around the experiment's initial model, and measure the loss and gradient there."""
    own = experiment.resolved["algorithm"]
    problem = experiment.problem(federation)
    start = problem.init(run_key(experiment.seed, Purpose.INIT))
    norm = float(tree.norm(start))
    radius = RADIUS_SHARE * (norm or 1.0) if options.radius is None else options.radius
    if federation.endless:
        raise UsageError(
            "Tasks are endlessly many, and the theorems are on a federation of some clients.",
            "Give the data a number of clients.",
        )
    chosen = min(CLIENTS, federation.trained) if options.clients is None else options.clients
    region = Ball(start, radius)

    def search(names: Sequence[str]) -> Mapping[str, Estimate]:
        return estimate_constants(
            problem, federation, region, names=names, clients=chosen, effort=EFFORT, seed=experiment.seed
        )

    estimates = _side_by_side(search, console)
    console.print(estimates_table(estimates))
    constants = estimates.constants(options.safety)
    inner_lr, inner_steps = _inner_lr(own), own.get("inner_steps", 1)

    def look(inner_lr: float, inner_steps: int) -> Look:
        return _meta_loss(experiment, federation, problem, inner_lr, inner_steps).at(start)

    squared = look(min(inner_lr, 1 / constants.smoothness), 1).squared_gradient
    return _Ground(
        experiment=experiment,
        federation=federation,
        problem=problem,
        radius=radius,
        looked_at=chosen,
        estimates=estimates,
        constants=constants,
        # A safe inner step does not raise a loss; of one that is not safe the loss after it is known.
        initial_gap=max(look(0.0, 0).value, look(inner_lr, inner_steps).value),
        squared_gradient=squared,
        epsilon=EPSILON_SHARE * squared if options.epsilon is None else options.epsilon,
    )


def _side_by_side(search: Callable[[Sequence[str]], Mapping[str, Estimate]], console: Console) -> Estimates:
    """All constants: most of a short search is compilation, which one core does, so several are searched at once."""
    columns = (SpinnerColumn(), TextColumn("Estimating constants: {task.description}"), BarColumn())
    bar = Progress(*columns, console=console, transient=True, disable=not sys.stdout.isatty())
    task = bar.add_task("compiling", total=len(TOGETHER))
    if bar.disable:
        console.print("Estimating the constants of the losses.")
    found: dict[str, Estimate] = {}
    with bar, ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        searches = {pool.submit(search, names): names for names in TOGETHER}
        try:
            for done in as_completed(searches):
                found.update(done.result())
                bar.update(task, description=f"{searches[done][0]} found", advance=1)
        finally:
            pool.shutdown(cancel_futures=True)
    return Estimates({field.name: found[field.name] for field in dataclasses.fields(Constants)})


def _notes(ground: _Ground, plans: Mapping[str, MethodPlan]) -> list[str]:
    """What a reader of the tables should know."""
    notes = [
        _promise(ground),
        f"Cohorts are the experiment's, {ground.cohort} of {ground.clients} clients, where nothing else is said.",
        f"F(w₀) - inf F is at most {ground.initial_gap:.4g}, the measured loss at the start: losses are not negative, "
        f"and a safe inner step does not raise them.",
        *_cautions(ground),
        "--safety 2 plans with all constants twice as large.",
    ]
    for method, found in plans.items():
        if found.obstacle is not None:
            least = "" if found.floor is None else f" Smallest ε within reach: {found.floor:.3g}."
            notes.append(f"No plan for {method}: {found.obstacle}{least}")
        notes.extend(f"{method}: {note}" for note in found.notes)
    return notes


def _promise(ground: _Ground) -> str:
    return (
        f"A plan promises an average of ‖∇F(w)‖² over its rounds of at most ε = {ground.epsilon:.3g}. "
        f"At the start it is {ground.squared_gradient:.3g}."
    )


def _cautions(ground: _Ground) -> list[str]:
    """What the promises rest on."""
    notes = [
        f"The constants are searched for within {ground.radius:.3g} of the initial model, on {ground.looked_at} "
        f"clients. What is found is a lower bound, so a plan is only as good as the search.",
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
    measured = _followed(ground, found, run, length, console)
    title = f"Per-FedAvg as planned, {ground.clients} clients, {run.cohort} a round"
    plot_bound(measured, run, ground.epsilon, title, picture)
    farthest = float(measured.distances.max())
    reach = farthest + found.inner_lr * ground.constants.gradient_bound
    inside = "stayed inside" if reach <= ground.radius else "left"
    _say(
        [
            f"After {length:,} rounds the measured average of ‖∇F‖² is {measured.running_average[-1]:.3g}, the bound "
            f"{sum(run.after(length).values()):.3g}.",
            f"The models and what clients adapt them to {inside} the region of the constants: at most {reach:.3g} "
            f"away, and its radius is {ground.radius:.3g}.",
        ],
        console,
    )
    console.print(f"Picture: {escape(str(picture))}")


def _followed(ground: _Ground, found: MethodPlan, run: PlannedRun, rounds: int, console: Console) -> Trace:
    """Run a plan of Per-FedAvg and look at the exact gradient along the way."""
    simulation = Simulation(
        per_fedavg(**found.settings()),
        ground.problem,
        ground.federation,
        cohort=run.cohort,
        seed=ground.experiment.seed,
    )
    meta_loss = _meta_loss(ground.experiment, ground.federation, ground.problem, found.inner_lr)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True, disable=not sys.stdout.isatty()) as bar:
        task = bar.add_task(found.method, total=rounds)
        return trace(simulation, meta_loss, rounds, observer=lambda done: bar.update(task, completed=done))


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
