"""From an experiment with open settings to one with all of them: the search, its files, and what it has found."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from headstart.data import Federation
from headstart.experiment.defaults import affordable_evaluation
from headstart.experiment.sections import Searching
from headstart.experiment.settings import Settings, accepted_settings
from headstart.simulate import Evaluation
from headstart.simulate.files import write_json
from headstart.tuning import (
    Contest,
    Told,
    in_memory,
    ranges_of,
    run_cost,
    search,
    searched_settings,
    smoothness,
    trains_without_adapting,
)
from headstart.wire import Wire

__all__ = ["Watch", "left_open", "search_settings", "with_found"]

Watch = Callable[[Told], None]
"""Told how far a search has come; what it raises ends the search."""

INNER = "inner_lr"
DONE = "done"
"""What is told last."""


def left_open(tables: Mapping[str, Any]) -> Searching:
    """What an experiment does not say and a search can find: step sizes and weights of every method."""
    own = tables.get("algorithm", {})
    methods = {own.get("name"): own}
    for label, table in tables.get("baselines", {}).items():
        accepted = accepted_settings(table.get("name"))
        methods[label] = {**{key: value for key, value in own.items() if key in accepted}, **table}
    over = {}
    for label, table in methods.items():
        names = searched_settings(str(table.get("name")), accepted_settings(table.get("name")))
        # A client's own optimiser has a step size of its own.
        useless = {"outer_lr"} if "client_optimizer" in table else set()
        over[str(label)] = tuple(name for name in names if name not in table and name not in useless)
    steps = tables.get("evaluate", {}).get("steps")
    return Searching(over, None if steps is None else tuple(steps))


def search_settings(
    settings: Settings,
    federation: Federation,
    wire: Wire | None,
    folder: Path | None,
    watch: Watch,
    labels: Sequence[str],
) -> dict[str, Any]:
    """Search methods by their labels, those that ``folder`` has not done; a record of what was found and how.

    All of it depends on the settings, the data and the seed alone: a search that was stopped finds the same when it
    is done again.
    """
    assert settings.tune is not None
    problem, train, evaluate = settings.problem(federation), settings.train, settings.evaluate
    some = in_memory(federation)
    watch(Told(labels[0], 0.0, "estimating the smoothness", None))
    scale = _kept(folder, "smoothness", lambda: {"smoothness": smoothness(problem, some, settings.seed)})["smoothness"]
    contest = Contest(
        problem=problem,
        federation=some,
        rounds=train.rounds,
        cohort=min(train.cohort, some.trained) if isinstance(train.cohort, int) else train.cohort,
        weighting=train.weighting,
        seed=settings.seed,
        wire=wire,
        batch_size=evaluate.batch_size,
        steps=settings.tune.steps,
        inner_lr=evaluate.inner_lr,
        devices=train.devices if train.backend == "sharded" else 1,
        watch=watch,
    )
    main = next(iter(settings.methods.values())).build()
    cost = run_cost(main, some, contest.rounds, contest.cohort)
    methods = {}
    for label in labels:
        methods[label] = _kept(folder, label, partial(_one, contest, settings, label, scale, cost))
    watch(Told(labels[-1], 1.0, DONE, None))
    return {"smoothness": scale, "methods": methods}


def _one(contest: Contest, settings: Settings, label: str, scale: float, cost: float) -> dict[str, Any]:
    """One method's search, as plain values."""
    assert settings.tune is not None
    method, names = settings.methods[label], settings.tune.over.get(label, ())
    name = method.resolved["name"]
    free = trains_without_adapting(name) and INNER in names
    searched = [each for each in names if not (free and each == INNER)]

    def build(point: Mapping[str, float | int]) -> Any:
        return method.call(**{**method.arguments, **point})

    fixed = contest.inner_lr is None and INNER in accepted_settings(name) and INNER not in names
    found = search(
        contest, label, build, ranges_of(name, searched, scale), smoothness=scale, free_steps=free,
        own_step=fixed, budget=cost,
    )  # fmt: skip
    return asdict(found)


def _kept(folder: Path | None, name: str, find: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What was found before, or what is found now."""
    path = None if folder is None else folder / f"{name}.json"
    if path is not None and path.exists():
        found: dict[str, Any] = json.loads(path.read_text())
        return found
    found = find()
    if path is not None:
        write_json(path, found)
    return found


def with_found(config: Mapping[str, Any], found: Mapping[str, Any], federation: Federation) -> dict[str, Any]:
    """A configuration with what a search has found, and clients evaluated as that makes affordable."""
    tables = {name: table for name, table in config.items() if name != "tune"}
    over = config["tune"]["over"]
    tables["algorithm"] = dict(tables["algorithm"])
    tables["baselines"] = {label: dict(table) for label, table in tables.get("baselines", {}).items()}
    tables["adapt"] = dict(tables.get("adapt", {}))
    for label, result in found["methods"].items():
        table = tables["baselines"].get(label, tables["algorithm"])
        table.update(result["settings"])
        size = result["inner_lr"]
        if size is not None and trains_without_adapting(table["name"]) and INNER in over.get(label, ()):
            table[INNER], size = size, None
        adapting = {"steps": result["steps"], **({} if size is None else {INNER: size})}
        tables["adapt"].setdefault(label, adapting)
    evaluate = dict(tables.get("evaluate", {}))
    most = max(adapting["steps"] for adapting in tables["adapt"].values())
    if evaluate.get("max_clients", Evaluation.max_clients) == Evaluation.max_clients:
        evaluate.pop("max_clients", None)
    asked = {**evaluate, "steps": [0, most] if most else [0]}
    tables["evaluate"] = {
        **affordable_evaluation(tables["algorithm"], tables["train"], asked, federation), **evaluate
    }  # fmt: skip
    return tables
