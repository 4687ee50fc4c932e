"""(h) 100,000 memories of 60,000 parameters on disk, beside a thousand in RAM."""

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from headstart.algorithms import MOML
from headstart.bench.cases import Bar, Case, Settings, Side
from headstart.bench.flops import round_flops
from headstart.bench.pools import scaled
from headstart.data import Federation
from headstart.models import MLP
from headstart.problems import Classification, Examples
from headstart.simulate import Simulation

__all__ = ["TITLE", "cases"]

TITLE = "Memories: MOML v1, 100,000 clients of a 59,850-parameter model (24 GB in all) on disk, cohort 10"
CLIENTS, FEW, COHORT, POOL = 100_000, 1_000, 10, 20_000
ROUNDS = 60
GIGABYTE = 10**9
IN_MEMORY = "1,000 in RAM"


def cases(settings: Settings) -> Iterator[Case]:
    """A round whose memories are read from disk and safely written back, beside one that has few and keeps them."""
    clients, few, rounds, hidden = (200, 50, 4, (4,)) if settings.quick else (CLIENTS, FEW, ROUNDS, (72, 40))
    problem = Classification(MLP(784, 10, hidden=hidden))
    algorithm = MOML(batch_size=10, averaging=0.5)

    with tempfile.TemporaryDirectory() as folder:

        def ours(clients: int, memory: Path | None) -> Side:
            simulation = Simulation(algorithm, problem, _federation(clients), cohort=COHORT, memory=memory)
            most = min(simulation.largest_chunk(), rounds)

            def run() -> None:
                for start in range(0, rounds, most):
                    simulation.advance(min(most, rounds - start), most)
                    if simulation.store is not None:
                        simulation.store.prepare(simulation.round)
                        simulation.store.commit(simulation.round)

            return Side(run, rounds, round_flops(simulation))

        bars = (Bar("bytes", 3 * GIGABYTE), Bar("ratio", 1.5, IN_MEMORY))
        others = {IN_MEMORY: partial(ours, few, None)}
        yield Case(f"{clients:,} memories", "round", partial(ours, clients, Path(folder) / "memory"), others, bars)


def _federation(clients: int) -> Federation:
    """Clients with 60 random images each out of one pool."""
    rng = np.random.default_rng(0)
    pool = Examples(rng.integers(0, 256, (POOL, 784), dtype=np.uint8), rng.integers(0, 10, POOL, dtype=np.uint8))
    rows = rng.integers(0, POOL, (clients, 60))
    return Federation.from_arrays(pool, list(rows[:, :50]), list(rows[:, 50:]), transform=scaled)
