"""Tuning any numeric settings of an experiment: a grid, points at random, successive halving, or Optuna."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import jax
import numpy as np

from headstart.core import checks
from headstart.errors import UsageError
from headstart.experiment.running import Job
from headstart.experiment.searching import Watch
from headstart.experiment.toml import to_toml
from headstart.metrics import Metric
from headstart.simulate.files import write_bytes
from headstart.tuning import Contest, Range, Told, headline, in_memory, spread
from headstart.tuning import grid as grid_of
from headstart.tuning.field import Entrants, compete

if TYPE_CHECKING:
    from headstart.experiment.experiment import Experiment

__all__ = ["How", "Tuned", "ranges_from", "tune"]

How = Literal["halving", "grid", "random", "optuna"]
NUMBER = r"[-+0-9.eE]+"
SPELT = re.compile(rf"({NUMBER}):({NUMBER})(?::(log|linear))?")


@dataclass(frozen=True, eq=False)
class Tuned:
    """What tuning has found."""

    over: Mapping[str, Range]
    tried: Sequence[Mapping[str, Any]]
    """One row per point: its settings, for how many rounds it was trained, and its score then; the best one first."""
    metric: Metric
    experiment: "Experiment"
    """The experiment with the best settings."""

    @property
    def best(self) -> dict[str, Any]:
        """The best settings by their keys."""
        return {key: self.tried[0][key] for key in self.over}

    @property
    def toml(self) -> str:
        """The experiment with the best settings, as a file that can be run."""
        return to_toml(self.experiment.config)

    def write(self, path: str | Path) -> None:
        """Write the experiment with the best settings as a TOML file."""
        write_bytes(Path(path), self.toml.encode())


def ranges_from(over: Mapping[str, Range | Sequence[float]] | Iterable[str]) -> dict[str, Range]:
    """Ranges by the keys of settings, from ranges, pairs of ends, or ``key=low:high[:log]``.

    >>> ranges_from(["algorithm.inner_lr=0.001:1:log", "algorithm.local_steps=1:20"])["algorithm.local_steps"]
    Range(low=1, high=20, log=False, whole=True)
    """
    if isinstance(over, Mapping):
        return {
            key: size if isinstance(size, Range) else Range(float(size[0]), float(size[1]))
            for key, size in over.items()
        }
    found = {}
    for text in over:
        key, sign, ends = text.partition("=")
        spelt = SPELT.fullmatch(ends.strip())
        if not sign or spelt is None or "." not in key:
            raise UsageError(f"--over {text} is no range of a setting.", "Write section.key=LOW:HIGH, or LOW:HIGH:log.")
        try:
            low, high = (int(end) if re.fullmatch(r"[-+]?\d+", end) else float(end) for end in spelt.groups()[:2])
        except ValueError as error:
            raise UsageError(f"--over {text}: {error}.", "Give two numbers.") from error
        whole = isinstance(low, int) and isinstance(high, int)
        found[key.strip()] = Range(low, high, spelt[3] == "log", whole)
    return found


def tune(experiment: "Experiment", over: Mapping[str, Range], how: How, trials: int, watch: Watch) -> Tuned:
    """Try settings of the experiment's algorithm, data, model or training, and choose by its validation clients."""
    checks.whole("trials", trials, 1)
    if not over:
        raise UsageError("Nothing is said to be tuned.", "Name settings, such as algorithm.inner_lr=0.001:1:log.")
    for key in over:
        if key.partition(".")[0] not in ("algorithm", "data", "model", "train", "wire"):
            raise UsageError(f"{key} cannot be tuned.", "Tune settings of algorithm, data, model, train or wire.")
    if how == "optuna":
        rows = _by_optuna(experiment, over, trials, watch)
    else:
        if how == "random":
            shift = np.random.default_rng(experiment.settings.seed)
            points = [{key: size.at(shift.uniform()) for key, size in over.items()} for _ in range(trials)]
        else:
            points = grid_of(over, trials) if how == "grid" else spread(over, trials)
        rows = _competed(experiment, points, how == "halving", watch)
    metric = headline(experiment.problem)
    if rows[0][metric.name] is None:
        raise UsageError("All settings that were tried have diverged.", "Give smaller step sizes.")
    best = _changed(experiment, {key: rows[0][key] for key in over})
    return Tuned(over, rows, metric, best)


def _changed(experiment: "Experiment", point: Mapping[str, Any]) -> "Experiment":
    return experiment.changed([f"{key}={value!r}" for key, value in point.items()])


def _competed(
    experiment: "Experiment", points: Sequence[Mapping[str, Any]], halving: bool, watch: Watch
) -> list[dict[str, Any]]:
    """Points that differ in numbers of the algorithm alone compete as one program."""
    groups: dict[Any, tuple[Contest, list[Any], list[int]]] = {}
    label, rounds = next(iter(experiment.settings.methods)), experiment.settings.train.rounds
    for place, point in enumerate(points):
        changed = _changed(experiment, point)
        rounds = max(rounds, changed.settings.train.rounds)
        job = Job(changed.settings, changed.federation)
        algorithm = job.algorithms[label]
        others = tuple((key, value) for key, value in point.items() if not key.startswith("algorithm."))
        group = (others, jax.tree.structure(algorithm))
        if group not in groups:
            train, evaluate = changed.settings.train, changed.settings.evaluate
            contest = Contest(
                problem=job.problem, federation=in_memory(changed.federation), rounds=train.rounds,
                cohort=train.cohort, weighting=train.weighting, seed=changed.settings.seed, wire=job.wire,
                batch_size=evaluate.batch_size, steps=evaluate.steps, inner_lr=evaluate.inner_lr,
                devices=train.devices if train.backend == "sharded" else 1, watch=watch,
            )  # fmt: skip
            groups[group] = (contest, [], [])
        groups[group][1].append(algorithm)
        groups[group][2].append(place)
    return compete([Entrants(*group) for group in groups.values()], points, label, rounds, halving, watch)


def _by_optuna(experiment: "Experiment", over: Mapping[str, Range], trials: int, watch: Watch) -> list[dict[str, Any]]:
    """Optuna proposes, one point after another, each trained for all rounds."""
    try:
        import optuna
    except ImportError as error:
        raise UsageError("Optuna is not installed.", "pip install 'headstart[tune]', or tune by halving.") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(seed=experiment.settings.seed)
    study = optuna.create_study(sampler=sampler)
    metric = headline(experiment.problem)
    rows: list[dict[str, Any]] = []
    label = next(iter(experiment.settings.methods))

    def objective(trial: Any) -> float:
        point = {
            key: trial.suggest_int(key, int(size.low), int(size.high), log=size.log)
            if size.whole
            else trial.suggest_float(key, size.low, size.high, log=size.log)
            for key, size in over.items()
        }
        watch(Told(label, len(rows) / trials, f"point {len(rows) + 1} of {trials}", None))
        (row,) = _competed(experiment, [point], False, lambda told: None)
        rows.append(row)
        value = row[metric.name]
        return math.inf if value is None else value * (-1 if metric.higher_is_better else 1)

    study.optimize(objective, n_trials=trials, catch=())
    sign = -1 if metric.higher_is_better else 1
    return sorted(rows, key=lambda row: math.inf if row[metric.name] is None else sign * row[metric.name])
