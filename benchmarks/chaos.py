"""A federation under faults: in every round something goes wrong at a site, and the server is killed more than once.

    python -m benchmarks.chaos [--sites 10] [--rounds 30] [--seed 0] [--out DIR]

Real processes: SuperLink, gateway, training process, and a SuperNode and a worker for every site, with keys and TLS.
The method keeps memories at the clients, so that a round that is lost or counted twice shows. Afterwards it is checked
that

- training has ended, and the record has every round once,
- the event log names every fault, with the site (a process of a site's own that has died is in the site's log),
- model and memories are, number by number, those of a calm run in one process that leaves out whom this one left out,
- the score is within noise of calm runs that leave out nobody: in the 99% prediction interval (Student's t) of six of
  them, of which one has the storm's seed and the others seeds of their own, and so other samples to test on, other
  initial weights and other batches.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from subprocess import Popen
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from benchmarks.calm import (
    METHOD,
    SEED,
    calm_run,
    counted_answers,
    largest_difference,
    memories,
    model,
    score,
    within_noise,
)
from headstart.deploy.events import read_events
from headstart.deploy.folders import init
from headstart.deploy.messages import Message
from headstart.deploy.places import ServerPlace, SitePlace
from headstart.deploy.processes import end
from headstart.deploy.site_watch import SiteWatch
from headstart.deploy.trial import free_ports

CALM_SEEDS = 6
EXPERIMENT = """
seed = {seed}
[data]
name = "own"
path = "table.csv"
client = "who"
label = "y"
held_out = 0
[model]
name = "mlp"
hidden = [16]
[algorithm]
name = "local-moml"
keep_memory = true
inner_lr = 0.05
outer_lr = 0.05
local_steps = 3
batch_size = 10
[train]
rounds = {rounds}
cohort = 1.0
[evaluate]
every = 1000
steps = [0, 1]
"""
DEPLOY = {"quorum": 0.5, "round_timeout": 60.0, "site_deadline": 40.0, "join_timeout": 600.0, "retry_seconds": 2.0}
LIED = {
    "nan": "not finite", "infinity": "not finite", "shape": "arrays", "old round": "stale", "garbage": "garbled",
}  # fmt: skip
"""What a worker can send in place of its answer, and what the server should make of it."""
SERVER = ("kill training", "kill superlink", "kill server")
ORDER = "fault"
"""The file by which a worker is told to do so, once."""


# The site's side: a worker that lies when it is told to.


def worker(folder: Path) -> None:
    """A site's worker, whose next answer to a round is what the file ``fault`` says."""
    from headstart.deploy.worker import Worker, site_of

    place = SitePlace.read(folder.resolve())
    site = site_of(place)
    last = b""

    def answer(content: bytes) -> bytes:
        nonlocal last
        honest = site.answer(content)
        order = place.folder / ORDER
        if Message.unpack(content, with_arrays=False).head.kind != "work":
            return honest
        before, last = last, honest
        if not order.exists():
            return honest
        fault = order.read_text()
        order.unlink()
        return _lie(fault, honest, before)

    Worker(place.socket, answer).serve()


def _lie(fault: str, honest: bytes, before: bytes) -> bytes:
    message = Message.unpack(honest)
    arrays = {name: np.array(array) for name, array in message.arrays.items()}
    floats = [name for name, array in arrays.items() if array.dtype.kind == "f" and array.size > 1]
    if fault == "garbage":
        return random.randbytes(len(honest))
    if fault == "old round":
        return before or replace(message, head=replace(message.head, round=message.head.round - 1)).pack()
    if fault == "shape":
        arrays[floats[0]] = arrays[floats[0]][..., :-1]
    else:
        arrays[floats[0]].flat[0] = np.nan if fault == "nan" else np.inf
    return replace(message, arrays=arrays).pack()


# The storm.

Seen = Callable[[list[dict[str, Any]]], bool]
"""Whether events name a fault."""


@dataclass
class Done:
    """A fault that was made, and how the log should name it."""

    round: int
    site: str
    fault: str
    seen: Seen
    log: Path
    """The folder whose log should: the server's, or the site's for what happens to its own processes."""
    after: int
    """How many events that log had before it."""

    def named(self) -> bool:
        return self.seen(read_events(self.log)[self.after :])


class Storm:
    """Sites in this process's care, a server in another, and something that goes wrong in every round."""

    def __init__(self, root: Path, server: Path, sites: Mapping[str, Path], seed: int):
        self.root, self.place = root, ServerPlace(server)
        self.random = random.Random(seed)
        self.sites = {name: SiteWatch(path) for name, path in sites.items()}
        for name, path in sites.items():
            self.sites[name].worker.command = [sys.executable, "-m", "benchmarks.chaos", "worker", str(path)]
        self.serving: Popen | None = None
        self.done: list[Done] = []
        self.waking: list[tuple[Callable[[], bool], str, Callable[[], None]]] = []
        """Whether it is time for a site that was frozen to go on, which it is, and how."""
        self.plan: dict[int, str] = {}

    def run(self, rounds: int, server_kills: int) -> None:
        kinds = ["kill worker", "kill messenger", "kill node", "hang", "slow", "restart node", *LIED]
        bag: list[str] = []
        for k in range(rounds):
            if not bag:
                bag = self.random.sample(kinds, len(kinds))
            self.plan[k] = bag.pop()
        for i, how in enumerate(SERVER[:server_kills]):
            self.plan[(i + 1) * rounds // (server_kills + 1)] = how
        struck = -1
        self._serve()
        while True:
            for site in self.sites.values():
                site.step()
            self._wake()
            events = read_events(self.place.folder)
            if events and events[-1]["event"] in ("finished", "stopped"):
                break
            assert self.serving is not None
            if self.serving.poll() is not None:
                self._serve()
            opened = max((e["round"] for e in events if e["event"] == "opened"), default=-1)
            if opened > struck:
                struck = opened
                self._strike(opened)
            time.sleep(0.1)
        self.serving.wait(120)
        for site in self.sites.values():
            site.step()  # notices what has ended

    def stop(self) -> None:
        pids = [] if self.serving is None else [self.serving.pid]
        end([*pids, *(pid for site in self.sites.values() for pid in site.pids)])

    def _serve(self) -> None:
        words = ["headstart", "deploy", "server", str(self.place.folder)]
        script = f"import sys; sys.argv = {words!r}; from headstart.cli import main; main()"
        with (self.root / "server.log").open("ab") as log:
            self.serving = Popen([sys.executable, "-c", script], stdout=log, stderr=log)

    def _strike(self, k: int) -> None:
        fault = self.plan.get(k)
        if fault is None:
            return
        name = self.random.choice([name for name in self.sites if self._unharmed(name)])
        print(f"round {k}: {fault}" + ("" if fault in SERVER else f" ({name})"), flush=True)
        getattr(self, f"_{fault.replace(' ', '_')}", lambda *a: self._tell_lie(fault, *a))(k, name)

    def _unharmed(self, name: str) -> bool:
        """Whether a site has got over what was done to it."""
        site = self.sites[name]
        frozen = {frozen for _, frozen, _ in self.waking}
        return all(child.running for child in site.children) and name not in frozen and not self._order(name).exists()

    def _order(self, name: str) -> Path:
        return self.sites[name].place.folder / ORDER

    def _note(self, k: int, name: str, fault: str, seen: Seen, log: Path | None = None) -> None:
        """Remember how a log should name a fault: that of the server, if no other is given."""
        folder = self.place.folder if log is None else log
        self.done.append(Done(k, name, fault, seen, folder, len(read_events(folder))))

    def _left_out(self, name: str, *reasons: str) -> Seen:
        return lambda events: any(
            e["event"] == "left_out" and e["site"] == name and e["reason"] in reasons for e in events
        )

    def _tell_lie(self, fault: str, k: int, name: str) -> None:
        self._note(k, name, fault, self._left_out(name, LIED[fault]))
        self._order(name).write_text(fault)

    def _kill_worker(self, k: int, name: str) -> None:
        self._end_child(k, name, "worker", signal.SIGKILL)

    def _kill_messenger(self, k: int, name: str) -> None:
        self._end_child(k, name, "messenger", signal.SIGKILL)

    def _kill_node(self, k: int, name: str) -> None:
        self._end_child(k, name, "node", signal.SIGKILL)

    def _restart_node(self, k: int, name: str) -> None:
        """Asked to end, and started again at once: within the time in which Flower takes it to be there."""
        self._end_child(k, name, "node", signal.SIGTERM)

    def _end_child(self, k: int, name: str, child: str, number: signal.Signals) -> None:
        """The server may notice nothing, for whoever comes next goes on; the site's own log says it."""
        site = self.sites[name]
        seen = lambda events: any(e["event"] == "process_ended" and e["process"] == child for e in events)  # noqa: E731
        self._note(k, name, f"{number.name} to its {child}", seen, site.place.folder)
        process = next(each.process for each in site.children if each.name == child)
        assert process is not None
        process.send_signal(number)

    def _hang(self, k: int, name: str) -> None:
        """Until it was noticed: on a busy machine the question itself may take a while to come."""
        self._note(k, name, "hang", self._left_out(name, "slow", "silent"))
        self._freeze(name, 3 * DEPLOY["round_timeout"], self.done[-1].named)

    def _slow(self, k: int, name: str) -> None:
        """Not so slow that it should be left out: the round waits for it."""
        self._freeze(name, 8.0)

    def _freeze(self, name: str, seconds: float, enough: Callable[[], bool] = lambda: False) -> None:
        process = self.sites[name].worker.process
        assert process is not None
        process.send_signal(signal.SIGSTOP)
        until = time.monotonic() + seconds
        over = lambda: time.monotonic() >= until or enough()  # noqa: E731
        self.waking.append((over, name, lambda: process.send_signal(signal.SIGCONT)))

    def _wake(self) -> None:
        for entry in [entry for entry in self.waking if entry[0]()]:
            entry[2]()
            self.waking.remove(entry)

    def _kill_training(self, k: int, name: str) -> None:
        self._note(k, "server", "kill training", _happens("run_ended"))
        os.kill(int(self.place.pid.read_text()), signal.SIGKILL)

    def _kill_superlink(self, k: int, name: str) -> None:
        assert self.serving is not None
        self._note(k, "server", "kill superlink", _happens("process_ended"))
        for process in psutil.Process(self.serving.pid).children():
            if any("flower-superlink" in word for word in process.cmdline()):
                process.kill()

    def _kill_server(self, k: int, name: str) -> None:
        assert self.serving is not None
        self._note(k, "server", "kill server", _happens("resumed"))
        self.serving.kill()


def _happens(kind: str) -> Seen:
    return lambda events: any(e["event"] == kind for e in events)


def write_table(path: Path, clients: int) -> None:
    rng = np.random.default_rng(0)
    parts = []
    for i in range(clients):
        rows, taste = 60 + 10 * (i % 4), np.concatenate([[1.0, -1.0], rng.normal(size=4)])
        x = rng.normal(size=(rows, 6))
        y = np.where(x @ taste + 0.3 * rng.normal(size=rows) > 0, "yes", "no")
        parts.append(pa.table({"who": [f"c{i:02d}"] * rows, **{f"x{j}": x[:, j] for j in range(6)}, "y": y}))
    pyarrow.csv.write_csv(pa.concat_tables(parts), path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sites", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--server-kills", type=int, default=3, choices=range(4))
    parser.add_argument("--out", type=Path, default=None, help="where to keep all of it; left out, a temporary folder")
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="chaos-")) if options.out is None else options.out
    root.mkdir(parents=True, exist_ok=True)
    write_table(root / "table.csv", options.sites)
    (root / "x.toml").write_text(EXPERIMENT.format(seed=SEED, rounds=options.rounds))
    ports = free_ports(options.sites + 2)
    fed = init(
        root / "fed", root / "x.toml", options.sites, host="127.0.0.1", listen="127.0.0.1", port=ports[0],
        superlink_port=ports[1], first_site_port=ports[2], split=True, deploy=DEPLOY,
    )  # fmt: skip
    began = time.monotonic()
    storm = Storm(root, fed.server, fed.sites, options.seed)
    try:
        storm.run(options.rounds, options.server_kills)
    finally:
        storm.stop()
    minutes = (time.monotonic() - began) / 60
    sys.exit(report(root, fed.server, fed.sites, storm, options.rounds, minutes))


def report(root: Path, server: Path, sites: Mapping[str, Path], storm: Storm, rounds: int, minutes: float) -> int:
    events = read_events(server)
    table = pq.read_table(server / "run" / METHOD / "rounds.parquet")
    counted = {k: names for k, (_, names) in counted_answers(events).items()}
    twin = calm_run(root, "twin", sites, server, counted)
    calm = [calm_run(root, f"calm{i}", sites, server, None, SEED + i) for i in range(CALM_SEEDS)]
    scores = [score(each / "server" / "run") for each in calm]
    own = score(server / "run")
    near, margin = within_noise(own, scores)
    unnamed = [done for done in storm.done if not done.named()]
    apart = largest_difference(model(server / "run"), model(twin / "server" / "run"))
    kept, wanted = memories(server, sites), memories(twin / "server", {name: twin / name for name in sites})
    remembered = max(largest_difference(kept[name], wanted[name]) for name in sites)
    left_out = sum(len(sites) - len(names) for names in counted.values())
    checks = {
        f"training has ended in {minutes:.1f} minutes": events[-1]["event"] == "finished" and minutes < 40,
        f"the record has each of {rounds} rounds once": sorted(table["round"].to_pylist()) == list(range(rounds)),
        f"the log names all of {len(storm.done)} faults": not unnamed,
        f"model as in a calm run with the same {left_out} answers left out: {apart:.1e}": apart < 1e-5,
        f"memories as in that run: {remembered:.1e}": remembered < 1e-5,
        f"accuracy {own:.3f}, calm {np.mean(scores):.3f} ± {margin:.3f} (with the same seed {scores[0]:.3f})": near,
    }
    for done in unnamed:
        print(f"not named: {done.fault} of {done.site} in round {done.round}")
    for name, good in checks.items():
        print(("ok    " if good else "FAILS ") + name)
    print(f"All of it is in {root}.")
    return 0 if all(checks.values()) else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["worker"]:
        worker(Path(sys.argv[2]))
    else:
        main()
