"""From `--data` and its companions to the sections of an experiment."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from headstart.data import DATASETS, EpisodeClients, Federation
from headstart.errors import UsageError, did_you_mean

__all__ = ["DataOptions", "fitted"]

MOST_CLIENTS = 10
"""A round's cohort, unless an experiment says otherwise."""
BATCH = 20
WHOLE = 200
"""Clients adapt on all of their support samples at once if none has more than this."""
LARGE_BATCH = 100
CLASSIFICATION_STEPS = {"inner_lr": 0.03, "outer_lr": 0.05}
REGRESSION_STEPS = {"inner_lr": 0.01, "outer_lr": 0.01}
"""Smaller, for a squared error has no bound on its gradient."""


@dataclass(frozen=True)
class DataOptions:
    """What the command line says about the data."""

    data: str
    client: str | None = None
    label: str | None = None
    features: str | None = None
    group: str | None = None
    order: str | None = None
    held_out: str | None = None
    shots: int | None = None

    def section(self) -> dict[str, Any]:
        """The section [data]: of a named data set, or of whatever lies at a path."""
        given = {f.name: value for f in fields(self) if (value := getattr(self, f.name)) is not None}
        named = given.pop("data")
        if "held_out" in given:
            given["held_out"] = _number(given["held_out"])
        if "features" in given:
            given["features"] = [name.strip() for name in given["features"].split(",")]
        if named in DATASETS and not Path(named).exists():
            extra = [f"--{name.replace('_', '-')}" for name in given if name != "held_out"]
            if extra:
                raise UsageError(
                    f"{', '.join(extra)} cannot be said of {named}, which has columns of its own.",
                    "Leave that out, or change its partition with --set data.partition.NAME=VALUE.",
                )
            return {"name": named, **given}
        if not Path(named).exists():
            known = sorted(set(DATASETS) - {"own"})
            raise UsageError(f"There is no file, folder or data set {named}.", did_you_mean(named, known))
        # In full, so that the run can be resumed from elsewhere.
        return {"name": "own", "path": str(Path(named).resolve()), **given}


def fitted(tables: Mapping[str, Any], federation: Federation) -> dict[str, Any]:
    """An experiment without cohort, batch or step sizes, with those that suit the data."""
    algorithm, train, evaluate = (dict(tables.get(name, {})) for name in ("algorithm", "train", "evaluate"))
    regression = federation.task is not None and federation.task.kind == "regression"
    algorithm = {**(REGRESSION_STEPS if regression else CLASSIFICATION_STEPS), **algorithm}
    train.setdefault("cohort", min(MOST_CLIENTS, federation.trained))
    baselines = {label: dict(table) for label, table in tables.get("baselines", {}).items()}
    if regression and baselines.get("alone", {}).get("name") == "local-only":
        baselines["alone"].setdefault("learning_rate", REGRESSION_STEPS["inner_lr"])
    if isinstance(federation.clients, EpisodeClients):
        # A task is adapted to on its shots and judged by its queries.
        episodes = federation.clients.episodes
        shots, queries = episodes.ways * episodes.shots, episodes.ways * episodes.queries
        sizes = {"batch_size": queries, "inner_batch_size": shots, "curvature_batch_size": shots}
        algorithm = {**sizes, **algorithm}
    elif federation.counts is not None:
        algorithm.setdefault("batch_size", min(BATCH, int(federation.counts["train"][: federation.trained].min())))
    if federation.counts is not None and federation.counts["support"].max() > WHOLE:
        evaluate.setdefault("batch_size", min(LARGE_BATCH, int(federation.counts["support"].min())))
    return {**tables, "algorithm": algorithm, "baselines": baselines, "train": train, "evaluate": evaluate}


def _number(text: str) -> int | float:
    try:
        return float(text) if "." in text else int(text)
    except ValueError as error:
        raise UsageError(f"--held-out {text} is not a number.", "Give a share such as 0.2, or a number.") from error
