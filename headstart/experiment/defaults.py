"""Settings that suit the data, where an experiment leaves them open."""

from collections.abc import Mapping
from typing import Any

from headstart.algorithms import LocalOnly
from headstart.data import EpisodeClients, Federation
from headstart.data.tables import commonest_class
from headstart.experiment.settings import Training, accepted_settings
from headstart.simulate import Evaluation

__all__ = ["affordable_evaluation", "fitted", "has_step_sizes", "suiting"]

MOST_CLIENTS = 10
"""A round's cohort, unless an experiment says otherwise."""
BATCH = 20
WHOLE = 200
"""Clients adapt on all of their support samples at once if none has more than this."""
LARGE_BATCH = 100
CLASSIFICATION_STEPS = {"inner_lr": 0.03, "outer_lr": 0.05}
REGRESSION_STEPS = {"inner_lr": 0.01, "outer_lr": 0.01}
"""Smaller, for a squared error has no bound on its gradient."""
REGRESSION_METRICS = ("rmse", "mae", "r2")
UNEVEN_METRICS = ("accuracy", "auc")
"""Where nearly all labels are of one class."""

STEPS = (0, 1, 5)
"""Of adaptation, where neither anybody says how many nor a search finds it."""
EVALUATIONS = 11
"""In a run that does not say how many: before the first round, and ten times after that."""
LEAST_EVALUATIONS = 3
LEAST_EVALUATED = 20
"""Of each group of clients at least so many are evaluated, however long it takes."""
PASSES = 4
"""What a local step costs, in gradients of a batch: two of them, and a Hessian-vector product that is worth two."""
ALONE_SHARE = 4
"""Clients who train alone may cost so many times what the shared model's training does."""

ANY_MODEL: Mapping[str, Any] = {"name": "mlp", "hidden": [80, 60], "activation": "elu"}
SMALL_CNN: Mapping[str, Any] = {"name": "cnn", "filters": [16, 32], "kernel": 3, "hidden": 128}
TWO_GROUPS: Mapping[str, Any] = {"held_out": 0.3, "validation": 0.1}
SMALL_IMAGES: Mapping[str, Any] = {
    "data": TWO_GROUPS,
    "model": SMALL_CNN,
    "baselines": {"alone": {"name": "local-only", "own_steps": 50}},
    "train": {"rounds": 150},
    "evaluate": {"max_clients": 15, "every": 50, "batch_size": 20},
}
SUITING: Mapping[str, Mapping[str, Any]] = {
    "mnist-small": {"data": {"held_out": 20, "validation": 5}},
    "sine": {"data": {"held_out": 20, "validation": 5}},
    "mnist": {"data": TWO_GROUPS},
    "fashion-mnist": {"data": TWO_GROUPS},
    "cifar10": SMALL_IMAGES,
    "cifar100": SMALL_IMAGES,
    "har": {"data": {"validation": 3}},
    "shakespeare": {
        "data": {"held_out": 0.3, "validation": 0.1},
        "model": {"name": "recurrent", "cell": "gru"},
        "algorithm": {"inner_lr": 0.3, "outer_lr": 1.0},
        "train": {"rounds": 200},
        "evaluate": {"max_clients": 20, "batch_size": 20},
    },
    "omniglot": {
        "data": {"partition": {"name": "alphabets", "evaluate": "both"}},
        "model": {"name": "conv", "filters": 32},
        "algorithm": {"inner_lr": 0.4, "outer_lr": 0.1, "local_steps": 5},
        "baselines": {"alone": {"name": "local-only", "own_steps": 20}},
        "train": {"rounds": 100, "cohort": 5},
        "evaluate": {"max_clients": 25, "every": 50},
    },
}
"""Settings for data sets by name: a network that takes their samples, clients for validation and new ones, and what
keeps a run with it within minutes."""


def has_step_sizes(data: str) -> bool:
    """Whether there are step sizes for a data set by its name."""
    return "outer_lr" in SUITING.get(data, {}).get("algorithm", {})


def suiting(tables: Mapping[str, Any], asked_for: bool) -> dict[str, Any]:
    """An experiment with settings for the data set that its section [data] names, and with a network for it.

    Of an experiment that was ``asked_for``, and is not the package's own, only what it leaves out is filled in.
    """
    data = tables["data"]
    suited = SUITING.get(data["name"], {})
    dealt = {} if {"held_out", "validation"} & set(data) else suited.get("data", {})
    filled = {"model": dict(suited.get("model", ANY_MODEL)), **tables, "data": {**dealt, **data}}
    if not asked_for:
        changed = {name: table for name, table in suited.items() if name not in ("data", "model")}
        filled |= {name: {**tables.get(name, {}), **table} for name, table in changed.items()}
    return filled


def fitted(tables: Mapping[str, Any], federation: Federation, tune: bool = False) -> dict[str, Any]:
    """An experiment without cohort, batch or step sizes, with those that suit the data.

    Clients are evaluated as often, and as many of them, as costs no more than the training does. Where a search is to
    ``tune`` it, step sizes and how clients adapt are left open.
    """
    algorithm, train, evaluate = (dict(tables.get(name, {})) for name in ("algorithm", "train", "evaluate"))
    regression = federation.task is not None and federation.task.kind == "regression"
    suited: dict[str, Any] = {} if tune else dict(REGRESSION_STEPS if regression else CLASSIFICATION_STEPS)
    if regression:
        evaluate.setdefault("metrics", list(REGRESSION_METRICS))
    elif federation.partition is not None and commonest_class(federation.partition) is not None:
        evaluate.setdefault("metrics", list(UNEVEN_METRICS))
    train.setdefault("cohort", min(MOST_CLIENTS, federation.trained))
    baselines = {label: dict(table) for label, table in tables.get("baselines", {}).items()}
    if regression and not tune and baselines.get("alone", {}).get("name") == "local-only":
        baselines["alone"].setdefault("learning_rate", REGRESSION_STEPS["inner_lr"])
    if isinstance(federation.clients, EpisodeClients):
        # A task is adapted to on its shots and judged by its queries.
        episodes = federation.clients.episodes
        shots, queries = episodes.ways * episodes.shots, episodes.ways * episodes.queries
        suited |= {"batch_size": queries, "inner_batch_size": shots, "curvature_batch_size": shots}
    elif federation.counts is not None:
        suited["batch_size"] = min(BATCH, int(federation.counts["train"][: federation.trained].min()))
    if federation.counts is not None and federation.counts["support"].max() > WHOLE:
        evaluate.setdefault("batch_size", min(LARGE_BATCH, max(BATCH, int(federation.counts["support"].min()))))
    accepted = accepted_settings(algorithm.get("name")) or suited
    algorithm = {**{name: value for name, value in suited.items() if name in accepted}, **algorithm}
    if not tune:
        evaluate.setdefault("steps", list(STEPS))
        evaluate = {**affordable_evaluation(algorithm, train, evaluate, federation), **evaluate}
    return {**tables, "algorithm": algorithm, "baselines": baselines, "train": train, "evaluate": evaluate}


def affordable_evaluation(
    algorithm: Mapping[str, Any], train: Mapping[str, Any], evaluate: Mapping[str, Any], federation: Federation
) -> dict[str, Any]:
    """How many clients are evaluated and how often, where all of them ten times would cost more than training does.

    Costs are gradients of single samples; predictions cost a third of one.
    """
    batch, cohort = algorithm.get("batch_size"), train["cohort"]
    if federation.counts is None or not isinstance(batch, int) or not isinstance(cohort, int):
        return {}
    rounds = train.get("rounds", Training.rounds)
    training = rounds * cohort * algorithm.get("local_steps", 1) * batch * PASSES
    support = evaluate.get("batch_size", int(federation.counts["support"].max()))
    steps = evaluate.get("steps", Evaluation.steps)
    if not isinstance(support, int):
        return {}
    scoring = len(steps) * int(federation.counts["query"].max()) / 3
    adapting = sum(steps) * support + scoring
    # Whoever trains alone does so before the first round and after the last, for every number of steps.
    alone = 2 * sum(n > 0 for n in steps) * LocalOnly.own_steps * support
    new = federation.total - federation.trained - federation.validation
    sizes = [size for size in (federation.trained, federation.validation, new) if size]
    affordable = min(training / (EVALUATIONS * adapting), ALONE_SHARE * training / max(alone, 1))
    most = max(LEAST_EVALUATED, int(affordable / len(sizes)))
    found: dict[str, Any] = {}
    if most < max(sizes):
        found["max_clients"] = most
    number = sum(min(size, evaluate.get("max_clients", most)) for size in sizes)
    times = int(training / (number * adapting))
    if times < EVALUATIONS:
        found["every"] = max(1, rounds // (max(times, LEAST_EVALUATIONS) - 1))
    return found
