"""A sweep while it goes on, from the folder of its checkpoints: algorithms that differ in numbers, each with seeds."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headstart.metrics import LOSS, METRICS, Metric
from headstart.report.page.charts import figure, lines, round_numbers
from headstart.report.page.document import Block, Column, Document, Figure, Section, Table
from headstart.report.page.sentences import steps_words, value
from headstart.simulate import FolderJournal
from headstart.simulate.ensemble import MEASURED
from headstart.simulate.evaluate import in_group

__all__ = ["is_sweep", "sweep_document"]

NOT_METRICS = frozenset({"round", "client", "held_out", "validation", "steps", "run", "algorithm", "seed"})
DRAWN = 12
"""Algorithms that have a line; of more, the best."""


def is_sweep(path: Path) -> bool:
    """Whether a folder is what `headstart.simulate.sweep` goes on from, and no run's."""
    return not (path / "run.json").exists() and any((path / "clients").glob("[0-9]*.parquet"))


def sweep_document(path: Path) -> Document:
    """Every algorithm's mean over clients and seeds, by round, from what is written by now."""
    _, table = FolderJournal(path, keep=1).tables()
    assert table is not None
    metric = _headline(table)
    steps = int(pc.max(table["steps"]).as_py())
    rounds, scores = _means(table, metric, steps)
    last = scores[-1]
    order = np.argsort(np.nan_to_num((-1 if metric.higher_is_better else 1) * last.mean(axis=1), nan=np.inf))
    titles = [f"algorithm {i}" for i in range(len(last))]
    best = order[0]
    score = value(metric, float(last[best].mean()))
    blocks: list[Block] = [_curves(metric, rounds, scores, order, titles), _standing(metric, last, order, titles)]
    return Document(
        title=f"A sweep of {len(last)} algorithms with {last.shape[1]} seeds",
        about=str(path),
        sentences=[
            f"After round {rounds[-1]:,}, {titles[best]} is ahead: mean {metric.name} {score} after "
            f"{steps_words(steps)}, over {last.shape[1]} seeds and {_judged(table)} clients."
        ],
        sections=[Section("sweep", "The sweep", blocks)],
        warnings=["The sweep is going on. Algorithms are numbered from 0 in the order in which they were given."],
    )


def _headline(table: pa.Table) -> Metric:
    """The first metric of the catalogue that was measured, for a table has its columns by name; else one's own."""
    names = [name for name in table.column_names if name not in NOT_METRICS and not name.startswith(MEASURED)]
    listed = [name for name in [*METRICS, *names] if name in names and name != LOSS.name]
    chosen = listed[0] if listed else LOSS.name
    return METRICS.get(chosen, Metric(chosen))


def _chosen(table: pa.Table) -> np.ndarray:
    """Rows of new clients, or all where there are none."""
    held_out, validation = (
        table[name].to_numpy(zero_copy_only=False) if name in table.column_names else np.zeros(len(table), bool)
        for name in ("held_out", "validation")
    )
    new = in_group("new", held_out, validation)
    return new if new.any() else np.ones(len(table), bool)


def _judged(table: pa.Table) -> int:
    return len(pc.unique(table.filter(pa.array(_chosen(table)))["client"]))


def _means(table: pa.Table, metric: Metric, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """The rounds evaluated, and the mean over judged clients by round, algorithm and seed."""
    rows = table.filter(pa.array(_chosen(table) & (table["steps"].to_numpy() == steps)))
    grouped = rows.group_by(["round", "algorithm", "seed"]).aggregate([(metric.name, "mean")])
    columns = {name: grouped[name].to_numpy() for name in ("round", "algorithm", "seed")}
    rounds, at = np.unique(columns["round"], return_inverse=True)
    _, point = np.unique(columns["algorithm"], return_inverse=True)
    _, seed = np.unique(columns["seed"], return_inverse=True)
    means = np.full((len(rounds), point.max() + 1, seed.max() + 1), np.nan)
    means[at, point, seed] = grouped[f"{metric.name}_mean"].to_numpy()
    return rounds, means


def _curves(metric: Metric, rounds: np.ndarray, scores: np.ndarray, order: np.ndarray, titles: list[str]) -> Figure:
    rows: dict[str, list[Any]] = {"method": [], "round": [], "mean": []}
    for place in order[:DRAWN]:
        rows["method"] += [titles[place]] * len(rounds)
        rows["round"] += rounds.tolist()
        rows["mean"] += round_numbers(metric.scale * scores[:, place].mean(axis=1))
    drawn = [titles[place] for place in order[:DRAWN]]
    said = "; ".join(f"{titles[i]} {value(metric, float(scores[-1, i].mean()))}" for i in order[:DRAWN])
    chart = lines("round", "communication round", "mean", f"mean {metric.title}", order=drawn, whole=True)
    few = "" if len(titles) <= DRAWN else f" Of {len(titles)} algorithms, the best {DRAWN} are drawn."
    return figure(
        "sweep",
        f"Mean {metric.name} by round",
        f"Means over judged clients and seeds; a line ends where a seed has diverged.{few}",
        f"Lines, now at: {said}.",
        chart,
        rows=rows,
    )


def _standing(metric: Metric, last: np.ndarray, order: np.ndarray, titles: list[str]) -> Table:
    rows = [
        [
            titles[i], metric.show(float(last[i].mean())),
            metric.show(float(last[i].std(ddof=1)), beside=float(last[i].mean())) if last.shape[1] > 1 else "none",
        ]
        for i in order
    ]  # fmt: skip
    columns = [Column("algorithm"), Column(f"mean {metric.title}", True), Column("deviation over seeds", True)]
    return Table("standing", "Standing", columns, rows)
