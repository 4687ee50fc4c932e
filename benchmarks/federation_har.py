"""Recognising activities across sites that keep their recordings: parity, privacy and poison, as tables.

    python -m benchmarks.federation_har parity            # 5 sites, as real processes, against the simulator
    python -m benchmarks.federation_har privacy --seeds 3 # epsilon, accuracy before and after adaptation
    python -m benchmarks.federation_har poison --seeds 3  # 3 of 10 sites send poison

For privacy and poison the sites are objects in this process with folders of their own; every message is packed,
unpacked and checked as if it had travelled. HAR is looked for where HEADSTART_DATA says.
"""

import argparse
import atexit
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import headstart as hs
from headstart.deploy.events import read_events
from headstart.deploy.fleet import LocalFleet
from headstart.deploy.folders import init
from headstart.deploy.messages import Message
from headstart.deploy.patience import BelowQuorum
from headstart.deploy.places import SitePlace
from headstart.deploy.running import serve
from headstart.deploy.trial import up
from headstart.deploy.worker import site_of
from headstart.errors import Diverged
from headstart.wire import epsilon_of

EXPERIMENT = """
seed = {seed}

[data]
name = "har"          # 30 people, of whom 9 never train

[model]
name = "mlp"
hidden = [32]

[algorithm]
name = "per-fedavg"
curvature = "{curvature}"
inner_lr = 0.03
outer_lr = 0.05
local_steps = 10
batch_size = 20

[train]
rounds = {rounds}
cohort = 1.0
backend = "vmap"

[evaluate]
every = {rounds}
steps = [0, 5]
{wire}
"""

Poison = Callable[[np.ndarray], np.ndarray]

POISONS: Mapping[str, Poison] = {
    "turned round": lambda update: -5 * update,
    "a million times as long": lambda update: 1e6 * update,
}

TRAINING, DELTA = 21, 1e-5


def main() -> None:
    """One of the tables."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("table", choices=("parity", "privacy", "poison"))
    options.add_argument("--seeds", type=int, default=3, help="runs of each row; the spread is their deviation")
    options.add_argument("--rounds", type=int, default=10)
    options.add_argument("--clip", type=float, default=1.0, help="the largest norm of an update, where there is one")
    options.add_argument("--only", default="", help="rows of poison whose aggregate begins so")
    asked = options.parse_args()
    {"parity": parity, "privacy": privacy, "poison": poison}[asked.table](asked)


def experiment(asked: argparse.Namespace, seed: int, wire: str = "", curvature: str = "first-order") -> str:
    """The experiment as a file has it."""
    section = f"\n[wire]\n{wire}\n" if wire else ""
    return EXPERIMENT.format(seed=seed, rounds=asked.rounds, wire=section, curvature=curvature)


@cache
def _dealt(sites: int) -> Path:
    """The folders of a federation to which the recordings have been dealt out once."""
    folder = Path(tempfile.mkdtemp(prefix="federation-har-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    file = folder / "experiment.toml"
    file.write_text(EXPERIMENT.format(seed=0, rounds=1, curvature="exact", wire=""))
    # Once a shared model is infinite, so is every update: the run ends rather than wait for better ones.
    init(folder / "federation", file, sites, split=True, deploy={"below_quorum": "stop"})
    return folder / "federation"


def federated(text: str, sites: int, poisoned: Mapping[str, Poison] | None = None) -> tuple[hs.RunResult, list[str]]:
    """The experiment over so many sites, some of which may send poison; and whose answers were left out."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copytree(_dealt(sites), Path(folder) / "federation"))
        (copy / "server" / "experiment.toml").write_text(text)
        places = [SitePlace.read(place) for place in sorted((copy / "sites").iterdir())]
        answers = {place.name: site_of(place).answer for place in places}
        for name, change in (poisoned or {}).items():
            answers[name] = _poisoning(answers[name], change)
        result = serve(copy / "server", LocalFleet(answers))
        return result, sorted({line for line in map(_left_out, read_events(copy / "server")) if line})


def _left_out(told: Mapping[str, Any]) -> str:
    return f"{told['site']}: {told['reason']}" if told["event"] == "left_out" else ""


def _poisoning(answer: Callable[[bytes], bytes], change: Poison) -> Callable[[bytes], bytes]:
    """A site that works as it should, and sends an update of its own choice."""

    def respond(content: bytes) -> bytes:
        reply = Message.unpack(answer(content))
        if Message.unpack(content, with_arrays=False).head.kind != "work":
            return reply.pack()
        arrays = {name: change(a) if "/up" in name else a for name, a in reply.arrays.items()}
        return Message(reply.head, reply.said, arrays).pack()

    return respond


def accuracies(result: hs.RunResult) -> tuple[float, float]:
    """Of the people who never trained, in percent: with the shared model, and after 5 steps of their own."""
    rows = result.comparison.to_pylist()
    found = {row["steps"]: row["mean"] for row in rows if (row["group"], row["metric"]) == ("held-out", "accuracy")}
    return 100 * found[0], 100 * found[5]


def _row(label: str, figures: list[tuple[float, float]], more: str = "") -> None:
    columns = [
        "diverged" if np.isnan(column).any() else f"{column.mean():.1f} ± {column.std():.1f}"
        for column in np.array(figures).T
    ]
    print(f"| {label} | {' | '.join(columns)} |{more}", flush=True)


def parity(asked: argparse.Namespace) -> None:
    """The same experiment over 5 sites, as `headstart deploy up` starts them, and in the simulator."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "experiment.toml"
        file.write_text(experiment(asked, seed=0, curvature="exact"))
        trial = up(Path(folder) / "federation", file, 5)
        (trained,) = hs.load_run(trial.run).methods.values()
        tables = {"5 sites": trained.table}
        (simulated,) = hs.Experiment.from_toml(file).run().results.values()
        tables["simulator"] = simulated.table
        left_out = sorted({line for line in map(_left_out, read_events(trial.server)) if line})
    print(f"5 sites, 30 people, {asked.rounds} rounds; left out: {left_out or 'nobody'}")
    print("| | accuracy of 9 new people | after 5 steps of their own |\n|---|---|---|")
    mine, theirs = (_by_person(table) for table in tables.values())
    for label, scores in zip(tables, (mine, theirs), strict=True):
        means = [
            np.mean(
                [score for (_, new, at, name), score in scores.items() if new and (at, name) == (steps, "accuracy")]
            )
            for steps in (0, 5)
        ]
        print(f"| {label} | {' | '.join(f'{100 * mean:.3f} %' for mean in means)} |")
    worst = max(abs(mine[key] - theirs[key]) for key in theirs)
    print(f"largest difference of a person's accuracy or loss: {worst:.2g}")
    sys.exit(worst > 1e-4)


def _by_person(table: pa.Table) -> dict[tuple[Any, ...], float]:
    """The last scores: by person, whether that one is new, steps and metric."""
    rows = table.to_pylist()
    last = max(row["round"] for row in rows)
    return {
        (row["client"], row["held_out"], row["steps"], name): row[name]
        for row in rows if row["round"] == last for name in ("loss", "accuracy")
    }  # fmt: skip


def privacy(asked: argparse.Namespace) -> None:
    """Noise at the server and at the sites, and what it costs."""
    print(f"{TRAINING} people train in all of {asked.rounds} rounds, clipped at {asked.clip:g}, delta {DELTA:g}")
    print("| noise | epsilon | accuracy of 9 new people | after 5 steps of their own |\n|---|---|---|---|")
    rows: list[tuple[str, str, float | None]] = [("none, not clipped", "", None), ("none", "", 0.0)]
    rows += [(f"central, multiplier {z:g}", "server", z) for z in (0.1, 0.3, 1.0, 3.0)]
    rows += [(f"local, multiplier {z:g}", "client", z) for z in (0.03, 0.1, 0.3, 1.0)]
    for label, at, multiplier in rows:
        wire = "" if multiplier is None else f"clip = {asked.clip}"
        epsilon = "∞"
        if multiplier:
            wire += f'\nnoise = {{ multiplier = {multiplier}, at = "{at}" }}\ndelta = {DELTA}'
            spent = epsilon_of(multiplier, DELTA, asked.rounds, TRAINING, TRAINING, at)  # type: ignore[arg-type]
            epsilon = f"{spent:,.0f}" if spent > 100 else f"{spent:.1f}"
        figures = [accuracies(federated(experiment(asked, seed, wire), sites=10)[0]) for seed in range(asked.seeds)]
        _row(f"{label} | {epsilon}", figures)


def poison(asked: argparse.Namespace) -> None:
    """Three of ten sites send poison; the mean and the robust aggregates."""
    attackers = TRAINING * 2 // 5
    ways = {
        "mean": "",
        f"mean of updates clipped at {asked.clip:g}": f"clip = {asked.clip}",
        "median": 'aggregate = "median"',
        "trimmed mean, 0.4 on each side": 'aggregate = { name = "trimmed-mean", share = 0.4 }',
        f"Krum of {attackers}, mean of 5": f'aggregate = {{ name = "krum", attackers = {attackers}, keep = 5 }}',
    }
    bad = ("site-2", "site-5", "site-8")
    print(f"10 sites, {TRAINING} people train, {asked.rounds} rounds; poison comes from {', '.join(bad)}")
    print("| aggregate | poison | accuracy of 9 new people | after 5 steps of their own | left out |")
    print("|---|---|---|---|---|")
    for label, wire in {label: wire for label, wire in ways.items() if label.startswith(asked.only)}.items():
        for name, change in {"none": None, **POISONS}.items():
            figures, left_out = [], set()
            for seed in range(asked.seeds):
                try:
                    poisoned = {} if change is None else dict.fromkeys(bad, change)
                    result, faults = federated(experiment(asked, seed, wire), 10, poisoned)
                    figures.append(accuracies(result))
                    left_out |= set(faults)
                except (Diverged, BelowQuorum):
                    figures.append((np.nan, np.nan))
                    left_out.add("—")
            _row(f"{label} | {name}", figures, f" {', '.join(sorted(left_out)) or 'nobody'} |")


if __name__ == "__main__":
    main()
