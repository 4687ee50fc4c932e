"""Human activity recognition with smartphones: 30 people, a federation by nature."""

import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

import numpy as np

from headstart.data.samples import Samples
from headstart.data.sources.formats import members, npz, reading
from headstart.data.sources.locate import contents
from headstart.data.sources.source import Form, Remote, Source

__all__ = ["HAR", "har"]

ACTIVITIES = ("WALKING", "WALKING_UPSTAIRS", "WALKING_DOWNSTAIRS", "SITTING", "STANDING", "LAYING")
"""The basic ones, 1 to 6 in the recordings; 7 to 12 are the moves from one posture to another."""
WINDOW, STEP = 128, 64
RECORDING = re.compile(r"(?:^|/)(acc|gyro)_exp(\d+)_user(\d+)\.txt$")
LABELS = re.compile(r"(?:^|/)labels\.txt$")
ARCHIVES = (
    "smartphone+based+recognition+of+human+activities+and+postural+transitions.zip",
    "HAPT Data Set.zip",
)


@dataclass(frozen=True)
class _Windows:
    x: np.ndarray
    y: np.ndarray
    person: np.ndarray
    experiment: np.ndarray
    segment: np.ndarray
    activities: tuple[str, ...] = ACTIVITIES


def har(folder: str | Path | None = None) -> Samples:
    """Windows of 2.56 s of a phone's accelerometer (g, 3 axes) and gyroscope (rad/s, 3 axes) at 50 Hz, 6 activities.

    Columns: ``person`` (1 to 30), ``experiment``, and ``segment``. Windows of a segment overlap by half, so a segment
    must not be split between training and testing.
    """
    data = contents(HAR, folder)
    columns = {"person": data.person, "experiment": data.experiment, "segment": data.segment}
    return Samples(
        "har",
        data.x,
        data.y.astype(np.int32),
        data.activities,
        columns={name: values.astype(np.int32) for name, values in columns.items()},
        source=HAR.origin,
    )


def _read_npz(folder: Path) -> _Windows:
    path = folder / "har.npz"
    arrays = npz(path, "x", "y", "subject", "exp", "segment", "activities")
    activities = tuple(map(str, arrays["activities"]))
    return _Windows(arrays["x"], arrays["y"], arrays["subject"], arrays["exp"], arrays["segment"], activities)


def _read_recordings(location: str, folder: Path) -> _Windows:
    """The raw recordings: a file of three columns a sensor and experiment, and a table of labelled stretches."""
    path = folder / location
    signals: dict[tuple[str, int], np.ndarray] = {}
    labels = None
    with reading(path):
        for name, stream in members(path, lambda name: bool(RECORDING.search(name) or LABELS.search(name))):
            with reading(path / name):
                if found := RECORDING.search(name):
                    signals[found[1], int(found[2])] = _table(stream, 3).astype(np.float32)
                else:
                    labels = _table(stream, 5).astype(np.int64)
        if labels is None:
            raise ValueError("it lacks labels.txt")
        lost = [f"{s}_exp{e:02d}" for e in np.unique(labels[:, 0]) for s in ("acc", "gyro") if (s, e) not in signals]
        if lost:
            raise ValueError(f"it lacks the recordings {', '.join(lost)}")
        return _cut(signals, labels)


def _table(stream: IO[bytes], columns: int) -> np.ndarray:
    values = np.loadtxt(stream, ndmin=2)
    if values.shape[1] != columns:
        raise ValueError(f"it has {values.shape[1]} columns and not {columns}")
    return values


def _cut(signals: dict[tuple[str, int], np.ndarray], labels: np.ndarray) -> _Windows:
    """Windows of each stretch of a basic activity; the table counts samples from 1 and includes the last."""
    windows, facts = [], []
    for segment, (experiment, person, activity, first, last) in enumerate(labels.tolist()):
        if activity > len(ACTIVITIES):
            continue
        sensors = [signals[sensor, experiment] for sensor in ("acc", "gyro")]
        if not 1 <= first <= last <= min(map(len, sensors)):
            raise ValueError(
                f"row {segment + 1} of labels.txt names samples {first} to {last}, which were not recorded"
            )
        stretch = np.concatenate([sensor[first - 1 : last] for sensor in sensors], axis=1)
        starts = range(0, len(stretch) - WINDOW + 1, STEP)
        windows += [stretch[start : start + WINDOW] for start in starts]
        facts += [(activity - 1, person, experiment, segment)] * len(starts)
    if not windows:
        raise ValueError(f"no labelled stretch has {WINDOW} samples")
    return _Windows(np.stack(windows), *np.array(facts).T)


HAR = Source(
    "har",
    har,
    "smartphone recordings of 6 activities by 30 people, windows of 128 x 6",
    "Reyes-Ortiz, Oneto, Sama, Parra, Anguita: Transition-aware human activity recognition using smartphones, "
    "Neurocomputing 2016; UCI Machine Learning Repository, data set 341.",
    "CC BY 4.0 at UCI; the authors' own note allows no commercial use",
    (
        Form(("har.npz",), _read_npz),
        Form(("labels.txt", "acc_exp01_user01.txt"), partial(_read_recordings, "")),
        *(Form((archive,), partial(_read_recordings, archive)) for archive in ARCHIVES),
    ),
    ("RawData", "HAPT Data Set/RawData", "har/RawData", "har/HAPT Data Set/RawData"),
    (
        # The repository publishes no checksum; this is the one that several independent users of the file record.
        Remote(
            ARCHIVES[0],
            (f"https://archive.ics.uci.edu/static/public/341/{ARCHIVES[0]}",),
            "sha256:4ac4ae064227c07045a99551876b54d204837e995e298b6488559e209b3deb09",
            79_596_192,
        ),
    ),
)
