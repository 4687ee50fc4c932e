"""What a record says while its run goes on: how far each method is, what a search has found, how a sweep does."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc

from headstart.errors import HeadstartError, UsageError
from headstart.experiment import MethodRecord
from headstart.experiment.record import read_manifest
from headstart.report.page.document import Block, Column, Document, Section, Table, Text
from headstart.report.page.making import make_report
from headstart.report.page.reading import NEW, VALIDATION, Evidence, Method, read_evidence
from headstart.report.page.sweeping import is_sweep, sweep_document

__all__ = ["ongoing_document", "record_in"]

RECENT = 200
"""Rounds by which the speed is told."""
PLACES = (".", "run", "server/run")
"""Where a folder may have the record of a run: it is one, or it is a server's, or a whole trial's."""


def record_in(path: Path) -> Path:
    """The run directory that a path means: of a deployed federation, the one in its server's folder."""
    return next((path / place for place in PLACES if (path / place / "run.json").exists()), path)


def ongoing_document(paths: Sequence[Path]) -> Document:
    """The report as the records are now, with how far they have come; what is known so far, where nothing is scored."""
    runs = [record_in(path) for path in paths]
    if len(runs) == 1 and is_sweep(runs[0]):
        return sweep_document(runs[0])
    try:
        document = make_report(runs, with_data=False).document
        progress = _progress(read_evidence(runs))
    except (HeadstartError, OSError) as error:
        # Nothing is there yet, or files are being gathered at this moment: the next look finds them.
        problem = error.problem if isinstance(error, UsageError) else str(error)
        return _waiting(runs, problem)
    sections = document.sections if progress is None else [progress, *document.sections]
    return Document(document.title, document.about, document.sentences, sections, document.warnings)


def _waiting(runs: Sequence[Path], problem: str) -> Document:
    """Before the first evaluation: what a search has found by now."""
    sections = [section for run in runs if (section := _search(run)) is not None]
    sentence = "Settings are being searched." if sections else "There is nothing to show yet."
    return Document("Waiting", ", ".join(map(str, runs)), [sentence], sections, [problem])


def _search(run: Path) -> Section | None:
    """What a search has found for the methods that are done."""
    try:
        config = read_manifest(run)["config"]
    except HeadstartError:
        return None
    if "tune" not in config:
        return None
    columns = [Column("method"), Column("settings"), Column("steps of adaptation", True), Column("score", True)]
    rows = []
    for label in (config["algorithm"]["name"], *config.get("baselines", {})):
        found = _found(run / "tuning" / f"{label}.json")
        if found is None:
            rows.append([label, "not found yet", "none", "none"])
        else:
            settings = ", ".join(f"{name} = {value:.4g}" for name, value in found["settings"].items())
            rows.append([label, settings, str(found["steps"]), f"{found['score']:.4g}"])
    note = "Scores are those of the clients that choose, after a part of the rounds."
    return Section("search", "The search for settings", [Table("search", "Found so far", columns, rows, note)])


def _found(path: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return found


def _progress(evidence: Evidence) -> Section | None:
    """How far each method has come; nothing once all have ended."""
    going = [method for method in evidence.methods if not method.record.done]
    if not going and not evidence.waiting:
        return None
    group = VALIDATION if any((method.roles == VALIDATION).any() for method in evidence.methods) else NEW
    metric = evidence.metric
    columns = [
        Column("method"), Column("round", True), Column("of", True), Column("training loss", True),
        Column(f"{metric.title} of {group} clients", True), Column("rounds/s", True), Column("time left"),
    ]  # fmt: skip
    rows = []
    for method in evidence.methods:
        chosen = method.chosen(group if (method.roles == group).any() else "all")
        score = float(np.mean(method.scores[method.steps[-1]][chosen]))
        rows.append([method.title, *_pace(method), metric.show(score), *_speed(method)])
    rows += [
        [title, "0", str(evidence.methods[0].rounds), "none", "none", "none", "waiting"] for title in evidence.waiting
    ]
    note = "Scores are of the last evaluation. Time left is that of training alone, at the speed of the last rounds."
    blocks: list[Block] = [Table("progress", "How far it is", columns, rows, note)]
    if evidence.waiting:
        blocks.append(Text(f"Methods are trained one after the other; still to come: {', '.join(evidence.waiting)}."))
    return Section("progress", "Progress", blocks)


def _pace(method: Method) -> list[str]:
    history = method.record.history
    if history is None or not len(history):
        return ["0", str(method.rounds), "none"]
    return [str(_rounds_done(method.record)), str(method.rounds), f"{history['loss'][-1].as_py():.4g}"]


def _speed(method: Method) -> list[str]:
    history = method.record.history
    if method.record.done or history is None or "seconds" not in history.column_names or not len(history):
        return ["none", "done" if method.record.done else "none"]
    seconds = history["seconds"].to_numpy()[-RECENT:]
    each = float(np.median(seconds))
    left = (method.rounds - _rounds_done(method.record)) * each
    return [f"{1 / each:.4g}" if each > 0 else "none", _duration(left)]


def _rounds_done(record: MethodRecord) -> int:
    return 0 if record.history is None or not len(record.history) else int(pc.max(record.history["round"]).as_py()) + 1


def _duration(seconds: float) -> str:
    """``40 s``, ``12 min``, ``3 h 20 min``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
