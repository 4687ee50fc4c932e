"""Calm runs beside a storm: the same federation in one process, and how to compare what the two have come to."""

import math
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from scipy import stats

from headstart.deploy.events import read_events
from headstart.deploy.fleet import LocalFleet
from headstart.deploy.messages import Fault, Message, Tag
from headstart.deploy.places import SitePlace

__all__ = [
    "METHOD",
    "SEED",
    "calm_run",
    "counted_answers",
    "largest_difference",
    "memories",
    "model",
    "score",
    "within_noise",
]

SEED = 11
"""Of the storm's experiment."""
METHOD = "local-moml"


class Calm(LocalFleet):
    """Sites in this process, of which some are absent in some rounds."""

    def __init__(self, sites: Mapping[str, Path], counted: Mapping[int, set[str]] | None):
        from headstart.deploy.worker import site_of

        super().__init__({name: site_of(SitePlace.read(path.resolve())).answer for name, path in sites.items()})
        self._counted = counted

    def ask(self, questions: Mapping[str, bytes], timeout: float) -> dict[str, bytes | Fault]:
        heads = {site: Message.unpack(content, with_arrays=False).head for site, content in questions.items()}
        away = {
            site for site, head in heads.items()
            if self._counted is not None and head.kind == "work" and site not in self._counted[head.round]
        }  # fmt: skip
        there = {site: content for site, content in questions.items() if site not in away}
        return super().ask(there, timeout) | {site: Fault("absent") for site in away}


def counted_answers(events: list[dict[str, Any]]) -> dict[int, tuple[int, set[str]]]:
    """For each round the last attempt at it that was closed, and whose answers counted."""
    asked: dict[tuple[int, int], set[str]] = {}
    closed: dict[int, int] = {}
    for event in events:
        key = (event.get("round", -1), event.get("attempt", -1))
        if event["event"] == "opened":
            asked[key] = set(event["sites"])
        elif event["event"] == "left_out" and event.get("phase") == "work":
            asked.get(key, set()).discard(event["site"])
        elif event["event"] == "closed":
            closed[key[0]] = key[1]
    return {k: (attempt, asked[k, attempt]) for k, attempt in closed.items()}


def calm_run(root: Path, name: str, sites: Mapping[str, Path], server: Path, counted: Any, seed: int = SEED) -> Path:
    """The same federation in one process, from fresh copies of the folders."""
    from headstart.deploy.running import serve

    copy = root / name
    places = {}
    for site, path in sites.items():
        places[site] = copy / site
        shutil.copytree(path, places[site], ignore=shutil.ignore_patterns("state", "flower", "logs", "*.sock", "model"))
    (copy / "server").mkdir()
    for file in ("experiment.toml", "deploy.toml", "roster.toml"):
        shutil.copy2(server / file, copy / "server" / file)
    experiment = copy / "server" / "experiment.toml"
    said, told = f"seed = {SEED}\n", f"seed = {seed}\n"
    assert said in experiment.read_text()
    experiment.write_text(experiment.read_text().replace(said, told))
    serve(copy / "server", Calm(places, counted))
    return copy


def memories(server: Path, sites: Mapping[str, Path]) -> dict[str, dict[str, np.ndarray]]:
    """What each site's clients remember as of the last answer that the server has counted."""
    from headstart.simulate.files import read_arrays

    last = {
        site: str(Tag(k, attempt, "work"))
        for k, (attempt, names) in sorted(counted_answers(read_events(server)).items())
        for site in names
    }
    files = {site: next(sites[site].glob(f"state/*/{METHOD}/{tag}.safetensors")) for site, tag in last.items()}
    return {site: read_arrays(file)[0] for site, file in files.items()}


def largest_difference(a: Mapping[str, np.ndarray], b: Mapping[str, np.ndarray]) -> float:
    """Over all arrays, by the largest number there is."""
    assert set(a) == set(b), sorted(set(a) ^ set(b))[:5]
    largest = max(float(np.abs(array.astype(np.float64)).max()) for array in a.values())
    return max(float(np.abs(a[name].astype(np.float64) - b[name]).max()) for name in a) / largest


def model(run: Path) -> dict[str, np.ndarray]:
    from headstart.simulate.files import read_arrays

    return read_arrays(run / METHOD / "model.safetensors")[0]


def score(run: Path) -> float:
    """Mean accuracy after one step, at the end."""
    table = pq.read_table(run / METHOD / "clients.parquet").to_pylist()
    last = max(row["round"] for row in table)
    return float(np.mean([row["accuracy"] for row in table if row["round"] == last and row["steps"] == 1]))


def within_noise(score: float, others: Sequence[float], level: float = 0.99) -> tuple[bool, float]:
    """Whether a score could be one more of the others, and how far from their mean it may be for that."""
    n = len(others)
    margin = stats.t.ppf((1 + level) / 2, n - 1) * np.std(others, ddof=1) * math.sqrt(1 + 1 / n)
    return abs(score - np.mean(others)) <= margin, float(margin)
