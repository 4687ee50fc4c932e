"""Records of runs that never were, of any size."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headstart.experiment.record import FORMAT
from headstart.metrics import METRICS, Metric
from headstart.simulate import summarize
from headstart.simulate.evaluate import keeping

VERSIONS = {"python": "3.11", "headstart": "0.1.0"}


def write_run(
    path: Path,
    *,
    clients: int = 40,
    held_out: int = 10,
    methods: Sequence[str] = ("per-fedavg", "fedavg"),
    steps: Sequence[int] = (0, 1, 5),
    evaluations: int = 6,
    rounds: int = 50,
    metric: str = "accuracy",
    seed: int = 0,
    names: Sequence[str] | None = None,
    done: bool = True,
    privacy: dict[str, Any] | None = None,
    config: dict[str, Any] | None = None,
    data: str = "none",
    kept: Sequence[int] | None = None,
) -> Path:
    """A run whose later methods are worse; scores rise with rounds and steps, and some clients lose by adapting.

    ``kept`` are the methods' best rounds. Then a third of the clients held out are for validation, and the others are
    looked at in that round alone.
    """
    rng = np.random.default_rng(seed)
    config = config or {
        "seed": seed,
        "data": {"name": "own", "python": "made.up"},
        "algorithm": {"name": methods[0]},
        "baselines": {name: {"name": name} for name in methods[1:]},
        "train": {"rounds": rounds, "cohort": 0.2},
        "evaluate": {"steps": list(steps)},
    }
    path.mkdir(parents=True)
    manifest = {
        "format": FORMAT, "created": "2026-01-01T00:00:00+00:00", "versions": VERSIONS, "methods": list(methods),
        "data": data, "privacy": privacy, "config": config,
    }  # fmt: skip
    (path / "run.json").write_text(json.dumps(manifest))
    called = np.array([f"client-{i}" for i in range(clients)] if names is None else names)
    talent, adapts = rng.normal(size=clients), rng.normal(0.4, 0.4, size=clients)
    chosen = METRICS[metric]
    for place, label in enumerate(methods):
        table = _scores(rng, place, called, held_out, talent, adapts, steps, evaluations, rounds, chosen)
        if kept is not None:
            chooses = np.isin(table["client"].to_numpy(zero_copy_only=False), called[clients - held_out // 3 :])
            new = table["held_out"].to_numpy(zero_copy_only=False) & ~chooses
            table = table.add_column(3, "validation", pa.array(chooses))
            table = table.filter(pa.array(~new | (table["round"].to_numpy() == kept[place])))
        folder = path / label
        folder.mkdir()
        if done:
            pq.write_table(_history(rng, place, rounds), folder / "rounds.parquet")
            pq.write_table(table, folder / "clients.parquet")
            summary = summarize(table, [METRICS["loss"], chosen])
            pq.write_table(summary if kept is None else keeping(summary, kept[place]), folder / "summary.parquet")
            (folder / "model.json").write_text("{}")
        else:
            for name, part in (("rounds", _history(rng, place, rounds)), ("clients", table)):
                (folder / name).mkdir()
                pq.write_table(part, folder / name / f"{rounds:09d}.parquet")
    return path


def _scores(
    rng: np.random.Generator, place: int, called: np.ndarray, held_out: int, talent: np.ndarray, adapts: np.ndarray,
    steps: Sequence[int], evaluations: int, rounds: int, metric: Metric,
) -> pa.Table:  # fmt: skip
    clients, parts = len(called), []
    for round_ in np.linspace(0, rounds, evaluations).astype(int):
        for n in steps:
            good = 2.5 * round_ / rounds - 0.3 * place + talent + adapts * np.log1p(n) + 0.05 * rng.normal(size=clients)
            share = 1 / (1 + np.exp(-good))
            parts.append(
                pa.table(
                    {
                        "round": np.full(clients, round_),
                        "client": called,
                        "held_out": np.arange(clients) >= clients - held_out,
                        "steps": np.full(clients, n),
                        metric.name: share if metric.higher_is_better else 1 - share,
                        "loss": -np.log(share),
                    }
                )
            )
    return pa.concat_tables(parts)


def _history(rng: np.random.Generator, place: int, rounds: int) -> pa.Table:
    return pa.table(
        {
            "round": np.arange(rounds),
            "loss": 2 * np.exp(-np.arange(rounds) / rounds) + 0.02 * rng.normal(size=rounds),
            "gradients": np.full(rounds, 80 * (1 + place)),
            "products": np.full(rounds, 40),
            "samples": np.full(rounds, 800 * (1 + place)),
            "bytes_up": np.full(rounds, 500_000),
            "bytes_down": np.full(rounds, 500_000),
            "seconds": np.full(rounds, 0.01),
        }
    )
