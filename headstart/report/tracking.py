"""Runs written to TensorBoard and to MLflow while they train; the ``track`` extra installs what both need.

Metrics of rounds are called ``train/loss`` and so on, means over clients ``held-out/accuracy/steps-1``; the step
is the number of rounds done. Every run of a sweep is a run there too.

    hs.train(..., callbacks=[Tracking(TensorBoard("events")), Tracking(MLflow("sines", settings={"lr": 0.1}))])
"""

import importlib
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from headstart.errors import UsageError
from headstart.simulate import Callback, Evaluated, Progress
from headstart.simulate.callbacks import Run

__all__ = ["MLflow", "Sink", "TensorBoard", "Tracking"]

NOT_METRICS = ("round", "run", "client", "held_out", "validation", "steps", "algorithm", "seed")
MOST_AT_ONCE = 1000
"""How many metrics MLflow takes in one request."""

Ending = Literal["FINISHED", "FAILED", "KILLED"]


class Sink(ABC):
    """Where numbers go."""

    @abstractmethod
    def open(self, rounds: int) -> None:
        """A run of so many rounds begins, or several together."""

    @abstractmethod
    def log(self, run: int | None, step: int, values: Mapping[str, float]) -> None:
        """The numbers of a run after so many rounds; ``None`` for the only one."""

    @abstractmethod
    def flush(self) -> None:
        """Write what was logged."""

    @abstractmethod
    def close(self, ending: Ending, stopped: str | None = None) -> None:
        """There is nothing more to come; ``stopped`` says why a callback ended the run."""


class Tracking(Callback):
    """Hands every number of a run on to a sink, as it appears."""

    def __init__(self, sink: Sink):
        self.sink = sink

    def on_start(self, run: Run, rounds: int) -> None:
        self.sink.open(rounds)

    def on_chunk(self, progress: Progress) -> None:
        """Every metric of every round."""
        for run, table in _runs(progress.table):
            names = [name for name in table.column_names if name not in NOT_METRICS]
            columns = [table[name].to_pylist() for name in names]
            for round_, *values in zip(table["round"].to_pylist(), *columns, strict=True):
                self.sink.log(run, round_ + 1, {f"train/{name}": v for name, v in zip(names, values, strict=True)})
        self.sink.flush()

    def on_evaluation(self, evaluated: Evaluated) -> None:
        """Every metric's mean over all clients, and over those held out."""
        for run, table in _runs(evaluated.table):
            self.sink.log(run, evaluated.round, dict(_means(evaluated._replace(table=table))))
        self.sink.flush()

    def on_end(self, result: Any) -> None:
        self.sink.close("FINISHED", result.stopped)

    def on_error(self, error: BaseException) -> None:
        self.sink.close("KILLED" if isinstance(error, KeyboardInterrupt) else "FAILED")


class TensorBoard(Sink):
    """Event files in a folder, for ``tensorboard --logdir FOLDER``; every run of a sweep has a folder of its own."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        self._writers: dict[int | None, Any] = {}

    def open(self, rounds: int) -> None:
        _module("tensorboardX")

    def log(self, run: int | None, step: int, values: Mapping[str, float]) -> None:
        if run not in self._writers:
            folder = self.folder if run is None else self.folder / f"run{run}"
            self._writers[run] = _module("tensorboardX").SummaryWriter(str(folder))
        for name, value in values.items():
            self._writers[run].add_scalar(name, value, step)

    def flush(self) -> None:
        for writer in self._writers.values():
            writer.flush()

    def close(self, ending: Ending, stopped: str | None = None) -> None:
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()


class MLflow(Sink):
    """Runs of an MLflow experiment.

    ``tracking_uri`` is a server's address or whatever else MLflow takes; left out, MLflow's own setting counts.
    ``settings`` are kept as the runs' parameters, and ``name`` is what they are called.
    """

    def __init__(
        self,
        experiment: str,
        *,
        name: str | None = None,
        settings: Mapping[str, Any] | None = None,
        tracking_uri: str | None = None,
    ):
        self.experiment, self.name, self.tracking_uri = experiment, name, tracking_uri
        self.settings = dict(settings or {})
        self._client: Any = None
        self._runs: dict[int | None, str] = {}
        self._logged: dict[int | None, list[Any]] = {}

    def open(self, rounds: int) -> None:
        mlflow = _module("mlflow")
        self.settings["rounds"] = rounds
        try:
            self._client = mlflow.MlflowClient(self.tracking_uri)
            found = self._client.get_experiment_by_name(self.experiment)
            self._id = self._client.create_experiment(self.experiment) if found is None else found.experiment_id
        except mlflow.exceptions.MlflowException as error:
            raise UsageError(f"MLflow refuses to begin: {error}", "Give another tracking_uri.") from error

    def log(self, run: int | None, step: int, values: Mapping[str, float]) -> None:
        metric, now = _module("mlflow.entities").Metric, round(1000 * time.time())
        logged = self._logged.setdefault(run, [])
        logged += [metric(name, value, now, step) for name, value in values.items()]

    def flush(self) -> None:
        for run, logged in self._logged.items():
            for start in range(0, len(logged), MOST_AT_ONCE):
                self._client.log_batch(self._run_id(run), metrics=logged[start : start + MOST_AT_ONCE])
            logged.clear()

    def close(self, ending: Ending, stopped: str | None = None) -> None:
        for run_id in self._runs.values():
            if stopped is not None:
                self._client.set_tag(run_id, "stopped", stopped)
            self._client.set_terminated(run_id, ending)
        self._runs.clear()

    def _run_id(self, run: int | None) -> str:
        if run not in self._runs:
            name = self.name if run is None else f"{self.name or 'run'}-{run}"
            self._runs[run] = self._client.create_run(self._id, run_name=name).info.run_id
            for key, value in self.settings.items():
                self._client.log_param(self._runs[run], key, value)
        return self._runs[run]


def _runs(table: pa.Table) -> Iterator[tuple[int | None, pa.Table]]:
    """The rows of each run; all of them as those of ``None`` where there is only one."""
    if "run" not in table.column_names:
        yield None, table
        return
    for run in sorted(set(table["run"].to_pylist())):
        yield run, table.filter(pc.equal(table["run"], run))


def _means(evaluated: Evaluated) -> Iterator[tuple[str, float]]:
    table = evaluated.table
    groups = ["all", "held-out"] if any(table["held_out"].to_pylist()) else ["all"]
    groups += ["validation", "new"] if "validation" in table.column_names else []
    for steps in sorted(set(table["steps"].to_pylist())):
        for group in groups:
            for metric in table.column_names:
                if metric not in NOT_METRICS:
                    yield f"{group}/{metric}/steps-{steps}", evaluated.mean(metric, steps, group)


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UsageError(f"{name} is not installed.", "Install it with: pip install 'headstart[track]'.") from error
