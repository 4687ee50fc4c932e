"""What a round costs over real processes: seconds, our part of a message, and bytes beside their arithmetic.

    python -m benchmarks.deployed_round

A SuperLink, the gateway and three sites on this machine, with a network of 68,270 parameters (273 KB), train for a few
rounds; the first ones compile and do not count. Our part of a message is what a site's messenger and worker add to what
Flower does: its time is that of the messenger's code in front of a worker that echoes, its CPU that of all processes of
a site in the warm rounds, Flower's SuperNode among them.
"""

import statistics
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from headstart.deploy.client_app import ask_worker
from headstart.deploy.events import read_events
from headstart.deploy.messages import Head, Message
from headstart.deploy.trial import up
from headstart.deploy.watching import Seen
from headstart.deploy.worker import Worker

SITES, ROUNDS, WARM = 3, 10, 3
FEATURES, HIDDEN = 561, 120
BARS = {"round": 8.0, "message": 0.1, "cpu": 1.2, "bytes": 0.02}


def experiment(folder: Path) -> Path:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, FEATURES)).astype(np.float32)
    table = {"who": [f"p{i % SITES}" for i in range(300)]} | {f"f{j}": x[:, j] for j in range(FEATURES)}
    pq.write_table(pa.table(table | {"label": (x[:, 0] > 0).astype(int)}), folder / "people.parquet")
    path = folder / "experiment.toml"
    path.write_text(f"""
seed = 0
[data]
name = "own"
path = "{folder / "people.parquet"}"
client = "who"
label = "label"
held_out = 0
standardize = "client"
[model]
name = "mlp"
hidden = [{HIDDEN}]
[algorithm]
name = "per-fedavg"
batch_size = 20
[train]
rounds = {ROUNDS}
cohort = 1.0
[evaluate]
every = {ROUNDS}
""")
    return path


def shown(what: str, value: str, within: bool) -> None:
    print(f"{what:<52} {value:>12}   {'holds' if within else 'MISSES ITS BAR'}")


class Spent:
    """CPU seconds of all sites' processes, from one round to another."""

    def __init__(self) -> None:
        self.seen: dict[int, float] = {}

    def look(self, seen: Seen) -> None:
        if seen.round >= WARM and seen.round not in self.seen:
            self.seen[seen.round] = sum(_seconds(process) for process in psutil.Process().children())

    def per_message(self) -> float:
        first, last = min(self.seen), ROUNDS - 1  # the last round has an evaluation after it
        return (self.seen[last] - self.seen[first]) / (SITES * (last - first))


def _seconds(process: psutil.Process) -> float:
    """What a process has used so far, if it is one of a site's."""
    words = " ".join(process.cmdline())
    ours = any(name in words for name in ("deploy.worker", "deploy.messenger", "flower-supernode"))
    return sum(process.cpu_times()[:2]) if ours else 0.0


def rounds(folder: Path) -> None:
    spent = Spent()
    trial = up(folder / "federation", experiment(folder), SITES, watch=spent.look)
    closed = [event for event in read_events(trial.server) if event["event"] == "closed"][WARM:]
    seconds = statistics.median(event["seconds"] for event in closed)
    shown(f"a warm round of {SITES} sites (at most {BARS['round']:g} s)", f"{seconds:.2f} s", seconds <= BARS["round"])
    cpu = spent.per_message()
    shown(f"CPU of a site per message (at most {BARS['cpu']:g} s)", f"{cpu:.2f} s", cpu <= BARS["cpu"])
    record = pq.read_table(trial.run / "per-fedavg" / "rounds.parquet")
    parameters = 4 * (FEATURES * HIDDEN + HIDDEN + HIDDEN * 2 + 2)
    for way in ("bytes_up", "bytes_down"):
        counted = record[way].to_numpy()[-1]
        share = counted / (SITES * parameters) - 1
        shown(f"{way} of a round, above {SITES} x {parameters} bytes", f"{share:.2%}", abs(share) <= BARS["bytes"])


def message(folder: Path) -> None:
    """A message of the model's size through the messenger's code to a worker and back."""
    path, down = folder / "worker.sock", {"down": np.zeros(68_270, np.float32)}
    head = Head("work", "run", "digest", "site", deadline=60.0)

    def echo(content: bytes) -> bytes:
        question = Message.unpack(content)
        return question.answer({}, question.arrays).pack()

    worker = Worker(path, echo)
    threading.Thread(target=worker.serve, daemon=True).start()
    content, times = Message(head, {}, down).pack(), []
    for _ in range(20):
        began = time.perf_counter()
        Message.unpack(ask_worker(content, str(path)))
        times.append(time.perf_counter() - began)
    taken = statistics.median(times)
    shown("our part of a message (at most 100 ms)", f"{1000 * taken:.1f} ms", taken <= BARS["message"])


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        message(Path(folder))
        rounds(Path(folder))


if __name__ == "__main__":
    main()
