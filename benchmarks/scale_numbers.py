"""What grows with the number of clients and what does not: the numbers behind docs/scale.md.

    python -m benchmarks.scale_numbers [--clients 10000 100000 1000000]

Every size runs in a process of its own, so that its peak of RAM is its own. Clients have 10 samples of 8 numbers each;
cohorts of 100, Per-FedAvg first order, MLP 80-60.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time

import numpy as np

SIZES = (10_000, 100_000, 1_000_000)
SAMPLES, FEATURES, CLASSES, COHORT, ROUNDS = 10, 8, 4, 100, 20
LABELS = {
    "federation_s": "making the federation, s",
    "bytes_per_client": "bytes in RAM per client, its samples (360 bytes) included",
    "draw_us": "drawing a cohort, microseconds",
    "round_ms": "a round, ms",
    "evaluate_s": "evaluating 1,000 clients, s",
    "checkpoint_kb": "the state of a checkpoint, kB",
    "peak_gb": "peak of RAM, GB",
}


def measure(clients: int) -> dict[str, float]:
    """The numbers of one size."""
    import jax
    import jax.numpy as jnp

    import headstart as hs
    from headstart.core import tree
    from headstart.data.rows import RowLists
    from headstart.simulate.rounds import draw_cohorts

    jax.block_until_ready(jnp.zeros(1))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rng = np.random.default_rng(0)
    rows = clients * SAMPLES
    pool = hs.Examples(rng.random((rows, FEATURES), np.float32), rng.integers(0, CLASSES, rows, dtype=np.int32))
    each = np.arange(rows).reshape(clients, SAMPLES)
    parts = [RowLists(part.reshape(-1), np.arange(clients + 1) * part.shape[1]) for part in (each[:, :8], each[:, 8:])]
    began = time.perf_counter()
    federation = hs.Federation.from_arrays(pool, *parts)
    made = time.perf_counter() - began
    kept = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    problem = hs.Classification(hs.MLP(FEATURES, CLASSES))
    algorithm = hs.per_fedavg(local_steps=2, batch_size=8, curvature="first-order")
    simulation = hs.Simulation(algorithm, problem, federation, cohort=COHORT)
    simulation.advance(ROUNDS, ROUNDS)
    rounds = min(_seconds(lambda: simulation.advance(ROUNDS, ROUNDS)) for _ in range(3)) / ROUNDS
    first = jnp.int32(0)

    def draw() -> None:
        jax.block_until_ready(draw_cohorts(simulation.plan, simulation.keys, first, 64))

    draw()
    evaluation = hs.Evaluation(max_clients=1000)
    simulation.evaluate(evaluation)
    return {
        "federation_s": made,
        "bytes_per_client": 1024 * (kept - before) / clients,
        "draw_us": 1e6 * min(_seconds(draw) for _ in range(5)) / 64,
        "round_ms": 1e3 * rounds,
        "evaluate_s": min(_seconds(lambda: simulation.evaluate(evaluation)) for _ in range(2)),
        "checkpoint_kb": tree.nbytes(simulation.state) / 1e3,
        "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
    }


def _seconds(work: object) -> float:
    began = time.perf_counter()
    work()  # type: ignore[operator]
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, nargs="+", default=SIZES)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments.one)))
        return
    found = {}
    for clients in arguments.clients:
        command = [sys.executable, "-m", "benchmarks.scale_numbers", "--one", str(clients)]
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ)
        found[clients] = json.loads(done.stdout)
    print("| | " + " | ".join(f"{clients:,}" for clients in found) + " |")
    print("|---|" + "---|" * len(found))
    for name, label in LABELS.items():
        print(f"| {label} | " + " | ".join(f"{each[name]:.3g}" for each in found.values()) + " |")


if __name__ == "__main__":
    main()
