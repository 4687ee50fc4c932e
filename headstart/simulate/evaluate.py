"""How good the shared model is for each client, before and after the client adapts it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
from jax import Array

from headstart.core import FULL, Algorithm, Size, check_size, checks, client_key
from headstart.data import Clients, Federation, Part
from headstart.errors import UsageError
from headstart.problems import Problem

__all__ = ["Evaluation", "evaluate", "score", "score_table", "summarize"]

CLIENTS_AT_ONCE = 16
"""How many clients adapt together."""
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
    """Evaluate at most this many trained and this many held-out clients, evenly spaced."""

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

    def adapting(self, algorithm: Algorithm) -> Algorithm:
        """The algorithm as it adapts in this evaluation."""
        if self.inner_lr is None:
            return algorithm
        if not hasattr(algorithm, "inner_lr"):
            raise UsageError(
                f"evaluate.inner_lr is set, but {type(algorithm).__name__} adapts with step sizes of its own.",
                "Leave evaluate.inner_lr out for this algorithm.",
            )
        import equinox as eqx

        return eqx.tree_at(lambda a: a.inner_lr, algorithm, self.inner_lr)

    def clients(self, federation: Federation) -> np.ndarray:
        """Which clients are evaluated; of endlessly many, only those held out."""
        trained = np.zeros(0, np.int64) if federation.endless else _spaced(federation.trained, self.max_clients)
        held_out = federation.trained + _spaced(federation.total - federation.trained, self.max_clients)
        return np.concatenate([trained, held_out])


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
) -> pa.Table:
    """One row a client and number of steps: round, client, whether held out, steps, and the problem's metrics.

    ``states`` gives the stacked states of some clients.
    """
    ids = evaluation.clients(federation)
    parts: tuple[Part, ...] = ("support", "query")
    most = federation.clients.most_at_once(parts, BLOCK) // CLIENTS_AT_ONCE * CLIENTS_AT_ONCE
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
    joined = [
        {name: np.concatenate([block[position][name] for block in scores]) for name in scores[0][position]}
        for position in range(len(evaluation.steps))
    ]
    return score_table(evaluation, federation, ids, round_, joined)


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
        columns["steps"].append(np.full(len(ids), steps))
        for name, column in values.items():
            columns.setdefault(name, []).append(column)
    return pa.table({name: np.concatenate(parts) for name, parts in columns.items()})


@partial(jax.jit, static_argnames=("problem", "steps", "size"))
def score(
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
    objective, metrics = problem.objective(), problem.scores()
    down = algorithm.broadcast(server, key)

    def score_one(member: tuple[Array, Array, Any]) -> list[dict[str, Array]]:
        client, place, own = member
        support, query = clients.view("support", place), clients.view("query", place)
        own_key = client_key(key, client)
        batch = query.sample(own_key, FULL)
        adapted = [algorithm.personalize(objective, down, own, support, own_key, n, size) for n in steps]
        return [metrics(params, batch) for params in adapted]

    return jax.lax.map(score_one, (ids, places, states), batch_size=CLIENTS_AT_ONCE)


def summarize(table: pa.Table, higher_is_better: Sequence[str] | frozenset[str]) -> pa.Table:
    """Mean, deviation, worst tenth, minimum and maximum over clients: a row a round, group, steps and metric.

    Groups are ``all`` and, where there are any, ``held-out``. The worst tenth is the mean over the tenth of
    clients (at least one) with the worst value.
    """
    fixed = ("round", "client", "held_out", "steps")
    columns = {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names}
    rows = []
    for round_ in np.unique(columns["round"]):
        for steps in np.unique(columns["steps"]):
            here = (columns["round"] == round_) & (columns["steps"] == steps)
            groups = {"all": here, "held-out": here & columns["held_out"].astype(bool)}
            for group, chosen in groups.items():
                if not chosen.any():
                    continue
                for metric in (name for name in columns if name not in fixed):
                    values = np.sort(columns[metric][chosen])
                    worst = values[: max(1, len(values) // 10)]
                    if metric not in higher_is_better:
                        worst = values[-max(1, len(values) // 10) :]
                    rows.append(
                        {
                            "round": int(round_),
                            "group": group,
                            "steps": int(steps),
                            "metric": metric,
                            "mean": float(values.mean()),
                            "std": float(values.std()),
                            "worst10": float(worst.mean()),
                            "min": float(values[0]),
                            "max": float(values[-1]),
                            "clients": len(values),
                        }
                    )
    return pa.Table.from_pylist(rows)
