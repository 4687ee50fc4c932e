"""What the units of an experiment found, read from their files and put together."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from headstart.errors import UsageError
from headstart_papers.record import PaperExperiment, Profile, Score, Unit

__all__ = ["DIVERGED", "Cell", "Results", "load"]

DIVERGED = 10.0
"""A score that is to be low has diverged above so many times what it was before training."""


@dataclass(frozen=True)
class Cell:
    """A method in a row, at the best point of its grid; values are in the units shown."""

    row: str
    method: str
    scores: Mapping[str, Score]
    tuned_by: Score
    files: tuple[Mapping[str, Any], ...]
    """What the units' files say, in the order of their seeds."""

    @property
    def seeds(self) -> tuple[int, ...]:
        """In the order of all arrays of this cell."""
        return tuple(seed for file in self.files for seed in file["seeds"])

    @property
    def points(self) -> list[dict[str, Any]]:
        """The settings that were tried."""
        points: list[dict[str, Any]] = self.files[0]["points"]
        return points

    @cached_property
    def chosen(self) -> int:
        """The number of the best point: of those that diverged with the fewest seeds, the one with the best mean."""
        if len(self.points) == 1:
            return 0
        sign = 1 if self.tuned_by.higher_is_better else -1
        values = self._sound("final", self.tuned_by.id)

        def merit(point: int) -> tuple[int, float]:
            finite = values[point][np.isfinite(values[point])]
            return finite.size, sign * float(finite.mean()) if finite.size else -np.inf

        return max(range(len(self.points)), key=merit)

    @property
    def point(self) -> dict[str, Any]:
        """The settings of the grid that were chosen; empty where there is no grid."""
        return self.points[self.chosen]

    @property
    def points_table(self) -> list[tuple[dict[str, Any], float]]:
        """Every point of the grid with the mean over seeds of what it is chosen by; NaN if a seed diverged."""
        values = self.tuned_by.scale * self._sound("final", self.tuned_by.id)
        return list(zip(self.points, values.mean(axis=1).tolist(), strict=True))

    def final(self, score: str) -> np.ndarray:
        """One number per seed, or per repetition where the score is an extra; NaN where a run diverged."""
        asked = self.scores[score]
        if asked.extra:
            return asked.scale * np.concatenate([np.array(file["extras"][asked.metric], float) for file in self.files])
        return np.asarray(asked.scale * self._sound("final", score)[self.chosen])

    def curve(self, score: str) -> np.ndarray:
        """One row per seed, one column per evaluation; NaN where a run had diverged."""
        return np.asarray(self.scores[score].scale * self._sound("curves", score)[self.chosen])

    def seconds(self) -> np.ndarray:
        """One row per seed: how long a run had trained at every evaluation, its share where it ran with others."""
        rows = []
        for file in self.files:
            share = np.array(file["seconds"], float) / (len(file["points"]) * len(file["seeds"]))
            rows += [share] * len(file["seeds"])
        return np.array(rows)

    def x(self, kind: Literal["round", "samples", "seconds"]) -> np.ndarray:
        """When it was evaluated: in rounds, in samples drawn so far, or in seconds a run had trained on average."""
        if kind == "seconds":
            return np.mean(
                [np.array(file["seconds"], float) / (len(file["points"]) * len(file["seeds"])) for file in self.files],
                axis=0,
            )
        return np.array(self.files[0]["evaluated" if kind == "round" else "samples"], float)

    @property
    def rounds(self) -> int:
        """How many it was trained for."""
        return int(self.files[0]["rounds"])

    @property
    def extras(self) -> Mapping[str, Any]:
        """Of the first unit."""
        extras: Mapping[str, Any] = self.files[0]["extras"]
        return extras

    @property
    def took(self) -> float:
        """Seconds in all, of compiling and evaluating too."""
        return float(sum(file["took"] for file in self.files))

    def _sound(self, kind: str, score: str) -> np.ndarray:
        """As `_joined`, but NaN where a score that is to be low is far above what it was before training."""
        values = self._joined(kind, score)
        if self.scores[score].higher_is_better:
            return values
        start = np.nan_to_num(self._joined("curves", score)[..., 0])
        usual = np.median(start, axis=1).reshape(-1, *[1] * (values.ndim - 1))
        bound = np.where(usual > 0, DIVERGED * usual, np.inf)
        with np.errstate(invalid="ignore"):
            return np.asarray(np.where(values > bound, np.nan, values))

    def _joined(self, kind: str, score: str) -> np.ndarray:
        """Points by seeds (by evaluations)."""
        return np.concatenate([np.array(file[kind][score], float) for file in self.files], axis=1)


@dataclass(frozen=True)
class Results:
    """All that has been found so far for an experiment."""

    experiment: PaperExperiment
    profile: Profile
    cells: Mapping[tuple[str, str], Cell]
    wanted: Mapping[tuple[str, str], tuple[int, ...]]
    """The seeds that were asked for, by row and method."""
    stale: tuple[str, ...]
    """Files of other settings or another profile, which were not used."""

    def cell(self, row: str, method: str) -> Cell | None:
        """What a method did in a row, if there is anything."""
        return self.cells.get((row, method))

    @property
    def missing(self) -> dict[tuple[str, str], tuple[int, ...]]:
        """The seeds that have no result yet, by row and method."""
        return {key: left for key, seeds in self.wanted.items() if (left := self._left(key, seeds))}

    def _left(self, key: tuple[str, str], seeds: Sequence[int]) -> tuple[int, ...]:
        have = self.cells[key].seeds if key in self.cells else ()
        return tuple(seed for seed in seeds if seed not in have)

    @property
    def progress(self) -> tuple[int, int]:
        """Runs of a seed that have results, and runs asked for."""
        asked = sum(map(len, self.wanted.values()))
        return asked - sum(map(len, self.missing.values())), asked

    @property
    def files(self) -> list[Mapping[str, Any]]:
        """What all units' files say."""
        return [file for cell in self.cells.values() for file in cell.files]

    @property
    def took(self) -> float:
        """Seconds of computing, summed over units."""
        return sum(cell.took for cell in self.cells.values())

    @property
    def data(self) -> list[Mapping[str, Any]]:
        """What units' files say of their data: its name and digest, and in what it is a subset."""
        return [file["data"] for file in self.files if "data" in file]

    @property
    def commits(self) -> tuple[str, ...]:
        """The versions of the code that units ran with."""
        return tuple(sorted({str(file["commit"]) for file in self.files if file.get("commit")}))

    @property
    def versions(self) -> dict[str, tuple[str, ...]]:
        """The versions of libraries that units ran with."""
        found: dict[str, set[str]] = {}
        for file in self.files:
            for name, version in file.get("versions", {}).items():
                found.setdefault(name, set()).add(str(version))
        return {name: tuple(sorted(versions)) for name, versions in sorted(found.items())}

    @property
    def wall_clock(self) -> float | None:
        """Seconds in which at least one unit was being computed; ``None`` where a file does not say when."""
        ends = [file.get("finished") for file in self.files]
        if not ends or not all(ends):
            return None
        stretches = sorted(
            (end - file["took"], end)
            for file, end in zip(
                self.files, (datetime.fromisoformat(str(end)).timestamp() for end in ends), strict=True
            )
        )
        total, reached = 0.0, -np.inf
        for began, ended in stretches:
            total += max(0.0, ended - max(began, reached))
            reached = max(reached, ended)
        return float(total)


def load(experiment: PaperExperiment, folder: Path, profile: Profile, seeds: int | None = None) -> Results:
    """Read the results below ``folder`` that belong to this experiment and profile, however many seeds there are.

    ``seeds`` is how many were asked for, if not the profile's own number: it decides only what is said to be missing.
    """
    wanted: dict[tuple[str, str], tuple[int, ...]] = {}
    for unit in experiment.units(profile, seeds):
        key = (unit.row, unit.method)
        wanted[key] = (*wanted.get(key, ()), *unit.seeds)
    fingerprints = _Fingerprints(experiment, profile)
    found: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    stale = []
    for path in sorted((folder / experiment.id).glob("*.json")):
        file = _read(path)
        if file["fingerprint"] == fingerprints.of(file["row"], file["method"], tuple(file["seeds"])):
            found.setdefault((file["row"], file["method"]), []).append(file)
        else:
            stale.append(path.stem)
    # Where nothing is said to be tuned by there is usually no grid.
    tuned_by = experiment.scores[experiment.tune or next(iter(experiment.scores))]
    cells = {}
    for key in wanted:
        if key in found:
            cells[key] = Cell(*key, experiment.scores, tuned_by, _disjoint(found[key]))
    return Results(experiment, profile, cells, wanted, tuple(stale))


class _Fingerprints:
    """What the files of a profile must say, for any number of seeds."""

    def __init__(self, experiment: PaperExperiment, profile: Profile):
        self.experiment, self.profile = experiment, profile
        self._units: dict[int, dict[tuple[str, str, tuple[int, ...]], Unit]] = {}

    def of(self, row: str, method: str, seeds: tuple[int, ...]) -> str | None:
        count = max(seeds) + 1
        if count not in self._units:
            units = self.experiment.units(self.profile, count)
            self._units[count] = {(unit.row, unit.method, unit.seeds): unit for unit in units}
        unit = self._units[count].get((row, method, seeds))
        return None if unit is None else unit.fingerprint


def _disjoint(files: list[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    """Files in the order of seeds; of two that have a seed in common, the one with more of them."""
    kept: list[Mapping[str, Any]] = []
    for file in sorted(files, key=lambda file: -len(file["seeds"])):
        if not any(set(file["seeds"]) & set(other["seeds"]) for other in kept):
            kept.append(file)
    return tuple(sorted(kept, key=lambda file: file["seeds"][0]))


def _read(path: Path) -> dict[str, Any]:
    try:
        file = json.loads(path.read_text())
    except ValueError as error:
        raise UsageError(f"{path} is not a result: {error}.", "Delete it; the unit is then run again.") from error
    if not isinstance(file, dict) or not {"fingerprint", "row", "method", "seeds", "final"} <= file.keys():
        raise UsageError(f"{path} is not the result of a unit.", "Move it elsewhere.")
    return file
