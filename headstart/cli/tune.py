"""`headstart tune`: numbers for any settings, chosen on validation clients."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from headstart.cli.options import Client, Debug, ExperimentFile, Kind, Label, Seed, Settings
from headstart.errors import UsageError

__all__ = ["tune"]


def tune(
    experiment: ExperimentFile = None,
    over: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=LOW:HIGH[:log]",
            help="A setting and its range, such as `algorithm.inner_lr=0.001:1:log`; two whole numbers for a whole "
            "one. May be given several times.",
        ),
    ] = None,
    how: Annotated[
        Literal["halving", "grid", "random", "optuna"],
        typer.Option(
            help="Points spread evenly of which the better ones go on, a grid, points at random, or what Optuna "
            "proposes."
        ),
    ] = "halving",
    trials: Annotated[int, typer.Option(min=1, help="How many points are tried.")] = 24,
    data: Annotated[
        str | None, typer.Option(metavar="PATH|NAME", help="Your own data, or a data set by name, as in `run`.")
    ] = None,
    client: Client = None,
    label: Label = None,
    kind: Kind = None,
    settings: Settings = None,
    seed: Seed = None,
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="The experiment with the best settings, as a file that can be run.")
    ] = Path("tuned.toml"),
    picture: Annotated[
        Path | None, typer.Option(help="The heat map, as a PNG file; left out, beside the TOML file.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Try numbers for any settings of an experiment, and keep those that serve validation clients best.

    `headstart tune my.toml --over algorithm.inner_lr=0.001:1:log --over algorithm.outer_lr=0.001:1:log`

    `headstart tune my.toml --over algorithm.local_steps=1:20 --how grid --trials 5 --out mine.toml`

    Points that differ in numbers of the algorithm alone, such as step sizes, are trained together as one program.
    `headstart run --data TABLE` finds step sizes by itself; this is for more of them, and for anything else.

    From Python: `tuned = hs.Experiment.from_toml("my.toml").tune(["algorithm.inner_lr=0.001:1:log"])`, then
    `tuned.best`, `tuned.write("tuned.toml")` and `hs.report.plot_tuning(tuned, "tuned.png")`.
    """
    about = {name: value for name, value in {"client": client, "label": label, "kind": kind}.items() if value}
    if data is None and about:
        raise UsageError(f"--{next(iter(about))} is about data, but there is no --data.", "Name the data with --data.")
    picture = picture or out.with_suffix(".png")
    for path in (out, picture):
        # That results can be written is found out before they are computed.
        if not path.absolute().parent.is_dir():
            raise UsageError(f"There is no folder {path.parent} to write {path.name} into.", "Make it first.")

    import headstart as hs
    from headstart.cli.searching import searching
    from headstart.cli.terminal import console, escape
    from headstart.report import plot_tuning, tuning_table

    if data is None:
        asked = hs.Experiment.from_toml(experiment, settings=settings or [], seed=seed)
    else:
        chosen = about if seed is None else {**about, "seed": seed}
        asked = hs.Experiment.from_table(
            data, experiment=experiment, settings=settings or [], tune=False, **chosen  # type: ignore[arg-type]
        )  # fmt: skip
    with searching(lambda label: label) as told:
        tuned = asked.tune(over or [], how, trials, told)
    console.print(tuning_table(tuned))
    tuned.write(out)
    console.print(f"Best settings: {escape(str(out))}. Run them with: headstart run {escape(str(out))}")
    try:
        plot_tuning(tuned, picture)
    except UsageError as error:
        if "Matplotlib" not in error.problem:
            raise
    else:
        console.print(f"Picture: {escape(str(picture))}")
