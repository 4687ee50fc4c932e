"""How to adapt: numbers and sizes of steps, judged by the clients that choose."""

from collections.abc import Callable, Sequence

import numpy as np

from headstart.core import Size
from headstart.metrics import LOSS, Metric
from headstart.simulate.trials import Trials
from headstart.tuning.budget import LONG_SIZES, Ladder
from headstart.tuning.choosing import Choosers, Score, score_of, steady

__all__ = ["judged", "step_sizes"]


def step_sizes(number: int, smoothness: float) -> np.ndarray:
    """So many step sizes of adaptation that fit the loss; more of them reach further as well.

    >>> step_sizes(3, 1.0).round(3).tolist()
    [0.1, 0.316, 1.0]
    >>> [float(f"{size:.2g}") for size in step_sizes(12, 1.0)]
    [0.01, 0.019, 0.035, 0.066, 0.12, 0.23, 0.43, 0.81, 1.5, 2.8, 5.3, 10.0]
    """
    reach = 0.5 + (number - 3) / 9
    return np.logspace(-0.5 - reach, -0.5 + reach, number) / smoothness


def judged(
    trials: Trials,
    which: Sequence[int],
    sizes: np.ndarray | None,
    ladder: Ladder,
    by: Choosers,
    metric: Metric,
    batch_size: Size,
    told: Callable[[], None],
) -> Score:
    """The scores of some settings over (setting, step size, number of steps); infinity for what was not tried.

    ``sizes`` has one row per setting; ``None`` for methods' own. A way that lets a client go astray has no score, and
    the longest ladders are climbed with the largest step sizes that let nobody do so.
    """

    def values(steps: tuple[int, ...], own: np.ndarray | None) -> dict[str, np.ndarray]:
        return trials.scores(which, steps=steps, ids=by.ids, batch_size=batch_size, sizes=own, told=told)

    first = values(ladder.short, sizes)
    calm = steady(first[LOSS.name], ladder.short)
    found = score_of(first, by.weights, metric)._replace(resolution=by.resolution(metric)).only(calm)
    if not ladder.long:
        return found
    width = found.value.shape[1]
    if sizes is None or width <= LONG_SIZES:
        columns = np.tile(np.arange(width), (len(which), 1))
    else:
        preferred = np.where(calm[..., -1] & np.isfinite(found.value[..., -1]), sizes, 0.0)
        columns = np.argsort(-preferred, axis=1, kind="stable")[:, :LONG_SIZES]
    rows = np.arange(len(which))[:, None]
    more = values(ladder.long, None if sizes is None else sizes[rows, columns])
    all_losses = np.concatenate([first[LOSS.name][rows, columns], more[LOSS.name]], axis=2)
    calm = steady(all_losses, ladder.steps)[..., len(ladder.short) :]
    late = score_of(more, by.weights, metric).only(calm)
    whole = [np.full((len(which), width, len(ladder.steps)), np.inf) for _ in range(2)]
    for part, early, of_columns in zip(whole, found[:2], late[:2], strict=True):
        part[..., : len(ladder.short)] = early
        part[rows, columns, len(ladder.short) :] = of_columns
    return Score(whole[0], whole[1], found.resolution)
