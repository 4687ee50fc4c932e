"""`headstart plan`: constants from an experiment's data, settings from theorems."""

import json
from pathlib import Path
from typing import Annotated

import typer

from headstart.cli.options import Debug, ExperimentFile, Seed, Settings
from headstart.errors import UsageError

__all__ = ["plan"]


def plan(
    experiment: ExperimentFile = None,
    epsilon: Annotated[
        float | None,
        typer.Option(help="What the mean squared gradient norm is to be at most; left out, a tenth of the initial."),
    ] = None,
    radius: Annotated[
        float | None,
        typer.Option(help="How far from the initial model constants are to hold; left out, a tenth of its norm."),
    ] = None,
    safety: Annotated[float, typer.Option(help="A factor on all constants, which are found from below.")] = 1.0,
    clients: Annotated[int | None, typer.Option(help="On so many clients constants are estimated (4).")] = None,
    settings: Settings = None,
    seed: Seed = None,
    out: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write everything into this file.")] = None,
    picture: Annotated[
        Path | None,
        typer.Option(help="Run Per-FedAvg as planned, and draw its gradient norm beside the bound into this PNG file."),
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="The rounds of that run; left out, the experiment's.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Plan step sizes, local steps, rounds and batch sizes by the papers' theorems, for every method they speak of.

    `headstart plan my.toml --epsilon 0.1` estimates the constants of the experiment's losses and prints the plans.

    `headstart plan my.toml --picture bound.png` also puts what is measured beside what is promised.

    From Python: `plans = hs.Experiment.from_toml("my.toml").plan(epsilon=0.1)`, then `plans.methods`, `plans.to_json()`
    and `hs.report.plot_plan(plans, plans.follow(rounds=100), "bound.png")`.
    """
    if rounds is not None and picture is None:
        raise UsageError("--rounds is for the picture, and there is no --picture.", "Add --picture bound.png.")
    for path in (out, picture):
        # That results can be written is found out before they are computed.
        if path is not None and not path.absolute().parent.is_dir():
            raise UsageError(f"There is no folder {path.parent} to write {path.name} into.", "Make it first.")

    import headstart as hs
    from headstart.cli.terminal import console, counting, escape, estimating, say
    from headstart.report import bounds_table, estimates_table, plans_table, plot_plan

    asked = hs.Experiment.from_toml(experiment, settings=settings or [], seed=seed)
    with estimating() as progress:
        plans = asked.plan(epsilon, radius=radius, safety=safety, clients=clients, progress=progress)
    console.print(estimates_table(plans.estimates))
    console.print(plans_table(plans.methods))
    console.print(bounds_table(plans.methods))
    say(plans.notes())
    if out is not None:
        out.write_text(json.dumps(plans.to_json(), indent=1) + "\n", encoding="utf-8")
        console.print(f"Plans: {escape(str(out))}")
    if picture is not None:
        length = plans.rounds_to_follow(rounds)
        console.print(f"Running {plans.followed_method} as planned for {length:,} rounds.")
        with counting(plans.followed_method, length) as count:
            followed = plans.follow(length, progress=count)
        plot_plan(plans, followed, picture)
        say(followed.notes)
        console.print(f"Picture: {escape(str(picture))}")
