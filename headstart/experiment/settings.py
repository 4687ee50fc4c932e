"""A checked configuration: what its sections ask for, before anything is loaded or computed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from headstart.algorithms import ALGORITHMS
from headstart.config import PYTHON, Plan, given, plan, settings_of, type_path
from headstart.core import Algorithm, Weighting, checks
from headstart.data import DATASETS, Federation
from headstart.errors import UsageError, did_you_mean
from headstart.experiment.sections import Adapting, Searching, adapt_section, tune_section
from headstart.models import MODELS
from headstart.problems import Problem, problem_for
from headstart.simulate import Backend, Evaluation
from headstart.simulate.fitting import Bound

__all__ = ["Settings", "Training", "accepted_settings", "check_label", "named"]

SECTIONS = ("seed", "data", "model", "algorithm", "baselines", "wire", "train", "evaluate", "adapt", "tune")
BUILDERS = {name: entry.build for name, entry in ALGORITHMS.items()}


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
    memory_limit: str | None = None
    """What a device may use, such as "4GB"; clients at once and the length of chunks follow from it."""
    keep: Literal["last", "best"] = "last"
    """Which round's model is the result; ``best`` for clients of validation, and then new clients are looked at once,
    at the end."""
    keep_checkpoints: int = 3
    precision: Literal["float32", "float64"] = "float32"

    def __post_init__(self) -> None:
        checks.whole("train.rounds", self.rounds, 1)
        checks.whole("train.keep_checkpoints", self.keep_checkpoints, 1)
        if isinstance(self.cohort, float):
            checks.in_unit_interval("train.cohort", self.cohort)
        if self.memory_limit is not None:
            Bound(self.memory_limit)
        for name in ("devices", "at_once", "chunk"):
            if getattr(self, name) is not None:
                checks.whole(f"train.{name}", getattr(self, name), 1)


@dataclass(frozen=True)
class Settings:
    """A checked configuration. Nothing is loaded or computed until it is asked for."""

    seed: int
    train: Training
    evaluate: Evaluation
    methods: dict[str, Plan]
    """Every algorithm to train, the first being the one of ``[algorithm]``."""
    wire: Plan | None
    """What happens to updates on their way to the server, if anything does."""
    data: Plan
    problem: Callable[[Federation], Problem]
    """The learning problem that fits the data."""
    resolved: dict[str, Any]
    """The configuration with every default filled in; reading it again gives the same settings."""
    adapt: Mapping[str, Adapting] = field(default_factory=dict)
    """How clients adapt, of methods for which that is said."""
    tune: Searching | None = None
    """What a search has to find before anything is trained."""

    @classmethod
    def from_tables(cls, tables: Mapping[str, Any], data: Plan | None = None) -> "Settings":
        """Check a configuration's tables; ``data`` is given where no section could ask for it."""
        for key, value in tables.items():
            if key not in SECTIONS:
                raise UsageError(f"There is no section [{key}].", did_you_mean(key, SECTIONS))
            if key != "seed" and not isinstance(value, Mapping):
                raise UsageError(f"{key} = {value!r} is not a section.", f"Write it as [{key}] with settings below.")
        seed = tables.get("seed", 0)
        checks.whole("seed", seed, 0)
        data = data or named(tables.get("data", {}), DATASETS, "data", "dataset")
        model = named(tables.get("model", {}), MODELS, "model", "model", given={"inputs": 1, "outputs": 1})
        train = plan(Training, tables.get("train", {}), "train")
        asked = dict(tables.get("evaluate", {}))
        metrics = {"metrics": _metrics(asked.pop("metrics"))} if "metrics" in asked else {}
        evaluate = plan(Evaluation, asked, "evaluate")
        wire = _wire(tables["wire"]) if tables.get("wire") else None
        methods, resolved_methods = _methods(tables)
        adapt = adapt_section(tables, methods)
        names = {label: accepted_settings(method.resolved["name"]) for label, method in methods.items()}
        tune = tune_section(tables, names)

        def problem(federation: Federation) -> Problem:
            if federation.task is None:
                raise UsageError("The data does not say what is to be predicted.", "Use it from Python with a problem.")
            shape = {"inputs": federation.task.inputs, "outputs": federation.task.outputs}
            return problem_for(federation.task, model.call(**(model.arguments | shape)), **metrics)

        return cls(
            seed=seed,
            train=train.build(),
            evaluate=evaluate.build(),
            methods=methods,
            wire=wire,
            data=data,
            problem=problem,
            resolved={
                "seed": seed,
                "data": data.resolved,
                "model": model.resolved,
                **resolved_methods,
                **({} if wire is None else {"wire": wire.resolved}),
                "train": train.resolved,
                "evaluate": {**evaluate.resolved, **metrics},
                **({} if not adapt else {"adapt": {label: dict(tables["adapt"][label]) for label in adapt}}),
                **({} if tune is None else {"tune": tune.table}),
            },
            adapt=adapt,
            tune=tune,
        )

    @classmethod
    def from_objects(
        cls,
        algorithms: Mapping[str, Algorithm],
        problem: Problem,
        federation: Federation,
        *,
        training: Mapping[str, Any],
        evaluation: Evaluation,
        wire: Any,
        seed: int,
    ) -> "Settings":
        """Settings around Python objects, of which the record says what they were."""
        checks.whole("seed", seed, 0)
        methods = {label: given(algorithm) for label, algorithm in algorithms.items()}
        label, *baselines = methods
        train, wired = plan(Training, training, "train"), None if wire is None else given(wire)
        dealt = {"name": type(federation).__name__, PYTHON: type_path(federation), "clients": federation.total}
        return cls(
            seed=seed,
            train=train.build(),
            evaluate=evaluation,
            methods=methods,
            wire=wired,
            data=Plan(lambda: federation, {}, dealt),
            problem=lambda _: problem,
            resolved={
                "seed": seed,
                "data": dealt,
                "model": given(problem).resolved,
                "algorithm": methods[label].resolved,
                "baselines": {name: methods[name].resolved for name in baselines},
                **({} if wired is None else {"wire": wired.resolved}),
                "train": train.resolved,
                "evaluate": given(evaluation).resolved,
            },
        )


def _metrics(names: Any) -> list[str]:
    """Names of metrics, each of which there is."""
    from headstart.metrics import as_metrics

    def choose(metrics: tuple[str, ...]) -> Any:
        return as_metrics(metrics)

    plan(choose, {"metrics": names}, "evaluate").build()
    return list(names)


def _wire(table: Mapping[str, Any]) -> Plan:
    from headstart.wire import wire

    return plan(wire, table, "wire")


def named(
    table: Mapping[str, Any],
    registry: Mapping[str, Any],
    where: str,
    kind: str,
    given: Mapping[str, Any] | None = None,
) -> Plan:
    """Plan a section whose ``name`` says what it builds."""
    if PYTHON in table:
        raise UsageError(
            f"[{where}] was given as a Python object, a {table[PYTHON]}, which a file cannot ask for.",
            "Build the same experiment in Python, and continue with experiment.resume(DIR).",
        )
    settings = dict(table)
    name = settings.pop("name", None)
    if name is None:
        raise UsageError(f"{where}.name is missing.", f"Choose one of: {', '.join(sorted(registry))}.")
    if not isinstance(name, str) or name not in registry:
        raise UsageError(f"{where}.name = {name!r}: there is no such {kind}.", did_you_mean(str(name), registry))
    planned = plan(registry[name], settings, where, given)
    return Plan(planned.call, planned.arguments, {"name": name, **planned.resolved})


def _methods(tables: Mapping[str, Any]) -> tuple[dict[str, Plan], dict[str, Any]]:
    """The algorithm and its baselines, which take over every setting of the algorithm that they also have."""
    own = tables.get("algorithm", {})
    planned = _method(own, "algorithm")
    plans = {planned.resolved["name"]: planned}
    baselines, unsaid = {}, set()
    for label, table in tables.get("baselines", {}).items():
        if not isinstance(table, Mapping):
            raise UsageError(f"baselines.{label} = {table!r} is not a section.", f"Write it as [baselines.{label}].")
        check_label(label, plans)
        accepted = accepted_settings(table.get("name"))
        inherited = {key: value for key, value in own.items() if key in accepted}
        plans[label] = _method({**inherited, **table}, f"baselines.{label}")
        baselines[label] = plans[label].resolved
        unsaid |= accepted.keys() - baselines[label].keys()
    # What the algorithm has by default and a baseline has not is left unsaid: read again, the baseline would take it.
    algorithm = {key: value for key, value in planned.resolved.items() if key in own or key not in unsaid}
    return plans, {"algorithm": algorithm, "baselines": baselines}


def check_label(label: str, taken: Mapping[str, Any]) -> None:
    """Refuse a baseline whose name is another's, or cannot be a folder's."""
    if label in taken or "/" in label or label.startswith("."):
        raise UsageError(
            f"baselines.{label} cannot be called that: the name is taken or not a folder name.",
            "Call it something else.",
        )


def _method(table: Mapping[str, Any], where: str) -> Plan:
    """Plan an algorithm; a setting that it has not and others have is refused with their names."""
    accepted = accepted_settings(table.get("name"))
    for key in table:
        if accepted and key != "name" and key not in accepted:
            having = [name for name in BUILDERS if key in accepted_settings(name)]
            if having:
                reason = BUILDERS[table["name"]]().refuses.get(key)
                raise UsageError(
                    f"{where}.{key} is not a setting: {table['name']} takes none"
                    + (f", for {reason}." if reason else "."),
                    f"These do: {', '.join(having)}.",
                )
    return named(table, BUILDERS, where, "algorithm")


def accepted_settings(name: Any) -> Mapping[str, Any]:
    """The settings of a named algorithm."""
    known = isinstance(name, str) and name in BUILDERS
    return settings_of(BUILDERS[name]) if known else {}
