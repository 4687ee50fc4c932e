"""The search for step sizes against a grid of them: how good is what it finds, and what does it cost?

    python -m benchmarks.search_against_grid sine digits table [har] [few-shot] --rounds 300 --side 12 --data DIR

For Per-FedAvg on each data set: every point of a grid of ``side`` x ``side`` step sizes (inner and outer, over the
ranges of the search) is trained for all rounds, and so is what the search finds. Of each, the best way to adapt is
chosen on validation clients. The table has the validation score of the grid's best, of the search's choice, the same
two on new clients (looked at for this report only), and what search and run cost beside one run, in processor seconds.
"""

import argparse
import os
import time
from pathlib import Path

import numpy as np

import headstart as hs
from headstart.experiment import Experiment
from headstart.metrics import LOSS
from headstart.simulate.trials import Trials
from headstart.tuning import Contest, choosers, grid, headline, ranges_of, search, smoothness
from headstart.tuning.choosing import score_of, steady
from headstart.tuning.halving import FACTORS, WHOLE


def experiments(name: str, rounds: int, folder: Path | None) -> Experiment:
    settings = [f"train.rounds={rounds}"]
    if name == "sine":
        return Experiment.from_table("sine", settings=settings)
    if name == "digits":
        return Experiment.from_table("mnist-small", settings=settings)
    if name == "har":
        return Experiment.from_table("har", settings=settings)
    if name == "few-shot":
        os.environ.setdefault("HEADSTART_DATA", str(folder))
        small = ["model.filters=8", "train.cohort=4", "algorithm.local_steps=2"]
        return Experiment.from_table("omniglot", settings=[*settings, *small])
    rng = np.random.default_rng(0)
    who = np.repeat(np.arange(40), 30)
    x = rng.normal(size=(len(who), 5))
    y = np.tanh(x) @ rng.normal(size=5) + rng.normal(size=40)[who] * x[:, 0] + 0.2 * rng.normal(size=len(who))
    columns = {f"x{j}": 10.0**j * x[:, j] for j in range(5)}
    return Experiment.from_table({"who": [f"p{i}" for i in who], **columns, "y": 1e4 * y}, client="who", label="y",
                                 settings=settings)  # fmt: skip


STEPS = WHOLE.steps[:5]
"""Of adaptation, for all alike; 300 steps of all points of a grid would take hours."""


def ladder_scores(trials: Trials, which, base, contest: Contest, ids):
    """Every metric of some settings, over step sizes, numbers of steps and clients."""
    sizes = np.asarray(base)[:, None] * np.array(FACTORS)
    return trials.scores(which, steps=STEPS, ids=ids, batch_size=contest.batch_size, sizes=sizes)


def best_of(trials: Trials, which, base, contest: Contest) -> tuple[np.ndarray, np.ndarray]:
    """The validation score of each setting with its best way to adapt, and its score on new clients then."""
    federation, metric = contest.federation, headline(contest.problem)
    by = choosers(federation)
    values = ladder_scores(trials, which, base, contest, by.ids)
    score = score_of(values, by.weights, metric).only(steady(values[LOSS.name], STEPS))
    new = np.arange(federation.trained + federation.validation, federation.total)[:20]
    of_new = ladder_scores(trials, which, base, contest, new)[metric.name].mean(axis=-1)
    flat = score.value.reshape(len(score.value), -1)
    places = flat.argmin(axis=1)
    sign = -1 if metric.higher_is_better else 1
    return sign * flat.min(axis=1), of_new.reshape(len(of_new), -1)[np.arange(len(places)), places]


def one(name: str, rounds: int, side: int, folder: Path | None) -> None:
    experiment = experiments(name, rounds, folder)
    settings, federation, problem = experiment.settings, experiment.federation, experiment.problem
    train, metric = settings.train, headline(problem)
    contest = Contest(problem, federation, rounds, train.cohort, train.weighting, settings.seed,
                      batch_size=settings.evaluate.batch_size)  # fmt: skip
    method = settings.methods["per-fedavg"]

    def build(point):
        return method.call(**{**method.arguments, **point})

    cpu = time.process_time()
    scale = smoothness(problem, federation, settings.seed)
    ranges = ranges_of("per-fedavg", ["inner_lr", "outer_lr"], scale)
    found = search(contest, "per-fedavg", build, ranges, smoothness=scale, free_steps=False)
    searched = time.process_time() - cpu
    cpu = time.process_time()
    hs.train(build(found.settings), problem, federation, rounds=rounds, cohort=train.cohort, seed=settings.seed,
             evaluation=settings.evaluate)  # fmt: skip
    ran = time.process_time() - cpu
    points = [*grid(ranges, side * side), found.settings]
    trials = contest.trials([build(point) for point in points], min(rounds, 256))
    everything = list(range(len(points)))
    trials.advance(everything, rounds)
    validation, new = best_of(trials, everything, [point["inner_lr"] for point in points], contest)
    order = validation if not metric.higher_is_better else -validation
    best = int(np.argmin(order[:-1]))
    oracle = new[:-1].max() if metric.higher_is_better else np.nanmin(new[:-1])
    ratio = validation[-1] / validation[best]
    shortfall = ratio - 1 if not metric.higher_is_better else 1 - ratio
    print(
        f"{name:10s} {metric.name:9s} validation: grid {validation[best]:.4g} {points[best]}, search "
        f"{validation[-1]:.4g} {found.settings} ({100 * shortfall:+.1f}%); new: grid {new[best]:.4g}, search "
        f"{new[-1]:.4g}; best of the grid on new {oracle:.4g}"
        f"; search + run {(searched + ran) / ran:.2f} runs ({searched:.0f} s + {ran:.0f} s of processor time)",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=["sine", "digits", "table"])
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--side", type=int, default=12)
    parser.add_argument("--data", type=Path, default=os.environ.get("HEADSTART_DATA"))
    options = parser.parse_args()
    for name in options.names:
        one(name, options.rounds, options.side, options.data)


if __name__ == "__main__":
    main()
