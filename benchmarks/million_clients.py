"""A federation of a million clients: how long until its first round is done, and what a round takes.

    python -m benchmarks.million_clients [--repeats 15]

Samples in memory, and memory-mapped from disk (1.3 GB in a temporary folder). 10 samples a client, 10 clients a round,
10 local steps, MLP 80-60, Per-FedAvg exact. Bars: 20 s to the first round, evaluation of 10,000 clients before it
included; a round's time that of 1,000 clients within 15%.
"""

import tempfile
import time
from pathlib import Path

import numpy as np

import headstart as hs
from benchmarks.common import interleaved, parser
from headstart.data.rows import RowLists

SIZES = (1_000, 1_000_000)
SAMPLES, FEATURES, CLASSES = 10, 32, 10
ROUNDS = 50
BLOCK = 100_000


def main() -> None:
    options = parser(__doc__).parse_args()
    hs.use_cpu_devices(2)
    with tempfile.TemporaryDirectory() as folder:
        simulations = {}
        for clients in SIZES:
            for where in ("memory", "disk"):
                _write(Path(folder), clients)
                began = time.perf_counter()
                simulation = _simulation(Path(folder), clients, where)
                opened = time.perf_counter()
                simulation.evaluate(hs.Evaluation(every=1))
                scored = time.perf_counter()
                simulation.advance(ROUNDS, ROUNDS)
                done = time.perf_counter()
                print(
                    f"{clients:>9,} clients in {where:6}: federation {opened - began:5.1f} s, evaluation of 10,000 "
                    f"{scored - opened:5.1f} s, first {ROUNDS} rounds {done - scored:5.1f} s, together "
                    f"{done - began:5.1f} s"
                )
                simulations[where, clients] = simulation
        sides = {str(key): (lambda s=s: s.advance(ROUNDS, ROUNDS)) for key, s in simulations.items()}
        times = interleaved(sides, max(options.repeats, 15))
        for where in ("memory", "disk"):
            few, many = (times[str((where, n))] / ROUNDS for n in SIZES)
            print(
                f"{where:6}: a round with {SIZES[0]:,} clients {1e3 * few:.2f} ms, with {SIZES[1]:,} "
                f"{1e3 * many:.2f} ms, ratio {many / few:.3f} (bar: 1.15)"
            )


def _write(folder: Path, clients: int) -> None:
    """Samples in random order, as a table may have them, and whose they are."""
    if (folder / f"{clients}.x.npy").exists():
        return
    rng = np.random.default_rng(0)
    rows = clients * SAMPLES
    x = np.lib.format.open_memmap(folder / f"{clients}.x.npy", "w+", np.float32, (rows, FEATURES))
    for start in range(0, rows, BLOCK):
        x[start : start + BLOCK] = rng.normal(size=(min(BLOCK, rows - start), FEATURES))
    x.flush()
    np.save(folder / f"{clients}.y.npy", rng.integers(0, CLASSES, rows, dtype=np.int32))
    np.save(folder / f"{clients}.owner.npy", np.repeat(np.arange(clients, dtype=np.int32), SAMPLES))


def _simulation(folder: Path, clients: int, where: str) -> hs.Simulation:
    mode = "r" if where == "disk" else None
    x, y = (np.load(folder / f"{clients}.{name}.npy", mmap_mode=mode) for name in ("x", "y"))
    rows = RowLists.by_owner(np.load(folder / f"{clients}.owner.npy"), clients)
    each = np.arange(len(rows.rows)) % SAMPLES
    parts = [RowLists(rows.rows[mask], np.arange(clients + 1) * mask[:SAMPLES].sum()) for mask in (each < 8, each >= 8)]
    federation = hs.Federation.from_arrays(hs.Examples(x, y), *parts)
    problem = hs.Classification(hs.MLP(FEATURES, CLASSES))
    return hs.Simulation(
        hs.per_fedavg(local_steps=10, batch_size=8), problem, federation, cohort=10, backend="sharded", devices=2
    )


if __name__ == "__main__":
    main()
