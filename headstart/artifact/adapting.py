"""A new client's own model from a few rows: how many steps of which size, and whether they help on rows held back."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from headstart.artifact.rule import AdaptationRule
from headstart.core import Algorithm, Params, Size
from headstart.data import Clients, Federation
from headstart.metrics import LOSS, Metric
from headstart.problems import Examples, Problem, Prototypes
from headstart.simulate import score_client

__all__ = ["AdaptationReport", "adapt"]

STEPS = (0, 1, 2, 5, 10, 20, 50)
"""Numbers of steps that are tried."""
FACTORS = (0.1, 0.3, 1.0, 3.0, 10.0)
"""Step sizes that are tried, as multiples of training's."""
FOLDS = 5
ROWS_TO_CHOOSE = 10
"""With fewer rows than this to hold back, steps and step size stay those of training."""
UNSTABLE = 2.0
"""A step size is too large where on its way the loss grows to so many times what it was before."""

Scores = Mapping[str, float]


@dataclass(frozen=True)
class AdaptationReport:
    """What adapting did."""

    rows: int
    held_back: int
    """Rows that were held back at some time, each from the models that it scored."""
    steps: int
    lr: float | None
    chosen: bool
    """Whether steps and step size were chosen on these rows by cross-validation, rather than taken from training."""
    kept_shared: bool
    """Whether the shared model was kept, because adapting did not help on rows held back."""
    before: Scores | None
    after: Scores | None
    """Scores on rows held back, of the shared and of the adapted model; ``None`` where there were too few rows."""
    curve: tuple[Mapping[str, float], ...]
    """The scores on rows held back after each number of steps of the size chosen."""
    words: str
    """The outcome in a sentence."""
    notes: tuple[str, ...] = ()
    """What a reader should know of the rows, such as how many had no label."""

    def to_json(self) -> dict[str, Any]:
        """As plain values, for a file."""
        return _finite(asdict(self))


def adapt(
    problem: Problem,
    rule: AdaptationRule,
    params: Params,
    extras: Mapping[str, Any],
    samples: Examples,
    transform: Any,
    *,
    steps: int | None,
    lr: float | None,
    seed: int,
) -> tuple[Params, AdaptationReport]:
    """A client's own parameters, and what adapting did. Rows are as they are stored."""
    algorithm, key = rule.build(), jax.random.key(seed)
    count = len(samples.y)
    classes = np.issubdtype(samples.y.dtype, np.integer)
    folds = _folds(samples.y, classes, seed)
    everything = np.arange(count)
    queries = [*folds, everything]
    supports = [*(np.setdiff1d(everything, fold) for fold in folds), everything]
    federation = Federation.from_arrays(samples, supports, queries, transform=transform)
    assert not isinstance(federation.clients, Federation)
    held_back = sum(map(len, folds))
    # Where all rows are of one class, the more steps towards it the better: they cannot choose.
    judges = 0 if classes and len(np.unique(samples.y)) == 1 else held_back
    grid_steps, grid_lrs = _grid(rule, problem, judges, steps, lr)
    metric = next((metric for metric in problem.metrics if metric != LOSS), LOSS)
    down = {"params": params, **extras}

    before: Scores | None = None
    after: Scores | None = None
    curve: tuple[Scores, ...] = ()
    best = (grid_steps[-1], grid_lrs[0])
    if folds:
        found = _fold_scores(
            problem, grid_steps, rule.batch_size, algorithm, down, federation.clients, key,
            None if grid_lrs[0] is None else jnp.asarray(grid_lrs), jnp.arange(len(folds)),
        )  # fmt: skip
        choosing_sizes = len(grid_lrs) > 1 and grid_steps[0] == 0
        judged = _Judged(found, np.array([len(fold) for fold in folds]), steady=choosing_sizes)
        place = judged.best()
        best = grid_steps[place[0]], grid_lrs[place[1]]
        size = judged.best(moving=grid_steps[0] == 0)[1]
        curve = tuple({"steps": n, **judged.scores(np.array([i, size]))} for i, n in enumerate(grid_steps))
        before = judged.scores(np.array([0, 0])) if grid_steps[0] == 0 else None
        # Where nothing is chosen but whether to adapt, what the table of steps shows is what is judged.
        choosing = len(grid_steps) > 2 or len(grid_lrs) > 1
        after = judged.honest() if choosing else judged.scores(np.array([len(grid_steps) - 1, 0]))
    hurts = before is not None and (best[0] == 0 or not after[LOSS.name] < before[LOSS.name])  # type: ignore[index]
    if hurts and best[0] == 0 and len(curve) > 1:
        # No number of steps helped: what the best of them did is what there is to say.
        best_moving = min(curve[1:], key=lambda row: row[LOSS.name] if math.isfinite(row[LOSS.name]) else math.inf)
        after = {name: value for name, value in best_moving.items() if name != "steps"}
    own = params
    if not hurts:
        own = _personalised(
            problem, best[0], rule.batch_size, algorithm, down, federation.clients, key, best[1], len(folds)
        )
    chosen = len(grid_steps) > 2 or len(grid_lrs) > 1
    report = AdaptationReport(
        rows=count, held_back=held_back, steps=0 if hurts else best[0], lr=best[1], chosen=chosen, kept_shared=hurts,
        before=before, after=after, curve=curve,
        words=_words(problem, metric, 0 if hurts else best[0], best[1], before, after, hurts, held_back),
    )  # fmt: skip
    return own, report


def _folds(labels: np.ndarray, classes: bool, seed: int) -> list[np.ndarray]:
    """Rows to hold back, in turns; equally many of each class, and no row that is the only one of its class."""
    rng = np.random.default_rng(seed)
    rows = rng.permutation(len(labels))
    if classes:
        order = rows[np.argsort(labels[rows], kind="stable")]
        counts = np.bincount(labels)
        rows = order[counts[labels[order]] > 1]
    if len(rows) < 2:
        return []
    folds = min(FOLDS, len(rows))
    return [np.sort(rows[start::folds]) for start in range(folds)]


def _grid(
    rule: AdaptationRule, problem: Problem, held_back: int, steps: int | None, lr: float | None
) -> tuple[tuple[int, ...], tuple[float | None, ...]]:
    """Numbers of steps and step sizes to try; the shared model is among them where it can predict."""
    choosing = held_back >= ROWS_TO_CHOOSE
    sizes: tuple[float | None, ...] = (lr if lr is not None else rule.lr,)
    if isinstance(problem, Prototypes):
        return (1,), sizes
    if choosing and lr is None and rule.lr is not None:
        sizes = tuple(factor * rule.lr for factor in FACTORS)
    own_way = rule.lr is None and rule.algorithm == "LocalOnly"
    # As many steps as served best in the run are always tried: where they were many, few do not come as far.
    numbers = tuple(sorted({*STEPS, rule.steps})) if choosing and not own_way else (0, max(1, rule.steps))
    return numbers if steps is None else tuple(sorted({0, steps})), sizes


def _adapting(algorithm: Algorithm, lr: Any) -> Algorithm:
    return algorithm if lr is None else algorithm.adapting(lr)


@partial(jax.jit, static_argnames=("problem", "steps", "size"))
def _fold_scores(
    problem: Problem, steps: tuple[int, ...], size: Size, algorithm: Algorithm, down: Mapping[str, Any],
    clients: Clients, key: Array, lrs: Array | None, folds: Array,
) -> list[dict[str, Array]]:  # fmt: skip
    """For every number of steps the scores of each step size (first axis) on each fold (second)."""

    def with_size(lr: Array | None) -> list[dict[str, Array]]:
        method = _adapting(algorithm, lr)

        def on_fold(fold: Array) -> list[dict[str, Array]]:
            support, query = clients.view("support", fold), clients.view("query", fold)
            return score_client(problem, method, SimpleNamespace(**down), (), support, query, key, steps, size)

        return jax.lax.map(on_fold, folds)

    if lrs is None:
        return jax.tree.map(lambda values: values[None], with_size(None))
    return jax.vmap(with_size)(lrs)


@partial(jax.jit, static_argnames=("problem", "steps", "size"))
def _personalised(
    problem: Problem, steps: int, size: Size, algorithm: Algorithm, down: Mapping[str, Any], clients: Clients,
    key: Array, lr: Any, client: Any,
) -> Params:  # fmt: skip
    method, support = _adapting(algorithm, lr), problem.view(clients.view("support", jnp.asarray(client)))
    return method.personalize(problem.objective(), SimpleNamespace(**down), (), support, key, steps, size)


class _Judged:
    """The scores of every setting on every fold, and what they say."""

    def __init__(self, found: list[dict[str, Array]], counts: np.ndarray, steady: bool):
        self.values = {name: np.stack([np.asarray(each[name], np.float64) for each in found]) for name in found[0]}
        self.losses = np.nan_to_num(self.values[LOSS.name], nan=np.inf, posinf=np.inf)
        self.counts = counts
        if steady:
            # What comes out well after steps that went astray may go astray with other rows.
            furthest = np.maximum.accumulate(self.losses @ counts, axis=0)
            self.losses[furthest > UNSTABLE * furthest[:1]] = np.inf

    def best(self, without: int | None = None, moving: bool = False) -> np.ndarray:
        """Place of the number of steps and of the step size with the least loss; of equal ones the fewest steps."""
        weight = self.counts.astype(float)
        if without is not None:
            weight[without] = 0
        with np.errstate(invalid="ignore"):
            means = np.nan_to_num(self.losses @ weight, nan=np.inf, posinf=np.inf)
        if moving and len(means) > 1:
            means[0] = np.inf
        return np.array(np.unravel_index(np.argmin(means), means.shape))

    def scores(self, place: np.ndarray) -> dict[str, float]:
        """Scores of one setting over all rows held back."""
        steps, size = place
        return {name: self._pooled(name, values[steps, size]) for name, values in self.values.items()}

    def honest(self) -> dict[str, float]:
        """Scores with every fold's setting chosen without looking at that fold."""
        places = [self.best(without=fold) for fold in range(len(self.counts))]
        return {
            name: self._pooled(name, np.array([values[(*place, fold)] for fold, place in enumerate(places)]))
            for name, values in self.values.items()
        }

    def _pooled(self, name: str, values: np.ndarray) -> float:
        """One number for all folds; squared errors are averaged before the root is taken."""
        root = name == "rmse"
        mean = float(np.average(values**2 if root else values, weights=self.counts))
        return math.sqrt(mean) if root else mean


def _words(
    problem: Problem, metric: Metric, steps: int, lr: float | None, before: Scores | None, after: Scores | None,
    hurts: bool, held_back: int,
) -> str:  # fmt: skip
    how = f"{steps} step{'s' if steps != 1 else ''}" + ("" if lr is None else f" of size {lr:.3g}")
    if isinstance(problem, Prototypes):
        how = "class means"
    if after is None:
        return f"Adapted by {how}, as in training. There are too few rows to hold any back and judge by them."
    if before is None:
        return f"Adapted by {how}: on {held_back} rows held back, {metric.title} is {metric.show(after[metric.name])}."
    changes = f"the loss goes from {LOSS.show(before[LOSS.name])} to {LOSS.show(after[LOSS.name])}"
    if metric != LOSS:
        shown = metric.show(before[metric.name]), metric.show(after[metric.name])
        changes = f"{metric.title} goes from {shown[0]} to {shown[1]}, {changes.replace(' goes', '')}"
    if hurts:
        return f"Adapting does not help: on {held_back} rows held back, {changes}. The shared model is kept."
    worse = metric.better(before[metric.name], after[metric.name])
    decides = " It is the loss that decides: it weighs how sure the model is, too." if worse else ""
    return f"Adapted by {how}: on {held_back} rows held back, {changes}.{decides}"


def _finite(value: Any) -> Any:
    """Plain values without numbers that JSON does not have."""
    if isinstance(value, Mapping):
        return {name: said for name, item in value.items() if (said := _finite(item)) is not None}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
