"""(e) A sweep of 125 settings of MOML on sine waves, as one program."""

from collections.abc import Iterator
from functools import partial
from itertools import product

import numpy as np

from headstart.algorithms import MOML
from headstart.bench.cases import LOOP, VMAP, Bar, Case, Settings, Side
from headstart.bench.flops import round_flops
from headstart.bench.suites.sine import COHORT, TASKS, sine_problem
from headstart.bench.turns import cores
from headstart.core import Algorithm
from headstart.data import sine
from headstart.simulate import Ensemble, Simulation

__all__ = ["TITLE", "cases"]

TITLE = "A sweep of 125 settings: MOML v1 on sine waves, 3 tasks, batches of 10, MLP 40-40"
EACH = 5
ROUNDS = 200
ONE = "one setting"


def cases(settings: Settings) -> Iterator[Case]:
    """All settings at once, beside one alone."""
    each, rounds = (2, 4) if settings.quick else (EACH, ROUNDS)
    grid: list[Algorithm] = [
        MOML(inner_lr=float(a), outer_lr=float(b), averaging=float(c), batch_size=10)
        for a, b, c in product(
            np.geomspace(1e-3, 1e-1, each), np.geomspace(1e-4, 1e-2, each), np.linspace(0.1, 0.9, each)
        )
    ]
    problem, federation = sine_problem(), sine(clients=TASKS, held_out=0)

    def one() -> Simulation:
        return Simulation(grid[0], problem, federation, cohort=COHORT)

    def ours() -> Side:
        ensemble = Ensemble(grid, problem, federation, seeds=[0], cohort=COHORT, devices=cores())
        return Side(lambda: ensemble.advance(rounds, rounds), rounds, len(grid) * round_flops(one()))

    def alone() -> Side:
        simulation = one()
        return Side(lambda: simulation.advance(rounds, rounds), rounds)

    def torch_side(mapped: bool) -> Side:
        import jax
        import torch

        from headstart.bench import plain
        from headstart.bench.suites._sine_torch import METHODS, iterations, sine_batch

        params = plain.parameters(problem.init(jax.random.key(0)))
        if not mapped:
            sides = [iterations("moml", params, 10, COHORT, 1, mapped=False) for _ in grid]
            return Side(lambda: [side.run() for side in sides])
        work, rng = METHODS["moml"], np.random.default_rng(0)
        runs = len(grid)
        everyone = torch.func.vmap(torch.func.vmap(partial(work.run, plain.BY_FUNCTION), in_dims=(None, 0, 0)))
        w = plain.stacked(params, runs)
        memories = [a[:, None].expand(-1, TASKS, *a.shape[1:]).contiguous() for a in w]

        def step() -> None:
            drawn = torch.from_numpy(np.stack([rng.choice(TASKS, COHORT, replace=False) for _ in range(runs)]))
            rows = torch.arange(runs)[:, None], drawn
            batches = [sine_batch(drawn, 10) for _ in range(work.batches)]
            u, d = everyone(w, [memory[rows] for memory in memories], batches)
            for memory, new in zip(memories, u, strict=True):
                memory[rows] = new
            w[:] = plain.descend(w, 1e-3, [a.mean(1) for a in d])

        return Side(step)

    others = {ONE: alone, LOOP: lambda: torch_side(False), VMAP: lambda: torch_side(True)}
    yield Case(f"{len(grid)} settings", "iteration of all", ours, others, (Bar("ratio", 20, ONE),))
