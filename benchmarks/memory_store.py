"""MOML v1 with 100,000 clients of a 60,000-parameter model: RAM, disk and time with memories on disk.

    python -m benchmarks.memory_store [--clients 100000] [--rounds 60]

Bar: under 4 GB of RAM. Kept in RAM, the memories alone would be 24 GB.
"""

import argparse
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

import headstart as hs
from headstart.simulate import Simulation

COHORT = 10


def _federation(clients: int) -> hs.Federation:
    """Clients with 60 random images each out of a pool of 20,000."""
    rng = np.random.default_rng(0)
    pool = hs.Examples(rng.integers(0, 256, (20_000, 784), dtype=np.uint8), rng.integers(0, 10, 20_000, dtype=np.uint8))
    rows = rng.integers(0, 20_000, (clients, 60))
    return hs.Federation.from_arrays(pool, list(rows[:, :50]), list(rows[:, 50:]), transform=_scaled)


def _scaled(batch: hs.Examples) -> hs.Examples:
    return hs.Examples(batch.x.astype(np.float32) / 255, batch.y.astype(np.int32))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--folder", type=Path, help="where the memories go; left out, a temporary folder")
    arguments = parser.parse_args()
    problem = hs.Classification(hs.MLP(inputs=784, outputs=10, hidden=(72, 40)))
    algorithm = hs.MOML(batch_size=10, averaging=0.5)
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        simulation = Simulation(
            algorithm, problem, _federation(arguments.clients), cohort=COHORT, memory=Path(folder) / "memory"
        )
        capacity = simulation.largest_chunk()
        spent, done = 0.0, 0
        simulation.advance(1, capacity)
        while done < arguments.rounds:
            step = min(capacity, arguments.rounds - done)
            began = time.perf_counter()
            simulation.advance(step, capacity)
            assert simulation.store is not None
            simulation.store.prepare(simulation.round)
            simulation.store.commit(simulation.round)
            spent += time.perf_counter() - began
            done += step
        disk = sum(path.stat().st_blocks * 512 for path in (Path(folder) / "memory").iterdir())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    whole = arguments.clients * simulation.store.row_bytes / 1e9
    print(f"clients {arguments.clients:,}, parameters {simulation.store.row_bytes // 4:,}, cohort {COHORT}")
    print(f"all memories {whole:.1f} GB, on disk after {done} rounds {disk / 1e9:.2f} GB")
    print(f"peak RAM {peak:.2f} GB (bar: 4)   {1e3 * spent / done:.1f} ms a round, written safely")


if __name__ == "__main__":
    main()
