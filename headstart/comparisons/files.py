"""A comparison as one small file, from which its report can be made again."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from headstart.comparisons.budget import Spent
from headstart.comparisons.entries import Comparison, Entry
from headstart.errors import UsageError
from headstart.metrics import Metric
from headstart.simulate.files import write_bytes

__all__ = ["load_comparison", "save_comparison"]

FORMAT = 1
DIGITS = 5
"""Significant digits of a score: more than any report shows."""


def save_comparison(comparison: Comparison, path: str | Path) -> None:
    """Write a comparison as JSON: every method's settings, and its score for every seed, number of steps and client."""
    content = {
        "format": FORMAT,
        "data": comparison.data,
        "at": comparison.at,
        "metric": comparison.metric.description(),
        "methods": [_plain(entry) for entry in comparison.entries],
    }
    text = json.dumps(content, default=str)
    # One method per line, so that a change of one is a change of its line.
    text = text.replace('"methods": [{', '"methods": [\n{').replace('}, {"title"', '},\n{"title"')
    write_bytes(Path(path), f"{text}\n".encode())


def load_comparison(path: str | Path) -> Comparison:
    """Read a comparison that `save_comparison` has written."""
    path = Path(path)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] != FORMAT:
            raise UsageError(f"{path} is of format {content['format']}.", f"This version reads format {FORMAT}.")
        metric = Metric(**content["metric"])
        entries = [_entry(plain) for plain in content["methods"]]
        return Comparison(metric, entries, content["at"], data=content["data"])
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.", "Name another file.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"{path} is not the file of a comparison.", "Make one: headstart compare --out it.json."
        ) from error


def _plain(entry: Entry) -> dict[str, Any]:
    return {
        "title": entry.title,
        "settings": entry.settings,
        "seeds": entry.seeds,
        "steps": entry.steps,
        "spent": entry.spent,
        "clients": entry.clients.tolist(),
        "new": entry.new.astype(int).tolist(),
        "scores": _rounded(entry.scores),
        "rounds": entry.rounds.tolist(),
        "curve": _rounded(entry.curve),
    }


def _entry(plain: Mapping[str, Any]) -> Entry:
    return Entry(
        title=plain["title"],
        settings=plain["settings"],
        seeds=tuple(plain["seeds"]),
        clients=np.array(plain["clients"]),
        new=np.array(plain["new"], bool),
        steps=tuple(plain["steps"]),
        scores=np.array(plain["scores"], np.float64),  # None becomes NaN
        spent=Spent(*plain["spent"]),
        rounds=np.array(plain["rounds"]),
        curve=np.array(plain["curve"], np.float64),
    )


def _rounded(values: np.ndarray) -> Any:
    """Nested lists of numbers; ``None`` where there is none."""
    if values.ndim:
        return [_rounded(part) for part in values]
    return float(f"{values:.{DIGITS}g}") if np.isfinite(values) else None
