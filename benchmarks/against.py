"""Rounds of this tree against those of an earlier commit, in turns in one run.

    python -m benchmarks.against REV [--data DIR] [--repeats 9]

Each tree runs in a process of its own, with the same packages and the same workloads: rounds of Per-FedAvg (10 of 50
clients, 10 local steps, batches of 40, MLP 80-60) and iterations of MOML on sine waves. The processes take turns, so
that both meet the same machine. Bar: no workload more than 3% slower than at REV. ``hessian-free`` has the radius that
each tree has by default, ``fixed-radius`` the papers' 1e-3.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.common import dataset, parser, scaled

ROOT = Path(__file__).parent.parent
SERVE = "serve"
ROUNDS, ITERATIONS = 5, 400
WORKLOADS = (
    "mnist hessian-free", "mnist fixed-radius", "mnist exact", "cifar10 hessian-free", "cifar10 fixed-radius",
    "cifar10 exact", "sine moml", "sine moml-v2",
)  # fmt: skip


def workload(name: str, data: Path | None) -> tuple[Callable[[], object], int]:
    """Work of the tree that is imported, and how many rounds it is."""
    import headstart as hs
    from headstart.core import HessianFree

    where, method = name.split()
    if where == "sine":
        model = hs.MLP(inputs=1, outputs=1, hidden=(40, 40), activation="relu")
        algorithm = (hs.MOML if method == "moml" else hs.MOMLv2)(batch_size=10)
        simulation = hs.Simulation(algorithm, hs.Regression(model), hs.data.sine(clients=25, held_out=0), cohort=3)
        return (lambda: simulation.advance(ITERATIONS, ITERATIONS)), ITERATIONS
    x, y, _ = dataset(where, data)
    rows = np.array_split(np.random.default_rng(0).permutation(len(x)), 50)
    federation = hs.Federation.from_arrays(hs.Examples(x, y), rows, rows, transform=scaled)
    curvature = HessianFree(1e-3) if method == "fixed-radius" else method
    algorithm = hs.per_fedavg(local_steps=10, batch_size=40, curvature=curvature)
    problem = hs.Classification(hs.MLP(x.shape[1], 10))
    simulation = hs.Simulation(algorithm, problem, federation, cohort=10, backend="sharded", devices=2)
    return (lambda: simulation.advance(ROUNDS, ROUNDS)), ROUNDS


def serve(data: str) -> None:
    """In a tree's process: for each line that names a workload, run it and say how long it took."""
    import headstart as hs

    hs.use_cpu_devices(2)
    ready: dict[str, tuple[Callable[[], object], int]] = {}
    for line in sys.stdin:
        name = line.strip()
        if name not in ready:
            ready.clear()
            ready[name] = workload(name, Path(data) if data else None)
            ready[name][0]()
        run, rounds = ready[name]
        began = time.perf_counter()
        run()
        print(f"TOOK {(time.perf_counter() - began) / rounds}", flush=True)


class Tree:
    """A checkout of the project and the process that runs its rounds."""

    def __init__(self, folder: Path, data: Path | None):
        self.process = subprocess.Popen(
            [sys.executable, __file__, SERVE, str(data or "")], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, cwd=folder, env={**os.environ, "PYTHONPATH": str(folder)},
        )  # fmt: skip

    def seconds(self, name: str) -> float:
        """Of one round of a workload."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(name + "\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith("TOOK "):
                return float(line.split()[1])
        raise SystemExit(f"The process of {self.process.args} ended on {name!r}.")

    def end(self) -> None:
        """Let the process go."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def main() -> None:
    options = parser(__doc__)
    options.add_argument("rev", help="the commit to compare with")
    options = options.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        before = Path(scratch) / "before"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", before, options.rev], cwd=ROOT, check=True)
        trees = {"before": Tree(before, options.data), "now": Tree(ROOT, options.data)}
        try:
            print(f"{'one round':24}{options.rev[:10]:>12}{'now':>12}{'now / before':>14}   (bar: 1.03)")
            for name in WORKLOADS:
                for tree in trees.values():
                    tree.seconds(name)
                taken: dict[str, list[float]] = {side: [] for side in trees}
                for _ in range(options.repeats):
                    for side, tree in trees.items():
                        taken[side].append(tree.seconds(name))
                ratios = np.divide(taken["now"], taken["before"])
                first, second = (1e3 * float(np.median(of)) for of in taken.values())
                print(f"{name:24}{first:9.3f} ms{second:9.3f} ms{np.median(ratios):14.3f}", flush=True)
        finally:
            for tree in trees.values():
                tree.end()
            subprocess.run(["git", "worktree", "remove", "--force", before], cwd=ROOT, check=True)


if __name__ == "__main__":
    serve(sys.argv[2]) if sys.argv[1:2] == [SERVE] else main()
