"""Two hundred random problems, step sizes and batch sizes, and Per-FedAvg run on them in NumPy."""

from functools import cached_property
from typing import NamedTuple

import numpy as np

from tests.theory.known import KnownProblem, random_problem

CASES = 200
SLACK = 1 + 1e-9
SIMULATED_BATCH = 2
SUPPORTED = 0.1  # the O(1) of the convergence theorems that the simulations need is smaller


class Case(NamedTuple):
    """One problem with the choices of one local step and some models to look at."""

    problem: KnownProblem
    inner_lr: float
    steps: int
    inner: tuple[int, ...]
    curvature: tuple[int, ...]
    outer: int
    radius: float
    points: np.ndarray


def cases(steps=None, largest=1.0, count=CASES):
    """Seeded cases with ``alpha`` in ``[0, largest / L]``; one in ten has the largest."""
    for seed in range(count):
        problem = random_problem(seed)
        rng = np.random.default_rng([seed, 1])
        nu = int(rng.integers(1, 4)) if steps is None else steps
        share = 1.0 if seed % 10 == 0 else rng.uniform()
        most = 3 if nu == 1 else 2
        yield Case(
            problem=problem,
            inner_lr=share * largest / problem.constants.smoothness,
            steps=nu,
            inner=tuple(int(d) for d in rng.integers(1, most + 1, nu)),
            curvature=tuple(int(d) for d in rng.integers(1, most, nu)) if nu < 3 else (1,) * nu,
            outer=int(rng.integers(1, most + 1)),
            radius=float(10 ** rng.uniform(-2, 0)),
            points=rng.uniform(-5, 5, (3, problem.dimension)),
        )


def steepness(case, steps):
    """The largest Lipschitz ratio of ``grad F_i``: coordinates are separate, so a fine grid of one period finds it."""
    problem = case.problem
    grid = np.linspace(0, 1, 400)[:, None] * (2 * np.pi / problem.frequency)
    gradients = problem.meta_gradient_at(grid, problem.means.at((slice(None), None)), case.inner_lr, steps)
    return np.max(np.abs(np.diff(gradients, axis=1)) / np.diff(grid, axis=0))


def spread(case, steps):
    """The largest ``(1/n) sum_i ||grad F_i - grad F||^2`` at some models, as a square root."""
    points = np.concatenate([case.points, np.random.default_rng(0).uniform(-5, 5, (200, case.problem.dimension))])
    gradients = case.problem.meta_gradients(points, case.inner_lr, steps)
    return np.sqrt(((gradients - gradients.mean(0)) ** 2).sum(-1).mean(0).max())


def worst_error(case, kind):
    """The largest exact bias and mean squared error over clients and some models."""
    found = [
        case.problem.estimate(i, w, case.inner_lr, case.inner, case.curvature, case.outer, kind, case.radius)
        for i in range(case.problem.clients)
        for w in case.points
    ]
    return max(np.linalg.norm(m.bias) for m in found), max(m.squared_error for m in found)


def assert_within(measured, error):
    bias, squared_error = measured
    assert bias <= error.bias * SLACK
    assert squared_error <= error.mean_squared_error * SLACK


def simulated(group, steps, local_steps, rounds, cohort, smoothness, at_minimum, shares=1.0):
    """Every fourth case from ``group`` on, run with the largest outer step size that the theorems allow.

    ``shares`` of it, one a round, are taken instead. Yields the measured average of ``||grad F||^2``, the case, its
    outer step size and ``F(w_0) - F*``.
    """
    chosen = list(cases(steps=steps))[group::4]
    minima = [case.problem.minimum(case.inner_lr, steps) for case in chosen]
    starts = [best if at_minimum else case.points[0] for case, (best, _) in zip(chosen, minima, strict=True)]
    outer_lr = [1 / (10 * local_steps * smoothness(case)) for case in chosen]
    stacked = Stacked([case.problem for case in chosen], [case.inner_lr for case in chosen], steps)
    coordinates = np.stack([w @ case.problem.rotation for w, case in zip(starts, chosen, strict=True)])
    taken = np.multiply.outer(np.broadcast_to(shares, rounds), outer_lr)
    measured = stacked.run(coordinates, taken, SIMULATED_BATCH, local_steps, rounds, cohort, runs=8)
    for average, case, step, start, (_, least) in zip(measured, chosen, outer_lr, starts, minima, strict=True):
        yield average, case, step, max(0.0, float(case.problem.objective(start, case.inner_lr, steps)) - least)


class Stacked:
    """Several problems side by side: arrays have axes (problem, run, client, coordinate), in the coordinates ``u``."""

    def __init__(self, problems, inner_lr, steps):
        self.problems, self.inner_lr, self.steps = problems, inner_lr, steps
        self.alpha = np.array(inner_lr)[:, None, None, None]

    @cached_property
    def omega(self):
        return np.stack([p.frequency for p in self.problems])[:, None, None]

    @cached_property
    def samples(self):
        """Cosine, sine and slope of every sample: (3, problem, client, sample, coordinate)."""
        return np.stack([np.stack(p.features) for p in self.problems], axis=1)

    @cached_property
    def means(self):
        return self.samples.mean(-2)[:, :, None]

    def gradient(self, u, features):
        cosine, sine, slope = features
        return self.omega * (sine * np.cos(self.omega * u) - cosine * np.sin(self.omega * u)) + slope

    def curvature(self, u, features):
        cosine, sine, _ = features
        return -(self.omega**2) * (cosine * np.cos(self.omega * u) + sine * np.sin(self.omega * u))

    def meta_gradient(self, u, draw):
        """The estimate (11) of nu steps; ``draw()`` gives the features of a fresh batch for every client."""
        path = [u]
        for _ in range(self.steps):
            path.append(path[-1] - self.alpha * self.gradient(path[-1], draw()))
        vector = self.gradient(path.pop(), draw())
        for point in reversed(path):
            vector = vector - self.alpha * self.curvature(point, draw()) * vector
        return vector

    def run(self, start, outer_lr, batch, local_steps, rounds, cohort, runs, seed=0):
        """Algorithm 1; the mean over runs, rounds and local steps of ``||grad F||^2`` at the cohort's mean model.

        ``outer_lr`` has a step size a problem, or a row of them a round: rounds then weigh as their step sizes do.
        """
        rng = np.random.default_rng(seed)
        clients = self.means.shape[-2]
        steps = np.broadcast_to(outer_lr, (rounds, len(self.problems)))
        shape = (len(self.problems), runs, clients)

        def draw():
            shares = rng.multinomial(batch, np.full(3, 1 / 3), shape) / batch
            return np.einsum("prcs,kpcsd->kprcd", shares, self.samples)

        shared = np.repeat(start[:, None, None], runs, axis=1)
        squared = np.zeros(len(self.problems))
        for beta in steps:
            # Who takes part: the clients of the cohort smallest of random numbers.
            ranks = rng.random(shape).argsort(-1).argsort(-1)
            present = (ranks < cohort)[..., None] / cohort
            local = np.repeat(shared, clients, axis=2)
            for _ in range(local_steps):
                mean = (local * present).sum(2, keepdims=True)
                truth = self.meta_gradient(np.repeat(mean, clients, axis=2), lambda: self.means).mean(2)
                squared += beta * (truth**2).sum(-1).mean(-1)
                local = local - beta[:, None, None, None] * self.meta_gradient(local, draw)
            shared = (local * present).sum(2, keepdims=True)
        return squared / (steps.sum(0) * local_steps)
