"""MOML, LocalMOML and Local-SCGDM in NumPy, on many problems side by side.

Arrays have axes (problem, run, client, coordinate), in the coordinates in which Hessians are diagonal (see ``sweep``).
"""

from functools import cache
from typing import NamedTuple

import numpy as np

from tests.theory.sweep import Stacked, cases

ALL = list(cases(steps=1))


@cache
def starts():
    """Every other case starts at its best model and the others somewhere; with ``F(w_0) - F*``."""
    points, gaps = [], []
    for number, case in enumerate(ALL):
        best, least = case.problem.minimum(case.inner_lr, 1)
        points.append(best if number % 2 else case.points[0])
        gaps.append(max(0.0, float(case.problem.objective(points[-1], case.inner_lr)) - least))
    return points, gaps


class Averages(NamedTuple):
    """What was measured, averaged over runs and iterations: one number a problem."""

    squared_gradient: np.ndarray
    tracking: np.ndarray
    drift: np.ndarray
    squared_estimate: np.ndarray


class Federation(Stacked):
    """The problems with their adapted models, meta-gradients and batches."""

    def __init__(self, problems, inner_lr, runs, batch=1, seed=0):
        super().__init__(problems, inner_lr, 1)
        self.runs, self.batch, self.rng = runs, batch, np.random.default_rng(seed)
        self.shape = (len(problems), runs, problems[0].clients)

    def draw(self, batch=None):
        """The mean features of a fresh batch for every problem, run and client."""
        size = batch or self.batch
        shares = self.rng.multinomial(size, np.full(3, 1 / 3), self.shape) / size
        return np.einsum("prcs,kpcsd->kprcd", shares, self.samples)

    def adapted(self, w, features):
        return w - self.alpha * self.gradient(w, features)

    def pulled(self, w, features, vector):
        return (1 - self.alpha * self.curvature(w, features)) * vector

    def truth(self, w):
        """``grad F_i``, of every client."""
        return self.pulled(w, self.means, self.gradient(self.adapted(w, self.means), self.means))

    def squared_gradient(self, w):
        """``||grad F(w)||^2`` of shared models, averaged over runs."""
        return squared(self.truth(w).mean(2, keepdims=True)).mean((1, 2))

    def cohort(self, size):
        """Who takes part, as weights that add up to one."""
        ranks = self.rng.random(self.shape).argsort(-1).argsort(-1)
        return (ranks < size)[..., None] / size

    def start(self, points):
        """Shared models of every run from one model a problem, given in its own coordinates."""
        turned = [w @ p.rotation for w, p in zip(points, self.problems, strict=True)]
        return np.repeat(np.stack(turned)[:, None, None], self.runs, axis=1)


def squared(vectors):
    return (vectors**2).sum(-1)


def each(values):
    return np.asarray(values)[:, None, None, None]


def moml(federation, w, outer_lr, averaging, iterations, cohort):
    """Algorithm 1; ``tracking`` is the sum over the cohort that Lemma 2 bounds."""
    eta, beta = each(outer_lr), each(averaging)
    memory, visited = np.zeros((*federation.shape, w.shape[-1])), np.zeros((*federation.shape, 1), bool)
    gradients = tracking = estimates = 0.0
    for _ in range(iterations):
        weight = federation.cohort(cohort)
        drawn = weight > 0
        adapted = federation.adapted(w, federation.draw())
        moved = np.where(visited, (1 - beta) * memory + beta * adapted, adapted)
        memory, visited = np.where(drawn, moved, memory), visited | drawn
        error = squared(memory - federation.adapted(w, federation.means))
        estimate = federation.pulled(w, federation.draw(), federation.gradient(memory, federation.draw()))
        step = (weight * estimate).sum(2, keepdims=True)
        gradients += federation.squared_gradient(w)
        tracking += (error * drawn[..., 0]).sum(-1).mean(-1)
        estimates += squared(step).mean((1, 2))
        w = w - eta * step
    return Averages(*(total / iterations for total in (gradients, tracking, 0 * gradients, estimates)))


def local_moml(federation, w, outer_lr, averaging, local_steps, rounds, cohort, memory_batch):
    """Algorithm 3; clients outside the cohort take their steps too, as in the proofs, but send nothing."""
    eta, beta = each(outer_lr), each(averaging)
    gradients = tracking = drift = 0.0
    memory = None
    for _ in range(rounds):
        weight = federation.cohort(cohort)
        local = np.repeat(w, federation.shape[-1], axis=2)
        if memory_batch is not None:
            memory = federation.adapted(local, federation.draw(memory_batch))
        gradients += federation.squared_gradient(w)
        for _ in range(local_steps):
            adapted = federation.adapted(local, federation.draw())
            memory = adapted if memory is None else (1 - beta) * memory + beta * adapted
            tracking += squared(memory - federation.adapted(local, federation.means)).mean((1, 2))
            drift += squared(local - w).mean((1, 2))
            estimate = federation.pulled(local, federation.draw(), federation.gradient(memory, federation.draw()))
            local = local - eta * estimate
        w = (weight * local).sum(2, keepdims=True)
    return Averages(gradients / rounds, tracking / (rounds * local_steps), drift / (rounds * local_steps), 0 * drift)


def local_scgdm(federation, x, scale, outer_lr, momentum, averaging, local_steps, iterations):
    """Gao's Algorithm 1: the average of ``||grad F(x-bar)||^2``, and that of the last tenth."""
    beta, alpha, gamma = scale * each(outer_lr), scale * momentum, scale * averaging
    x = np.repeat(x, federation.shape[-1], axis=2)
    history = []
    for t in range(iterations):
        xi = federation.draw()  # the Jacobian is that of the same draw
        inner = federation.adapted(x, xi)
        u = inner if t == 0 else (1 - gamma) * u + gamma * inner  # noqa: F821
        z = federation.pulled(x, xi, federation.gradient(u, federation.draw()))
        m = z if t == 0 else (1 - alpha) * m + alpha * z  # noqa: F821
        history.append(federation.squared_gradient(x.mean(2, keepdims=True)))
        x = x - beta * m
        if (t + 1) % local_steps == 0:
            u, m, x = (np.repeat(v.mean(2, keepdims=True), federation.shape[-1], axis=2) for v in (u, m, x))
    history = np.stack(history)
    return history.mean(0), history[-max(1, iterations // 10) :].mean(0)
