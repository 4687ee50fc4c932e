"""By whom settings are chosen: validation clients, and what counts as better for them."""

import math
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from headstart.data import Federation
from headstart.metrics import LOSS, Metric
from headstart.problems import Problem
from headstart.simulate.evaluate import GROUPS, Evaluation, in_group

__all__ = ["ENOUGH", "Choosers", "Score", "choosers", "headline", "score_of", "score_of_table", "steady"]

ENOUGH = 10
"""So many validation clients decide alone. Where there are fewer, training clients, scored on rows that they do not
train on, count for the rest."""
MOST = 200
"""The most clients of a group that a search looks at."""
WATCHED = 50
"""Where validation clients decide alone, so many others must not diverge either."""


ASTRAY, FAR = 3.0, 30.0
"""A loss so many times that of the shared model, or of the mean client's with it, has gone astray, or far astray."""
SOME = 0.05
"""Of so many clients, a loss may rise for other reasons: a few rows that are not like the rest."""


class Choosers(NamedTuple):
    """Clients by whom settings are chosen."""

    ids: np.ndarray
    weights: np.ndarray
    """How much each counts; they sum to 1."""
    rows: float = math.inf
    """On how many rows they are scored together."""

    def resolution(self, metric: Metric) -> float:
        """Differences of a metric below this say nothing: half a standard error of a share, none of other metrics."""
        return 0.25 / math.sqrt(self.rows) if metric.higher_is_better else 0.0


class Score(NamedTuple):
    """What settings are compared by, as arrays of one shape; less is better, and infinity is what has diverged."""

    value: np.ndarray
    """The mean of the headline metric over the clients that choose, with a minus where more is better."""
    loss: np.ndarray
    """Their mean loss, which decides between equal values."""
    resolution: float = 0.0
    """Values that differ by less are equal."""

    def only(self, allowed: np.ndarray) -> "Score":
        """The same with all that is not allowed as if it had diverged."""
        return Score(np.where(allowed, self.value, np.inf), np.where(allowed, self.loss, np.inf), self.resolution)

    def at(self, place: Any) -> "Score":
        """A part of it."""
        return Score(self.value[place], self.loss[place], self.resolution)

    @property
    def compared(self) -> np.ndarray:
        """Values as they are compared."""
        return np.round(self.value / self.resolution) if self.resolution else self.value

    def order(self) -> np.ndarray:
        """All places from the best to the worst; of equal ones the first comes first."""
        return np.lexsort((np.arange(self.value.size), self.loss.ravel(), self.compared.ravel()))

    def best(self) -> tuple[int, ...]:
        """The place of the best."""
        return tuple(int(i) for i in np.unravel_index(self.order()[0], self.value.shape))


def headline(problem: Problem) -> Metric:
    """What is looked at first: the first metric beside the loss, or the loss if there is no other."""
    return next((metric for metric in problem.metrics if metric != LOSS), LOSS)


def choosers(federation: Federation, most: int = MOST) -> Choosers:
    """Validation clients, and training clients as far as there are too few of those; never new ones.

    Where there are enough, some training clients count nothing, and yet rule out what makes any of them diverge.
    """
    tested = federation.tasks or federation
    validation = Evaluation(max_clients=most, groups=GROUPS[1:2]).clients(tested)
    share = _validation_share(len(validation))
    most = most if share < 1 else min(most, WATCHED)
    trained = np.arange(most) if tested.endless else Evaluation(max_clients=most, groups=GROUPS[:1]).clients(tested)
    groups = [(ids, part) for ids, part in ((trained, 1 - share), (validation, share)) if len(ids)]
    weights = np.concatenate([np.full(len(ids), part / len(ids)) for ids, part in groups])
    ids = np.concatenate([ids for ids, _ in groups])
    rows = math.inf if tested.counts is None else float(tested.counts["query"][ids[weights > 0]].sum())
    return Choosers(ids, weights, rows)


def score_of(values: dict[str, np.ndarray], weights: np.ndarray, metric: Metric) -> Score:
    """The score of metrics whose last axis are the clients that choose.

    A setting with which any of them diverges has diverged. A client for whom the metric alone is undefined does not
    count.
    """
    losses = values[LOSS.name]
    diverged = ~np.isfinite(losses).all(axis=-1)
    shown = values[metric.name] * (-1.0 if metric.higher_is_better else 1.0)
    defined = np.isfinite(shown) * weights
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        value = (np.where(defined > 0, shown, 0) * defined).sum(axis=-1) / defined.sum(axis=-1)
        loss = (losses * weights).sum(axis=-1)
    return Score(
        np.where(diverged, np.inf, np.nan_to_num(value, nan=np.inf, posinf=np.inf)),
        np.where(diverged, np.inf, np.nan_to_num(loss, nan=np.inf, posinf=np.inf)),
    )


def steady(losses: np.ndarray, steps: tuple[int, ...]) -> np.ndarray:
    """Which ways to adapt have let hardly any client go astray on the way, and none far.

    Losses are over (..., number of steps, client). What comes out well after steps that went astray, from a step size
    at the edge of stability, may not do so for other clients. Where the shared model itself is not among what was
    tried, there is nothing to compare with.
    """
    if steps[0] != 0 or len(steps) == 1:
        return np.ones(losses.shape[:-1], bool)
    begun = np.nan_to_num(losses[..., :1, :], nan=np.inf, posinf=np.inf)
    usual = np.maximum(begun, begun.mean(axis=-1, keepdims=True))
    furthest = np.maximum.accumulate(np.nan_to_num(losses, nan=np.inf, posinf=np.inf), axis=-2)
    with np.errstate(invalid="ignore", over="ignore"):
        astray, far = (~(furthest <= factor * usual) for factor in (ASTRAY, FAR))
    return np.asarray((astray.mean(axis=-1) <= SOME) & ~far.any(axis=-1))


def score_of_table(table: pa.Table, problem: Problem, steps: int) -> Score:
    """The score of one evaluation of a run, after some number of steps."""
    rows = table.filter(pa.array(table["steps"].to_numpy() == steps))
    held_out = rows["held_out"].to_numpy(zero_copy_only=False)
    validation = rows["validation"].to_numpy(zero_copy_only=False) if "validation" in rows.column_names else None
    chosen, known = (in_group(group, held_out, validation) for group in ("validation", "trained"))
    share = _validation_share(int(chosen.sum())) if known.any() else 1.0
    weights = chosen * share / max(chosen.sum(), 1) + known * (1 - share) / max(known.sum(), 1)
    counting = weights > 0
    metric = headline(problem)
    values = {name: rows[name].to_numpy()[counting] for name in (LOSS.name, metric.name)}
    return score_of(values, weights[counting], metric)


def _validation_share(clients: int) -> float:
    return min(clients, ENOUGH) / ENOUGH
