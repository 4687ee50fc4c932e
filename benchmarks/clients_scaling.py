"""The time of a round with 50 and with 100,000 clients in the federation, and the memory of the larger.

    python -m benchmarks.clients_scaling [--data DIR] [--repeats 15]

10 clients a round, 10 local steps, MLP 80-60, Per-FedAvg exact. Bars: within 10% of each other; under 2 GB.
"""

import resource

import numpy as np

import headstart as hs
from benchmarks.common import dataset, interleaved, parser, scaled

SIZES = (50, 100_000)
ROUNDS = 5


def main() -> None:
    options = parser(__doc__).parse_args()
    hs.use_cpu_devices(2)
    x, y, source = dataset("mnist", options.data)
    problem = hs.Classification(hs.MLP(x.shape[1], 10))
    algorithm = hs.per_fedavg(local_steps=10, batch_size=40)
    simulations = {}
    for clients in SIZES:
        rows = np.random.default_rng(0).integers(0, len(x), (clients, 60))
        federation = hs.Federation.from_arrays(
            hs.Examples(x, y), list(rows[:, :50]), list(rows[:, 50:]), transform=scaled
        )
        simulations[clients] = hs.Simulation(algorithm, problem, federation, cohort=10, backend="sharded", devices=2)
    sides = {f"{n:,}": (lambda s=s: s.advance(ROUNDS, ROUNDS)) for n, s in simulations.items()}
    for side in sides.values():
        side()
    times = interleaved(sides, max(options.repeats, 15))
    few, many = (times[f"{n:,}"] / ROUNDS for n in SIZES)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"{source}: a round with {SIZES[0]} clients {1e3 * few:.1f} ms, with {SIZES[1]:,} {1e3 * many:.1f} ms")
    print(f"ratio {many / few:.3f} (bar: 0.9 to 1.1)   peak memory of both together {peak:.2f} GB (bar: 2)")


if __name__ == "__main__":
    main()
