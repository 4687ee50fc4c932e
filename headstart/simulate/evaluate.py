"""How good the shared model is for each client, before and after the client adapts it."""

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
from jax import Array

from headstart.core import (
    FULL,
    Algorithm,
    ClientSamples,
    Size,
    check_size,
    checks,
    client_key,
    tree,
    with_canonical_convolutions,
)
from headstart.data import Clients, Federation, Part
from headstart.errors import UsageError, did_you_mean
from headstart.metrics import Metric
from headstart.problems import Problem

__all__ = [
    "Evaluation",
    "described",
    "evaluate",
    "in_group",
    "keeping",
    "kept_round",
    "score",
    "score_client",
    "score_clients",
    "score_table",
    "scores_of",
    "summarize",
    "summarized_metrics",
    "validating",
]

CLIENTS_AT_ONCE = 16
"""How many clients adapt together."""
GROUPS = ("trained", "validation", "new")
"""Into which clients are dealt, in the order of their numbers."""
BLOCK = 512
"""How many clients' states are gathered together; bounds the memory of an evaluation."""


@dataclass(frozen=True)
class Evaluation:
    """When and how clients are evaluated.

    Each client adapts the shared model for each number of ``steps`` on batches of ``batch_size`` support
    samples, and the result is scored on all its query samples.
    """

    every: int | None = None
    """Rounds between evaluations; ``None`` for ten in a run. Round 0 and the last are always evaluated."""
    steps: tuple[int, ...] = (0, 1)
    batch_size: Size = FULL
    inner_lr: float | None = None
    """The step size of adaptation, if not the algorithm's own."""
    max_clients: int = 10_000
    """Evaluate at most this many trained, this many validation and this many new clients, evenly spaced."""
    groups: tuple[str, ...] = GROUPS
    """Whom to evaluate: ``trained``, ``validation`` and ``new`` clients."""

    def __post_init__(self) -> None:
        if self.every is not None:
            checks.whole("evaluate.every", self.every, 1)
        checks.whole("evaluate.max_clients", self.max_clients, 1)
        if not self.steps:
            raise UsageError("evaluate.steps is empty.", "List numbers of adaptation steps, such as [0, 1].")
        object.__setattr__(self, "steps", tuple(self.steps))  # a list would not do as a static argument
        for steps in self.steps:
            checks.whole("evaluate.steps", steps, 0)
        check_size("evaluate.batch_size", self.batch_size)
        if self.inner_lr is not None:
            checks.at_least("evaluate.inner_lr", self.inner_lr, 0)
        object.__setattr__(self, "groups", tuple(self.groups))
        for group in self.groups:
            if group not in GROUPS:
                raise UsageError(f"evaluate.groups: there is no group {group!r}.", did_you_mean(str(group), GROUPS))

    def adapting(self, algorithm: Algorithm) -> Algorithm:
        """The algorithm as it adapts in this evaluation."""
        return algorithm if self.inner_lr is None else algorithm.adapting(self.inner_lr)

    def clients(self, federation: Federation) -> np.ndarray:
        """Which clients are evaluated; of endlessly many, only those held out."""
        trained = np.zeros(0, np.int64) if federation.endless else _spaced(federation.trained, self.max_clients)
        first_new = federation.trained + federation.validation
        validation = federation.trained + _spaced(federation.validation, self.max_clients)
        new = first_new + _spaced(federation.total - first_new, self.max_clients)
        found = dict(zip(GROUPS, (trained, validation, new), strict=True))
        return np.concatenate([found[group] for group in GROUPS if group in self.groups] or [trained[:0]])


def _spaced(total: int, most: int) -> np.ndarray:
    """At most so many of so many numbers."""
    return np.arange(min(total, most)) * total // max(1, min(total, most))


def evaluate(
    evaluation: Evaluation,
    problem: Problem,
    algorithm: Algorithm,
    federation: Federation,
    server: Any,
    states: Callable[[np.ndarray], Any],
    key: Array,
    round_: int,
    room: int | None = None,
) -> pa.Table:
    """One row per client and number of steps: round, client, whether held out, steps, and the problem's metrics.

    Where some of those held out are for validation, a further column says so. ``states`` gives the stacked states of
    some clients. What is gathered of some clients together takes at most ``room`` bytes, if that is given.
    """
    ids = evaluation.clients(federation)
    scores = scores_of(evaluation, problem, algorithm, federation, ids, server, states, key, room)
    return score_table(evaluation, federation, ids, round_, scores)


def scores_of(
    evaluation: Evaluation,
    problem: Problem,
    algorithm: Algorithm,
    federation: Federation,
    ids: np.ndarray,
    server: Any,
    states: Callable[[np.ndarray], Any],
    key: Array,
    room: int | None = None,
) -> list[dict[str, np.ndarray]]:
    """For each number of steps the metrics of some clients, one or more."""
    parts: tuple[Part, ...] = ("support", "query")
    fitting = BLOCK if room is None else min(BLOCK, room // max(1, tree.nbytes(states(ids[:1]))))
    most = federation.clients.most_at_once(parts, fitting, room) // CLIENTS_AT_ONCE * CLIENTS_AT_ONCE
    width = min(max(most, CLIENTS_AT_ONCE), -(-len(ids) // CLIENTS_AT_ONCE) * CLIENTS_AT_ONCE)
    adapting = evaluation.adapting(algorithm)
    scores = []
    for start in range(0, len(ids), width):
        block = ids[start : start + width]
        padded = np.resize(block, width)
        clients, places = federation.clients.gather(parts, padded, width)
        values = score(
            problem, evaluation.steps, evaluation.batch_size, adapting, clients, server, states(padded),
            key, jnp.asarray(padded, jnp.int32), jnp.asarray(places, jnp.int32),
        )  # fmt: skip
        scores.append(jax.tree.map(lambda v, block=block: np.asarray(v, np.float64)[: len(block)], values))
    return [
        {name: np.concatenate([block[position][name] for block in scores]) for name in scores[0][position]}
        for position in range(len(evaluation.steps))
    ]


def score_table(
    evaluation: Evaluation, federation: Federation, ids: np.ndarray, round_: int, scores: list[dict[str, np.ndarray]]
) -> pa.Table:
    """Scores, for each number of steps those of all ``ids``, as rows that say what they are."""
    columns: dict[str, Any] = {"round": [], "client": [], "held_out": [], "steps": []}
    names = np.array([federation.name(i) for i in ids])
    for steps, values in zip(evaluation.steps, scores, strict=True):
        columns["round"].append(np.full(len(ids), round_))
        columns["client"].append(names)
        columns["held_out"].append(ids >= federation.trained)
        if federation.validation:
            columns.setdefault("validation", []).append(validating(federation, ids))
        columns["steps"].append(np.full(len(ids), steps))
        for name, column in values.items():
            columns.setdefault(name, []).append(column)
    return pa.table({name: np.concatenate(parts) for name, parts in columns.items()})


def validating(federation: Federation, ids: np.ndarray) -> np.ndarray:
    """Which clients are for validation."""
    return (ids >= federation.trained) & (ids < federation.trained + federation.validation)


def in_group(group: str, held_out: np.ndarray, validation: np.ndarray | None) -> np.ndarray:
    """Which clients are of a group: ``all``, ``trained``, ``held-out``, or of the latter ``validation`` or ``new``."""
    validation = np.zeros(len(held_out), bool) if validation is None else validation.astype(bool)
    held_out = held_out.astype(bool)
    groups = {
        "all": np.ones(len(held_out), bool),
        "trained": ~held_out,
        "held-out": held_out,
        "validation": validation,
        "new": held_out & ~validation,
    }
    if group not in groups:
        raise UsageError(f"There is no group {group!r} of clients.", did_you_mean(group, groups))
    return groups[group]


def score_clients(
    problem: Problem,
    steps: tuple[int, ...],
    size: Size,
    algorithm: Algorithm,
    clients: Clients,
    server: Any,
    states: Any,
    key: Array,
    ids: Array,
    places: Array,
) -> list[dict[str, Array]]:
    """The metrics of some clients, for each number of steps; ``places`` are where their data lie in ``clients``."""
    down = algorithm.broadcast(server, key)

    def score_one(member: tuple[Array, Array, Any]) -> list[dict[str, Array]]:
        client, place, own = member
        support, query = clients.view("support", place), clients.view("query", place)
        return score_client(problem, algorithm, down, own, support, query, client_key(key, client), steps, size)

    return jax.lax.map(score_one, (ids, places, states), batch_size=CLIENTS_AT_ONCE)


score = jax.jit(score_clients, static_argnames=("problem", "steps", "size"))
"""The same, compiled."""


def score_client(
    problem: Problem,
    algorithm: Algorithm,
    down: Any,
    state: Any,
    support: ClientSamples,
    query: ClientSamples,
    key: Array,
    steps: tuple[int, ...] = (0, 1),
    size: Size = FULL,
) -> list[dict[str, Array]]:
    """One client's metrics on all its query samples, for each number of steps on its support samples.

    Needs what the server sent, the client's own state and its own samples, and nothing else. A pure function: wherever
    the client is, it can be compiled there.
    """
    objective, support = problem.objective(), problem.view(support)
    batch = query.sample(key, FULL)
    adapted = [algorithm.personalize(objective, down, state, support, key, n, size) for n in steps]
    scores = with_canonical_convolutions(problem.scores)
    return [scores(params, batch) for params in adapted]


def summarize(table: pa.Table, metrics: Iterable[Metric]) -> pa.Table:
    """Mean, deviation, worst tenth, minimum and maximum over clients: one row per round, group, steps and metric.

    Groups are ``all`` and, where there are any, ``held-out``; where some of these are for validation, also
    ``validation`` and ``new``. The worst tenth is the mean over the tenth of
    clients (at least one) with the worst value. Clients whose value is NaN, because their model has diverged or the
    metric is not defined on their samples, are left out: ``clients`` counts the others, ``left_out`` them. What the
    metrics are is written into the table, for `summarized_metrics` to read.
    """
    metrics = [metric for metric in metrics if metric.name in table.column_names]
    columns = {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names}
    rows = []
    for round_ in np.unique(columns["round"]):
        for steps in np.unique(columns["steps"]):
            here = (columns["round"] == round_) & (columns["steps"] == steps)
            for group in ("all", "held-out", *(("validation", "new") if "validation" in columns else ())):
                chosen = here & in_group(group, columns["held_out"], columns.get("validation"))
                if chosen.any():
                    key = {"round": int(round_), "group": group, "steps": int(steps)}
                    rows += [{**key, "metric": m.name, **_summary(columns[m.name][chosen], m)} for m in metrics]
    return described(pa.Table.from_pylist(rows), metrics)


def described(table: pa.Table, metrics: Iterable[Metric]) -> pa.Table:
    """A table that says of itself what its metrics are."""
    return table.replace_schema_metadata({METRICS_KEY: json.dumps([metric.description() for metric in metrics])})


def summarized_metrics(summary: pa.Table) -> dict[str, Metric]:
    """The metrics of a summary, by name, as far as showing and comparing their values needs them."""
    return {said["name"]: Metric(**said) for said in json.loads(summary.schema.metadata[METRICS_KEY])}


def keeping(summary: pa.Table, round_: int) -> pa.Table:
    """A summary that says which round's model was kept."""
    return summary.replace_schema_metadata({**(summary.schema.metadata or {}), KEPT_KEY: str(round_)})


def kept_round(summary: pa.Table) -> int:
    """The round whose model is the result: the one that was kept, or else the last."""
    kept = (summary.schema.metadata or {}).get(KEPT_KEY)
    return int(max(summary["round"].to_pylist()) if kept is None else kept)


METRICS_KEY = b"metrics"
KEPT_KEY = b"kept"


def _summary(values: np.ndarray, metric: Metric) -> dict[str, Any]:
    left_out = int(np.isnan(values).sum())
    values = np.sort(values)[: len(values) - left_out]
    if not len(values):
        nothing = dict.fromkeys(("mean", "std", "worst10", "min", "max"), math.nan)
        return {**nothing, "clients": 0, "left_out": left_out}
    tenth = max(1, len(values) // 10)
    worst = values[:tenth] if metric.higher_is_better else values[-tenth:]
    with np.errstate(invalid="ignore"):  # a value may be infinite
        return {
            "mean": float(values.mean()),
            "std": float(values.std()),
            "worst10": float(worst.mean()),
            "min": float(values[0]),
            "max": float(values[-1]),
            "clients": len(values),
            "left_out": left_out,
        }
