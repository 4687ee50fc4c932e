"""A round on two hosts of one core each, and on two devices of one process, taking turns.

    python -m benchmarks.hosts_round [--cohort 100] [--repeats 5]

Two processes of this machine on loopback, each pinned to a core. Bar: the time of two devices within 15%. Clients work
where they live, so the busier host decides: that part of the difference is printed, too. MLP 80-60 on 784 numbers,
Per-FedAvg exact, 5 local steps, batches of 20.
"""

import argparse
import json
import os
import socket
import subprocess
import sys

import numpy as np

CLIENTS, ROUNDS, STEPS = 400, 6, 5


def measure(cohort: int, repeats: int, hosts: str | None, host: int) -> dict[str, object]:
    """The best seconds of a round, and the losses of the rounds."""
    import headstart as hs
    from headstart.hosts import crew
    from headstart.simulate.hosted.simulation import HostedSimulation

    if hosts is not None:
        os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[host]})
        hs.use_hosts(hosts.split(","), host)
    rng = np.random.default_rng(0)
    pool = hs.Examples(rng.random((CLIENTS * 40, 784), np.float32), rng.integers(0, 10, CLIENTS * 40, dtype=np.int32))
    rows = np.arange(CLIENTS * 40).reshape(CLIENTS, 40)
    federation = hs.Federation.from_arrays(pool, list(rows[:, :36]), list(rows[:, 36:]))
    problem = hs.Classification(hs.MLP(784, 10))
    algorithm = hs.per_fedavg(local_steps=STEPS, batch_size=20, inner_lr=0.01, outer_lr=0.01)
    joined = crew()
    run: hs.Simulation | HostedSimulation
    if joined is None:
        run = hs.Simulation(algorithm, problem, federation, cohort=cohort, backend="sharded", devices=2)
    else:
        run = HostedSimulation(joined, algorithm, problem, federation, cohort=cohort)
    tables = [run.advance(ROUNDS, ROUNDS) for _ in range(repeats + 1)]
    if joined is not None:
        joined.finish()
    return {
        "seconds": min(float(table["seconds"][0].as_py()) for table in tables[1:]),
        "losses": [loss for table in tables for loss in table["loss"].to_pylist()],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cohort", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--hosts", help=argparse.SUPPRESS)
    parser.add_argument("--host", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print("FOUND " + json.dumps(measure(options.cohort, options.repeats, options.hosts, options.host)))
        return
    command = [sys.executable, "-m", "benchmarks.hosts_round", "--one"]
    command += ["--cohort", str(options.cohort), "--repeats", str(options.repeats)]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    alone = _found([subprocess.Popen(command, stdout=subprocess.PIPE, text=True)])[0]
    there = [*command, "--hosts", f"127.0.0.1:{port},127.0.0.1", "--host"]
    both = _found([subprocess.Popen([*there, str(i)], stdout=subprocess.PIPE, text=True) for i in range(2)])[0]
    draws = np.random.default_rng(0).hypergeometric(CLIENTS // 2, CLIENTS // 2, options.cohort, 10_000)
    busier = np.maximum(draws, options.cohort - draws).mean() / (options.cohort / 2)
    difference = np.max(np.abs(np.array(alone["losses"]) - np.array(both["losses"])))
    print(
        f"cohort {options.cohort}: two devices {1e3 * alone['seconds']:.1f} ms a round, two hosts "
        f"{1e3 * both['seconds']:.1f} ms, ratio {both['seconds'] / alone['seconds']:.3f} (bar: 1.15), of which the "
        f"busier host's share is {busier:.3f}; largest difference of a loss {difference:.1e}"
    )


def _found(processes: list[subprocess.Popen[str]]) -> list[dict[str, object]]:
    found = []
    for process in processes:
        out, _ = process.communicate(timeout=600)
        assert process.returncode == 0
        found.append(json.loads(next(line for line in out.splitlines() if line.startswith("FOUND "))[6:]))
    return found


if __name__ == "__main__":
    main()
