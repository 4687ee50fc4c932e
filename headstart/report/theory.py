"""Estimated constants and plans as tables, and a measured gradient norm beside its bound as a picture."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich import box
from rich.markup import escape
from rich.table import Table

from headstart.report.canvas import COLOURS, pyplot

if TYPE_CHECKING:  # a run's report does without the theory, which takes a second to import
    from headstart.experiment.planning import Followed, Plans
    from headstart.theory.estimate import Estimates
    from headstart.theory.measure import Trace
    from headstart.theory.planner import MethodPlan, PlannedRun

__all__ = ["bounds_table", "estimates_table", "plans_table", "plot_bound", "plot_plan"]

BATCHES = {
    "batch_size": "outer",
    "inner_batch_size": "inner",
    "curvature_batch_size": "curv.",
    "memory_batch_size": "restart",
}


def estimates_table(estimates: "Estimates") -> Table:
    """Every constant with its standard error, what it is a mean or maximum over, and how it was found."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title="Constants", title_justify="left")
    table.add_column("constant", no_wrap=True)
    for heading in ("value", "std. error", "samples"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("how")
    for name, found in estimates.items():
        error = f"{found.standard_error:.2g}"
        table.add_row(name, f"{found.value:.4g}", error, str(found.samples), escape(found.how))
    return table


def plans_table(plans: Mapping[str, "MethodPlan"]) -> Table:
    """For every method the settings that reach epsilon; largest safe step sizes in brackets."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False, title="Plans", title_justify="left")
    table.add_column("method", no_wrap=True)
    for heading in ("inner lr\n(most)", "outer lr\n(most)", "local\nsteps", "rounds"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("samples of\na batch", no_wrap=True)
    table.add_column("samples\nin all", justify="right", no_wrap=True)
    for plan in plans.values():
        largest = "any" if plan.largest_inner_lr is None else _short(plan.largest_inner_lr)
        inner = f"{_short(plan.inner_lr)}\n({largest})"
        run = plan.run
        if run is None:
            table.add_row(_in_two_lines(plan.method), inner, "no plan", "", "", "", "")
            continue
        largest = "any" if np.isinf(run.largest_outer_lr) else _short(run.largest_outer_lr)
        table.add_row(
            _in_two_lines(plan.method),
            inner,
            f"{_short(run.outer_lr)}\n({largest})",
            _count(run.local_steps),
            _count(run.rounds),
            _batches(run),
            _count(run.samples),
        )
    return table


def bounds_table(plans: Mapping[str, "MethodPlan"]) -> Table:
    """For every method that has a plan its bound, the term that dominates it, and all of its terms."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title="Bounds on ‖∇F‖²", title_justify="left")
    table.add_column("method", no_wrap=True)
    table.add_column("bound", justify="right", no_wrap=True)
    table.add_column("dominant", no_wrap=True)
    table.add_column("terms")
    table.add_column("theorem")
    for plan in plans.values():
        if plan.run is not None:
            terms = ", ".join(f"{name} {_short(plan.run.terms[name])}" for name in _noticed(plan.run))
            table.add_row(_in_two_lines(plan.method), _short(plan.run.bound), plan.run.dominant, terms, plan.theorem)
    return table


def plot_plan(plans: "Plans", followed: "Followed", path: str | Path) -> None:
    """Draw a run of Per-FedAvg as planned beside what was promised of it."""
    run = followed.plan.run
    assert run is not None, "only what has a plan is followed"
    title = f"Per-FedAvg as planned, {plans.clients} clients, {run.cohort} in a round"
    plot_bound(followed.measured, run, plans.epsilon, title, Path(path))


def plot_bound(found: "Trace", run: "PlannedRun", epsilon: float, title: str, path: Path) -> None:
    """Draw the measured average of ``||grad F||^2`` against the bound of Theorem 4.5 and its terms, over rounds.

    A dot a look at the model; the thick line is their average so far, which is what the bound is on.
    """
    plt = pyplot()
    figure, axis = plt.subplots(figsize=(7.2, 4.6))
    rounds = found.rounds + 1
    lengths = np.unique(np.geomspace(1, rounds[-1], 200).round().astype(int))
    bounds = [run.after(int(length)) for length in lengths]
    axis.plot(lengths, [sum(terms.values()) for terms in bounds], color="black", linewidth=2.2, label="bound, in all")
    drawn = _noticed(run)
    for colour, name in zip(COLOURS[1:] * len(drawn), drawn, strict=False):
        values = [terms[name] for terms in bounds]
        axis.plot(lengths, values, color=colour, linestyle=(0, (4, 2)), linewidth=1.3, label=f"bound: {name}")
    axis.plot(rounds, found.squared_gradients, ".", color=COLOURS[0], alpha=0.35, markersize=4, label="measured")
    axis.plot(rounds, found.running_average, color=COLOURS[0], linewidth=2.6, label="measured, average so far")
    axis.axhline(epsilon, color="#888888", linewidth=1, linestyle=(0, (1, 2)), label="ε")
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel("communication rounds")
    axis.set_ylabel("‖∇F(w)‖²")
    axis.set_title(title, fontsize=11)
    axis.grid(color="#e4e4e4", linewidth=0.8)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _noticed(run: "PlannedRun") -> list[str]:
    """The terms that matter; those of full batches are as good as zero."""
    return [name for name, value in run.terms.items() if value > 1e-6 * run.bound]


def _short(value: float) -> str:
    return f"{value:.3g}"


def _count(value: int) -> str:
    return f"{value:,}" if value < 10**7 else f"{value:.1e}"


def _batches(run: "PlannedRun") -> str:
    sizes = {BATCHES[name]: size for name, size in run.batches.items()}
    if len(set(sizes.values())) == 1 and "restart" not in sizes:
        return f"{next(iter(sizes.values()))} each"
    return "\n".join(f"{name} {size}" for name, size in sizes.items())


def _in_two_lines(method: str) -> str:
    """So that a usual terminal has room for everything."""
    return escape(method.replace(" (", "\n("))
