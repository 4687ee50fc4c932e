"""Running one unit: a method in a row of a paper's table, with its grid and its seeds, as one program."""

import inspect
import itertools
import json
import math
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from headstart.config import Plan, plan
from headstart.core import Algorithm, StepDecay, cohort_size
from headstart.data import DATASETS, Federation, sources, waves
from headstart.errors import UsageError
from headstart.experiment import Experiment
from headstart.experiment.settings import named
from headstart.models import MODELS
from headstart.problems import Classification, Problem, Prototypes, Waves, problem_for
from headstart.simulate import Callback, Evaluation
from headstart.simulate.identity import data_digest
from headstart_papers.extras import EXTRAS, MEASURES
from headstart_papers.record import Unit, merged
from headstart_papers.released import METHODS

__all__ = ["Job", "build", "run_unit"]

DIGITS = 6
"""Significant digits that a result file keeps."""
FORMAT = 1

FEDERATIONS = {**DATASETS, "waves": waves}
"""The named data sets, and the one with nothing to predict."""


class Job(NamedTuple):
    """A unit with its data loaded and its algorithms built."""

    algorithms: list[Algorithm]
    points: list[dict[str, Any]]
    """The settings in which the algorithms differ."""
    experiment: Experiment
    """That of the first of them, on the unit's data."""
    final: Evaluation | None
    local_steps: int
    """How many steps a client takes in a round."""


def build(unit: Unit) -> Job:
    """Check a unit's settings and make what they ask for."""
    settings = unit.settings
    train = dict(settings["train"])
    federation = _federation(unit)
    method = METHODS.get(settings["algorithm"].get("name"))
    accepted = inspect.signature(method.build).parameters if method else {}
    grid = {key: values for key, values in settings["grid"].items() if key in accepted}
    common = {key: value for key, value in settings["common"].items() if key in accepted}
    own = {**common, **settings["algorithm"]}
    points = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    builders = {name: known.build for name, known in METHODS.items()}
    where = f"{unit.experiment}: methods.{unit.method}"

    def planned(point: Mapping[str, Any]) -> Plan:
        return named({**own, **point}, builders, where, "algorithm", method and method.given)

    def algorithm(point: Mapping[str, Any], outer_lr: Any = None) -> Algorithm:
        call = planned(point)
        changed = {} if outer_lr is None else {"outer_lr": outer_lr}
        return call.call(**(call.arguments | changed))  # type: ignore[no-any-return]

    cohort = train.get("cohort", 1.0)
    rounds = train.get("rounds") or _equal_rounds(train["samples"], algorithm(points[0]), federation, cohort)
    scaled_by = settings.get("step_scaled_by")

    def step_size(point: Mapping[str, Any]) -> Any:
        table = {**own, **point}
        step = table.get("outer_lr")
        if step is None:
            return None
        step = step * table[scaled_by] if scaled_by else step
        decay = train.get("decay_at")
        return step if not decay else StepDecay(step, (round(decay * rounds),), 0.1)

    algorithms = [algorithm(point, step_size(point)) for point in points]
    return Job(
        algorithms=algorithms,
        points=points,
        experiment=Experiment(
            algorithms[0],
            _problem(unit, federation),
            federation,
            evaluation=_evaluation(settings["evaluate"], rounds, algorithms[0], unit),
            rounds=rounds,
            cohort=cohort,
            weighting=train.get("weighting", "uniform"),
            backend="vmap",
        ),
        final=_evaluation(settings["final"], rounds, algorithms[0], unit) if settings["final"] else None,
        local_steps=planned(points[0]).resolved.get("local_steps", 1),
    )


def run_unit(
    unit: Unit,
    checkpoint: Path | None = None,
    checkpoint_seconds: float = 30.0,
    callbacks: Sequence[Callback] = (),
) -> dict[str, Any]:
    """Run a unit, and return what its result file says. ``checkpoint`` is a folder from which it goes on."""
    began = time.perf_counter()
    job = build(unit)
    measure = unit.settings.get("measure")
    done = job.experiment.sweep(
        unit.seeds, job.algorithms, final=job.final, measure=MEASURES[measure](unit) if measure else None, devices=1,
        checkpoint=checkpoint, checkpoint_seconds=checkpoint_seconds, callbacks=callbacks,
    )  # fmt: skip
    finals, curves = {}, {}
    for name, (metric, steps, group, clients, measured) in unit.settings["scores"].items():
        if measured:
            along = done.measured[metric]
            # It goes up and down with every step, and clients do not average that out.
            last = along[-max(1, len(along) // 10) :].mean(axis=0)
        else:
            along = done.evaluated.mean(metric, steps, group, None if job.final else clients)
            last = done.final.mean(metric, steps, group, clients)[-1]
        finals[name] = _rounded(last.reshape(len(job.points), len(unit.seeds)))
        curves[name] = _rounded(along.T.reshape(len(job.points), len(unit.seeds), -1))
    return {
        "format": FORMAT,
        "experiment": unit.experiment,
        "row": unit.row,
        "method": unit.method,
        "fingerprint": unit.fingerprint,
        "settings": unit.settings,
        "seeds": list(unit.seeds),
        "points": job.points,
        "rounds": job.experiment.settings.train.rounds,
        "data": _data_told(unit, job.experiment.federation),
        "evaluated": [int(round_) for round_ in done.evaluated.rounds],
        "samples": _rounded(done.samples),
        "seconds": _rounded(done.seconds),
        "final": finals,
        "curves": curves,
        "extras": {name: EXTRAS[name](job, done, unit) for name in unit.settings["extras"]},
        "took": round(time.perf_counter() - began, 1),
    }


@lru_cache(maxsize=2)
def _made(recipe: str, where: str) -> Federation:
    """The federation of a ``[data]`` table, given as JSON so that it can be remembered by what it says."""
    federation: Federation = named(json.loads(recipe), FEDERATIONS, where, "dataset").build()
    return federation


def _federation(unit: Unit) -> Federation:
    """The data; its own seed is the unit's where seeds are run one by one, so that they differ in the split too."""
    table = unit.settings["data"]
    if unit.whole and not _subset(table["name"]):
        table = merged(table, unit.whole)
    if not unit.settings["together"]:
        table = {**table, "seed": unit.seeds[0]}
    return _made(json.dumps(table, sort_keys=True), f"{unit.experiment}: data")


def _data_told(unit: Unit, federation: Federation) -> dict[str, str]:
    """The data's name and digest, and in what it is less than the published data."""
    name = unit.settings["data"]["name"]
    told = {"name": name, "digest": data_digest(federation)}
    subset = _subset(name)
    return told | {"subset": subset} if subset else told


@lru_cache(maxsize=4)
def _subset(name: str) -> str:
    source = sources.SOURCES.get(name.replace("-", "_"))
    return source.load().subset if source else ""


def _problem(unit: Unit, federation: Federation) -> Problem:
    settings = dict(unit.settings["model"])
    if unit.settings.get("problem") == "waves":
        return Waves(**settings)
    task = federation.task
    if task is None:
        raise UsageError(f"{unit.experiment}: the data does not say what is to be predicted.", "Use another dataset.")
    shape = {"inputs": task.inputs, "outputs": task.outputs}
    model = named(settings, MODELS, f"{unit.experiment}: model", "model", given=shape).build()
    if unit.settings.get("problem") == "prototypes":
        return Prototypes(model, ways=task.outputs)
    if unit.settings.get("problem") == "squared":
        return Classification(model, error="squared")
    return problem_for(task, model)


def _equal_rounds(samples: float, algorithm: Algorithm, federation: Federation, cohort: float | int) -> int:
    """The rounds after which a method has drawn so many samples."""
    clients = cohort_size(cohort, federation.trained)
    return max(1, math.ceil(samples / (clients * algorithm.cost().samples(0))))


def _evaluation(table: Mapping[str, Any], rounds: int, algorithm: Algorithm, unit: Unit) -> Evaluation:
    """An evaluation, whose ``times`` says how often in a run, whatever its length."""
    settings = dict(table)
    if algorithm.adapts_by is None:
        settings.pop("inner_lr", None)  # prototypes, say, adapt without steps
    times = settings.pop("times", None)
    if times is not None:
        settings["every"] = max(1, rounds // times)
    evaluation: Evaluation = plan(Evaluation, settings, f"{unit.experiment}: evaluate").build()
    return evaluation


def _rounded(values: np.ndarray | Sequence[Any]) -> Any:
    """Plain lists with few digits; ``None`` where a number is not finite, for JSON has no NaN."""
    if isinstance(values, np.ndarray):
        values = values.tolist()
    if isinstance(values, list):
        return [_rounded(value) for value in values]
    number = float(values)  # type: ignore[arg-type]
    return float(f"{number:.{DIGITS}g}") if math.isfinite(number) else None
