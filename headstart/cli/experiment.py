"""An experiment: the sections of a configuration file, and the objects they ask for."""

import copy
import inspect
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from headstart.algorithms import ALGORITHMS
from headstart.config import Plan, plan
from headstart.core import Weighting, checks
from headstart.data import DATASETS, Federation
from headstart.errors import UsageError, did_you_mean
from headstart.models import MODELS
from headstart.problems import Problem, problem_for
from headstart.simulate import Backend, Evaluation

__all__ = ["Experiment", "Training", "read_experiment", "with_settings"]

SECTIONS = ("seed", "data", "model", "algorithm", "baselines", "train", "evaluate")


@dataclass(frozen=True)
class Training:
    """The ``[train]`` section: how long, with whom, and on what."""

    rounds: int = 300
    cohort: float | int = 0.2
    weighting: Weighting = "uniform"
    backend: Backend = "sharded"
    devices: int | None = None
    """CPU devices for ``sharded``; all cores unless given."""
    at_once: int | None = None
    chunk: int | None = None
    memory: Literal["ram", "disk"] = "ram"
    """Where clients' memories live; ``disk`` for more of them than RAM holds."""
    keep_checkpoints: int = 3
    precision: Literal["float32", "float64"] = "float32"

    def __post_init__(self) -> None:
        checks.whole("train.rounds", self.rounds, 1)
        checks.whole("train.keep_checkpoints", self.keep_checkpoints, 1)
        if isinstance(self.cohort, float):
            checks.in_unit_interval("train.cohort", self.cohort)
        for name in ("devices", "at_once", "chunk"):
            if getattr(self, name) is not None:
                checks.whole(f"train.{name}", getattr(self, name), 1)


@dataclass(frozen=True)
class Experiment:
    """A checked configuration. Nothing is loaded or computed until it is asked for."""

    seed: int
    train: Training
    evaluate: Evaluation
    methods: dict[str, Plan]
    """Every algorithm to train, the first being the one of ``[algorithm]``."""
    _data: Plan
    _model: Plan
    resolved: dict[str, Any]
    """The configuration with every default filled in; reading it again gives the same experiment."""

    @classmethod
    def from_tables(cls, tables: Mapping[str, Any]) -> "Experiment":
        """Check a configuration's tables."""
        for key, value in tables.items():
            if key not in SECTIONS:
                raise UsageError(f"There is no section [{key}].", did_you_mean(key, SECTIONS))
            if key != "seed" and not isinstance(value, Mapping):
                raise UsageError(f"{key} = {value!r} is not a section.", f"Write it as [{key}] with settings below.")
        seed = tables.get("seed", 0)
        checks.whole("seed", seed, 0)
        data = _named(tables.get("data", {}), DATASETS, "data", "dataset")
        model = _named(tables.get("model", {}), MODELS, "model", "model", given={"inputs": 1, "outputs": 1})
        train = plan(Training, tables.get("train", {}), "train")
        evaluate = plan(Evaluation, tables.get("evaluate", {}), "evaluate")
        methods, resolved_methods = _methods(tables)
        return cls(
            seed=seed,
            train=train.build(),
            evaluate=evaluate.build(),
            methods=methods,
            _data=data,
            _model=model,
            resolved={
                "seed": seed,
                "data": data.resolved,
                "model": model.resolved,
                **resolved_methods,
                "train": train.resolved,
                "evaluate": evaluate.resolved,
            },
        )

    def federation(self) -> Federation:
        """Load the data and deal it out."""
        federation = self._data.build()
        assert isinstance(federation, Federation)
        return federation

    def problem(self, federation: Federation) -> Problem:
        """The learning problem that fits the data."""
        if federation.task is None:
            raise UsageError("The data does not say what is to be predicted.", "Use it from Python with a problem.")
        shape = {"inputs": federation.task.inputs, "outputs": federation.task.outputs}
        model = self._model.call(**(self._model.arguments | shape))
        return problem_for(federation.task, model)


def read_experiment(path: Path | None, default: str = "default.toml") -> dict[str, Any]:
    """The tables of a TOML file, or of an experiment that comes with the package."""
    if path is None:
        return tomllib.loads(resources.files("headstart.cli").joinpath(default).read_text())
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except FileNotFoundError as error:
        raise UsageError(f"There is no file {path}.", "Check the path.") from error
    except IsADirectoryError as error:
        raise UsageError(
            f"{path} is a folder.", f"Name a .toml file, or continue a run with --resume {path}."
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}.", "Mend the file there.") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.", "Check its permissions.") from error


def with_settings(tables: Mapping[str, Any], settings: list[str]) -> dict[str, Any]:
    """The tables with ``section.key=value`` settings applied; values are written as in TOML, bare words as strings."""
    result = copy.deepcopy(dict(tables))
    for setting in settings:
        key, sign, text = setting.partition("=")
        if not sign or not key.strip():
            raise UsageError(f"--set {setting} has no '='.", "Write --set section.key=value.")
        *path, last = key.strip().split(".")
        table: Any = result
        for name in path:
            table = table.setdefault(name, {})
            if not isinstance(table, dict):
                raise UsageError(f"--set {setting}: {name} is not a section.", "Write --set section.key=value.")
        value = _value(text.strip())
        if last == "name" and isinstance(table.get("name"), str) and table["name"] != value:
            # Another algorithm, dataset or model: the old one's settings are not meant for it.
            table.clear()
        table[last] = value
    return result


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _named(
    table: Mapping[str, Any],
    registry: Mapping[str, Any],
    where: str,
    kind: str,
    given: Mapping[str, Any] | None = None,
) -> Plan:
    """Plan a section whose ``name`` says what it builds."""
    settings = dict(table)
    name = settings.pop("name", None)
    if name is None:
        raise UsageError(f"{where}.name is missing.", f"Choose one of: {', '.join(sorted(registry))}.")
    if name not in registry:
        raise UsageError(f"{where}.name = {name!r}: there is no such {kind}.", did_you_mean(str(name), registry))
    planned = plan(registry[name], settings, where, given)
    return Plan(planned.call, planned.arguments, {"name": name, **planned.resolved})


def _methods(tables: Mapping[str, Any]) -> tuple[dict[str, Plan], dict[str, Any]]:
    """The algorithm and its baselines, which take over every setting of the algorithm that they also have."""
    builders = {name: entry.build for name, entry in ALGORITHMS.items()}
    own = tables.get("algorithm", {})
    planned = _named(own, builders, "algorithm", "algorithm")
    plans = {planned.resolved["name"]: planned}
    baselines = {}
    for label, table in tables.get("baselines", {}).items():
        if not isinstance(table, Mapping):
            raise UsageError(f"baselines.{label} = {table!r} is not a section.", f"Write it as [baselines.{label}].")
        if label in plans or "/" in label or label.startswith("."):
            raise UsageError(
                f"baselines.{label} cannot be called that: the name is taken or not a folder name.",
                "Call it something else.",
            )
        accepted = inspect.signature(builders[table["name"]]).parameters if table.get("name") in builders else {}
        inherited = {key: value for key, value in own.items() if key in accepted}
        plans[label] = _named({**inherited, **table}, builders, f"baselines.{label}", "algorithm")
        baselines[label] = plans[label].resolved
    return plans, {"algorithm": planned.resolved, "baselines": baselines}
