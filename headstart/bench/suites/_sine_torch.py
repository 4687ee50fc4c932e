"""The methods of the sine suite in plain PyTorch: what one task does in an iteration, and the iteration around it."""

from collections.abc import Callable, Sequence
from functools import partial
from math import pi
from typing import Any, NamedTuple

import numpy as np
import torch

from headstart.bench import plain
from headstart.bench.cases import Side
from headstart.bench.plain import REGRESSOR, Batch, Calculus, Params, descend, mixed

__all__ = ["METHODS", "Work", "iterations", "sine_batch"]

ALPHA, ETA, BETA, MOMENTUM = 0.01, 0.001, 0.5, 0.8
TASKS = 25
LOCAL_STEPS = {"local-moml": 4, "local-scgdm": 5}


class Work(NamedTuple):
    """What a task does with the shared model, its memory and its batches: its new memory, and its direction."""

    run: Callable[[Calculus, Params, Params, Sequence[Batch]], tuple[Params, Params]]
    batches: int


def moml(calculus: Calculus, w: Params, u: Params, batches: Sequence[Batch]) -> tuple[Params, Params]:
    """A memory moves towards the adapted model, and the meta-gradient is taken at it."""
    u = mixed(u, descend(w, ALPHA, calculus.gradient(REGRESSOR, w, batches[0])), BETA)
    v = calculus.gradient(REGRESSOR, u, batches[2])
    return u, calculus.pull(REGRESSOR, w, v, batches[1], ALPHA, None)


def nasa(calculus: Calculus, w: Params, u: Params, batches: Sequence[Batch]) -> tuple[Params, Params]:
    """The meta-gradient is taken at the memory before it moves."""
    v = calculus.gradient(REGRESSOR, u, batches[2])
    d = calculus.pull(REGRESSOR, w, v, batches[1], ALPHA, None)
    return mixed(u, descend(w, ALPHA, calculus.gradient(REGRESSOR, w, batches[0])), BETA), d


def local_moml(calculus: Calculus, w: Params, u: Params, batches: Sequence[Batch]) -> tuple[Params, Params]:
    """Local steps with a memory that begins anew."""
    own, given = w, iter(batches)
    u = descend(w, ALPHA, calculus.gradient(REGRESSOR, w, next(given)))
    for _ in range(LOCAL_STEPS["local-moml"]):
        u, d = moml(calculus, own, u, [next(given) for _ in range(3)])
        own = descend(own, ETA, d)
    return u, [(a - b) / ETA for a, b in zip(w, own, strict=True)]


def local_scgdm(calculus: Calculus, w: Params, u: Params, batches: Sequence[Batch]) -> tuple[Params, Params]:
    """Local steps with averages of the inner value and of the gradient; one batch for g and its pullback."""
    own, given, m = w, iter(batches), None
    for _ in range(LOCAL_STEPS["local-scgdm"]):
        inner, outer = next(given), next(given)
        u = mixed(u, descend(own, ALPHA, calculus.gradient(REGRESSOR, own, inner)), BETA)
        z = calculus.pull(REGRESSOR, own, calculus.gradient(REGRESSOR, u, outer), inner, ALPHA, None)
        m = z if m is None else mixed(m, z, MOMENTUM)
        own = descend(own, ETA, m)
    return u, [(a - b) / ETA for a, b in zip(w, own, strict=True)]


METHODS = {
    "moml": Work(moml, 3),
    "nasa": Work(nasa, 3),
    "local-moml": Work(local_moml, 1 + 3 * LOCAL_STEPS["local-moml"]),
    "local-scgdm": Work(local_scgdm, 2 * LOCAL_STEPS["local-scgdm"]),
}


def sine_batch(tasks: Any, samples: int) -> Batch:
    """A batch of a sine wave, or of each of several."""
    task = torch.as_tensor(tasks)[..., None, None]
    x = torch.rand(*task.shape[:-2], samples, 1) * 10 - 5
    return x, (1 + task % 5) * torch.sin(x + pi / 5 * (1 + task // 5))


def iterations(name: str, params: Params, samples: int, cohort: int, count: int, mapped: bool) -> Side:
    """Iterations of a method: tasks drawn, sampled, remembered and differentiated, one by one or mapped over."""
    work, rng = METHODS[name], np.random.default_rng(0)
    memories: list[Any] = [list(params)] * TASKS
    every = plain.stacked(params, TASKS)

    def loop(w: Params, drawn: Sequence[int]) -> Params:
        directions = []
        for task in drawn:
            batches = [sine_batch(task, samples) for _ in range(work.batches)]
            memories[task], d = work.run(plain.BY_AUTOGRAD, w, memories[task], batches)
            directions.append(d)
        return descend(w, ETA, plain.averaged(directions))

    together = torch.func.vmap(partial(work.run, plain.BY_FUNCTION), in_dims=(None, 0, 0))

    def vmap(w: Params, drawn: Sequence[int]) -> Params:
        rows = torch.as_tensor(drawn)
        batches = [sine_batch(rows, samples) for _ in range(work.batches)]
        u, d = together(list(w), [memory[rows] for memory in every], batches)
        for memory, new in zip(every, u, strict=True):
            memory[rows] = new
        return descend(w, ETA, [a.mean(0) for a in d])

    def run() -> Params:
        w = params
        for _ in range(count):
            w = (vmap if mapped else loop)(w, rng.choice(TASKS, cohort, replace=False).tolist())
        return w

    return Side(run, count)
