"""The search for step sizes against a grid of them: how good is what it finds, and what does it cost?

    python -m benchmarks.search_against_grid sine digits table har few-shot [--side 12] [--seeds 1] [--data DIR]
                                             [--out FILE] [--grids DIR]

For Per-FedAvg on each data set: every point of a grid of ``side`` x ``side`` step sizes (inner and outer, over the
ranges of the search) is trained for all rounds, and so is what the search finds. All of them are one compiled program.
Scores are means over seeds of training, of which the search has seen the first. With more than one, settings that
diverge with any of them are no good, however well they do with another.
Of each, the best way to adapt is chosen by the clients by whom the search chooses, each with the same weight as there,
from the same numbers and sizes of steps. The table has the score that the grid's best and the search's choice have with
these clients, by how much the latter falls short, the same two on new clients (looked at for this report only), and the
time of the search beside that of one run, both in processor seconds and with all that they compile. ``--grids`` keeps
the scores of grids in a folder, for when only the search has changed since.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

import headstart as hs
from headstart.core import Algorithm
from headstart.experiment import Experiment
from headstart.metrics import Metric
from headstart.tuning import Contest, choosers, grid, headline, ranges_of, search, smoothness
from headstart.tuning.adapting import judged, step_sizes
from headstart.tuning.budget import Ladder
from headstart.tuning.choosing import Choosers

ROUNDS = {"sine": 100, "digits": 60, "table": 100, "har": 40, "few-shot": 30}
LADDER = Ladder((0, 1, 3, 10), 6, 20)
"""For all alike; 300 steps of all points of a grid would take hours."""


def experiments(name: str, rounds: int, folder: Path | None) -> Experiment:
    settings = [f"train.rounds={rounds}"]
    if folder is not None:
        os.environ.setdefault("HEADSTART_DATA", str(folder))
    if name == "sine":
        return Experiment.from_table("sine", settings=settings)
    if name == "digits":
        return Experiment.from_table("mnist-small", settings=settings)
    if name == "har":
        return Experiment.from_table("har", settings=settings)
    if name == "few-shot":
        small = ["model.filters=8", "train.cohort=4", "algorithm.local_steps=2"]
        return Experiment.from_table("omniglot", settings=[*settings, *small])
    rng = np.random.default_rng(0)
    who = np.repeat(np.arange(40), 30)
    x = rng.normal(size=(len(who), 5))
    y = np.tanh(x) @ rng.normal(size=5) + rng.normal(size=40)[who] * x[:, 0] + 0.2 * rng.normal(size=len(who))
    columns = {f"x{j}": 10.0**j * x[:, j] for j in range(5)}
    return Experiment.from_table({"who": [f"p{i}" for i in who], **columns, "y": 1e4 * y}, client="who", label="y",
                                 settings=settings)  # fmt: skip


class Scores(NamedTuple):
    """Every setting's score with every way to adapt, less being better; infinity for what lets clients go astray."""

    choosing: np.ndarray
    new: np.ndarray


def scores(contest: Contest, algorithms: Sequence[Algorithm], own: Sequence[float], scale: float, seeds: int) -> Scores:
    """What settings are worth after all rounds, to the clients that choose and to new ones, on average over seeds."""
    each = [of_one(replace(contest, seed=contest.seed + more), algorithms, own, scale) for more in range(seeds)]
    return Scores(*(np.mean(values, axis=0) for values in zip(*each, strict=True)))


def of_one(contest: Contest, algorithms: Sequence[Algorithm], own: Sequence[float], scale: float) -> Scores:
    """The same with the contest's seed."""
    trials = contest.trials(algorithms, min(contest.rounds, 256))
    trials.advance(range(len(own)), contest.rounds)
    sizes = np.concatenate([np.tile(step_sizes(LADDER.sizes, scale), (len(own), 1)), np.array(own)[:, None]], 1)
    federation, metric = contest.federation, headline(contest.problem)
    new = np.arange(federation.trained + federation.validation, federation.total)[: LADDER.clients]
    found = []
    for by in (choosers(federation, LADDER.clients), Choosers(new, np.full(len(new), 1 / len(new)))):
        score = judged(trials, range(len(own)), sizes, LADDER, by, metric, contest.batch_size, lambda: None)
        found.append(score.value.reshape(len(own), -1))
    return Scores(*found)


def shortfall(metric: Metric, found: float, best: float) -> float:
    """By how much what was found is worse, relative to the best."""
    return (1 - found / best) if metric.higher_is_better else (found / best - 1)


def one(name: str, rounds: int, side: int, seeds: int, folder: Path | None, grids: Path | None) -> dict:
    experiment = experiments(name, rounds, folder)
    settings, federation, problem = experiment.settings, experiment.federation, experiment.problem
    train, metric = settings.train, headline(problem)
    contest = Contest(problem, federation, rounds, train.cohort, train.weighting, settings.seed,
                      batch_size=settings.evaluate.batch_size, steps=LADDER.steps)  # fmt: skip
    method = settings.methods["per-fedavg"]

    def build(point):
        return method.call(**{**method.arguments, **point})

    cpu = time.process_time()
    scale = smoothness(problem, federation, settings.seed)
    ranges = ranges_of("per-fedavg", ["inner_lr", "outer_lr"], scale)
    found = search(contest, "per-fedavg", build, ranges, smoothness=scale, free_steps=False)
    searched = time.process_time() - cpu
    cpu = time.process_time()
    diverged = False
    try:
        hs.train(build(found.settings), problem, federation, rounds=rounds, cohort=train.cohort, seed=settings.seed,
                 evaluation=settings.evaluate)  # fmt: skip
    except hs.errors.Diverged:
        diverged = True
    ran = time.process_time() - cpu
    cpu = time.process_time()
    points = grid(ranges, side * side)
    kept = None if grids is None else grids / f"{name}-{rounds}-{side}-{seeds}.npz"
    if kept is not None and kept.exists():
        of_grid = Scores(**np.load(kept))
    else:
        own = [point["inner_lr"] for point in points]
        of_grid = scores(contest, [build(point) for point in points], own, scale, seeds)
        if kept is not None:
            kept.parent.mkdir(parents=True, exist_ok=True)
            np.savez(kept, **of_grid._asdict())
    of_found = scores(contest, [build(found.settings)], [found.settings["inner_lr"]], scale, seeds)
    best, way = np.unravel_index(int(np.argmin(of_grid.choosing)), of_grid.choosing.shape)
    own_way = int(np.argmin(of_found.choosing[0]))
    sign = -1 if metric.higher_is_better else 1
    shown = {
        "grid": sign * of_grid.choosing[best, way], "search": sign * of_found.choosing[0, own_way],
        "grid_new": sign * of_grid.new[best, way], "search_new": sign * of_found.new[0, own_way],
    }  # fmt: skip
    return {
        "data": name, "metric": metric.name, "rounds": rounds, **{key: float(value) for key, value in shown.items()},
        "shortfall": shortfall(metric, shown["search"], shown["grid"]), "times": searched / ran,
        "search_seconds": searched, "run_seconds": ran, "grid_seconds": time.process_time() - cpu,
        "seeds": seeds, "run_diverged": diverged, "best_of_grid": points[best],
        "found": dict(found.settings), "tried": list(found.tried),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=["sine", "digits", "table"], choices=[*ROUNDS])
    parser.add_argument("--rounds", type=int, help="as the data set is large, unless given")
    parser.add_argument("--side", type=int, default=12)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--grids", type=Path, help="a folder that keeps the scores of grids")
    parser.add_argument("--out", type=Path, help="a file to which one line of JSON is added per data set")
    options = parser.parse_args()
    # Nothing that was compiled before makes the search or the run look cheaper than it is.
    with tempfile.TemporaryDirectory() as empty:
        jax.config.update("jax_compilation_cache_dir", empty)
        print(f"{'data':9s} {'metric':9s} {'grid':>8s} {'search':>8s} {'short of':>8s}   {'grid, new':>9s} "
              f"{'search, new':>11s}   search / run")  # fmt: skip
        for name in options.names:
            row = one(name, options.rounds or ROUNDS[name], options.side, options.seeds, options.data, options.grids)
            print(f"{name:9s} {row['metric']:9s} {row['grid']:8.4g} {row['search']:8.4g} {row['shortfall']:8.1%}   "
                  f"{row['grid_new']:9.4g} {row['search_new']:11.4g}   {row['times']:.2f} "
                  f"({row['search_seconds']:.0f} s / {row['run_seconds']:.0f} s)"
                  + ("   the run diverged" if row["run_diverged"] else ""), flush=True)  # fmt: skip
            if options.out is not None:
                with options.out.open("a") as file:
                    file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
