"""The run directory: the one record of a run, and what brings it back after any kind of stop.

    DIR/run.json                           configuration as resolved, versions, methods, a digest of the data, privacy
    DIR/tuning/METHOD.json                 what a search has found for a method, while others are searched
    DIR/METHOD/checkpoints/*.safetensors   state after a chunk, the last few
    DIR/METHOD/rounds/*.parquet            one row per round, one file per chunk while the method trains
    DIR/METHOD/clients/*.parquet           one row per client, one file per evaluation while the method trains
    DIR/METHOD/kept/*.safetensors          state of the best round so far, where that is what is kept
    DIR/METHOD/rounds.parquet, clients.parquet, summary.parquet, model.safetensors, model.json   once it is done

A chunk's tables are written before its checkpoint. Whatever moment a process dies at, the last whole
checkpoint and the tables up to its round are there; later tables are dropped on resuming.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jax
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from filelock import FileLock, Timeout

from headstart.artifact import Predictor, stored_params
from headstart.errors import UsageError
from headstart.simulate import FolderJournal, Result
from headstart.simulate.evaluate import kept_round
from headstart.simulate.files import write_json, write_parquet
from headstart.wire import PrivacySpent

__all__ = ["MethodJournal", "MethodRecord", "RunDirectory", "RunRecord", "load_run", "read_manifest", "versions"]

FORMAT = 2


class RunDirectory:
    """A run directory open for writing; only one process can have it open."""

    def __init__(self, path: Path, lock: FileLock, manifest: dict[str, Any]):
        self.path = path
        self.manifest = manifest
        self._lock = lock

    @classmethod
    def create(
        cls, path: Path, config: dict[str, Any], methods: list[str], data: str, privacy: PrivacySpent | None = None
    ) -> "RunDirectory":
        """Start a new run of some methods in a folder that does not exist yet or is empty.

        ``data`` is the digest by which a change of the data is noticed when the run is resumed. ``privacy`` is what
        each method spends once it is trained to the end.
        """
        if (path / "run.json").exists():
            raise UsageError(
                f"{path} already holds a run.",
                f"Continue it with --resume {path}, or choose another folder with --out.",
            )
        try:
            path.mkdir(parents=True, exist_ok=True)
            if any(entry.name != ".lock" for entry in path.iterdir()):
                raise UsageError(f"{path} is not empty and is not a run.", "Choose another folder with --out.")
            lock = _lock(path)
            manifest = {
                "format": FORMAT,
                "created": datetime.now(UTC).isoformat(timespec="seconds"),
                "versions": versions(),
                "methods": methods,
                "data": data,
                "privacy": None if privacy is None else privacy._asdict(),
                "config": config,
            }
            write_json(path / "run.json", manifest)
        except OSError as error:
            raise UsageError(
                f"{path} cannot be written: {error.strerror or error}.", "Choose another folder with --out."
            ) from error
        return cls(path, lock, manifest)

    @classmethod
    def open(cls, path: Path) -> "RunDirectory":
        """Open an existing run to continue it."""
        manifest = read_manifest(path)
        try:
            return cls(path, _lock(path), manifest)
        except OSError as error:
            raise UsageError(
                f"{path} cannot be written: {error.strerror or error}.", "Copy it to a folder that can be."
            ) from error

    @property
    def searched(self) -> bool:
        """Whether its configuration has what a search has found."""
        return "tuning" in self.manifest

    def found(self, config: dict[str, Any], tuning: dict[str, Any]) -> None:
        """Put what a search has found in place of what was left to it."""
        asked = self.manifest["config"]
        self.manifest = {**self.manifest, "config": config, "tuning": {**tuning, "asked": asked}}
        write_json(self.path / "run.json", self.manifest)

    def check(self, config: dict[str, Any], data: str) -> None:
        """Refuse to go on with other settings or other data than the run was started with."""
        before = self.manifest["config"]
        if self.searched and "tune" in config:
            before = self.manifest["tuning"]["asked"]
        differing = _first_difference(before, json.loads(json.dumps(config)))
        if differing is not None:
            where, before, now = differing
            raise UsageError(
                f"{self.path} was started with another experiment: {where} was {before!r} and is {now!r}.",
                "Go on with the experiment that the run was started with, or start a new run.",
            )
        if data != self.manifest["data"]:
            raise UsageError(
                f"The data has changed since {self.path} was started: what is recorded there is of other samples.",
                "Bring the data back as it was, or start a new run with the data of today.",
            )

    def led(self, find: Callable[["RunDirectory"], str | None]) -> str | None:
        """What is found with this directory; of several hosts only the first one looks."""
        return find(self)

    def journal(self, method: str, keep: int) -> "MethodJournal":
        """The journal of one method of the run."""
        return MethodJournal(self.path / method, keep)

    def record(self, in_memory: Callable[[], "RunRecord"]) -> "RunRecord":
        """What the folder holds."""
        return load_run(self.path)

    def close(self) -> None:
        """Let another process have the run."""
        self._lock.release()

    def __enter__(self) -> "RunDirectory":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class MethodJournal:
    """One method's part of a run directory; keeps the simulator's ``Journal`` contract."""

    def __init__(self, path: Path, keep: int):
        self.path = path
        self._files = FolderJournal(path, keep)
        self.identify = self._files.identify
        self.rounds = self._files.rounds
        self.evaluated = self._files.evaluated
        self.checkpoint = self._files.checkpoint
        self.restore = self._files.restore

    @property
    def done(self) -> bool:
        """Whether the method has been trained to the end."""
        return (self.path / "model.json").exists()

    @property
    def told(self) -> "MethodJournal":
        """What the training loop tells of the run."""
        return self

    @property
    def kept(self) -> Path | None:
        """Where the best round is kept."""
        return self.path / "kept"

    def agree(self, value: Any) -> Any:
        """What all hosts take for true; here is only one."""
        return value

    @property
    def restorable(self) -> bool:
        """Whether there is a checkpoint to go on from."""
        return any((self.path / "checkpoints").glob("[0-9]*.safetensors"))

    def tables(self) -> tuple[pa.Table | None, pa.Table | None]:
        """All rounds and evaluations up to the last checkpoint."""
        if not self.done:
            return self._files.tables()
        return pq.read_table(self.path / "rounds.parquet"), pq.read_table(self.path / "clients.parquet")

    def finish(self, result: Result, model: Predictor | None) -> None:
        """Gather the tables into one file each and write the model; its manifest comes last and says done.

        There is no model of training that diverged.
        """
        write_parquet(self.path / "rounds.parquet", result.history)
        write_parquet(self.path / "clients.parquet", result.table)
        write_parquet(self.path / "summary.parquet", result.summary)
        if model is not None:
            model.save(self.path / "model.safetensors")
        write_json(
            self.path / "model.json",
            {
                "format": FORMAT,
                "rounds": result.rounds,
                "kept": kept_round(result.summary),
                "diverged": result.diverged,
                "parameters": sum(leaf.size for leaf in jax.tree.leaves(result.params)),
                "arrays": {
                    jax.tree_util.keystr(path): {"shape": list(leaf.shape), "dtype": str(leaf.dtype)}
                    for path, leaf in jax.tree_util.tree_leaves_with_path(result.params)
                },
            },
        )
        self._files.remove_tables()


@dataclass(frozen=True)
class MethodRecord:
    """What is recorded of one method."""

    path: Path | None
    """Its folder; ``None`` for a run that was not written."""
    done: bool
    history: pa.Table | None
    """One row per round."""
    table: pa.Table | None
    """One row per round evaluated, client and number of adaptation steps."""
    summary: pa.Table | None
    """Over clients, once the method is done."""
    diverged: str | None = None
    """How training diverged, if it did."""

    def params(self, template: Any) -> Any:
        """The trained model, in the structure of ``template`` (such as ``problem.init(key)``)."""
        if self.path is None:
            raise UsageError("This run was not written to a folder.", "Take the parameters from its results.")
        if not self.done:
            raise UsageError(f"{self.path} has not been trained to the end.", "Resume the run first.")
        if not (self.path / "model.safetensors").exists():
            raise UsageError(f"{self.path} has no model: {self.diverged}", "Lower its step sizes in a new run.")
        return stored_params(self.path / "model.safetensors", template)


@dataclass(frozen=True)
class RunRecord:
    """What is recorded of a run."""

    path: Path | None
    """Its folder; ``None`` for a run that was not written."""
    config: dict[str, Any]
    versions: dict[str, str]
    methods: dict[str, MethodRecord]
    privacy: PrivacySpent | None = None
    """What each method spends by the last round; ``None`` without noise on the wire."""
    tuning: dict[str, Any] | None = None
    """How settings were found, where a search has found some."""
    data: str | None = None
    """The digest of the data; ``None`` for a run that was not written."""

    def same_clients(self, other: "RunRecord") -> bool:
        """Whether clients of one name are the same in both: the data is, or the file that it was read from."""
        if None in (self.data, other.data) or self.data == other.data:
            return True
        one, another = (run.config.get("data", {}).get("path") for run in (self, other))
        return one is not None and one == another

    @classmethod
    def of_results(
        cls,
        config: dict[str, Any],
        results: Mapping[str, Result],
        rounds: int,
        privacy: PrivacySpent | None = None,
    ) -> "RunRecord":
        """The record of a run that was not written to a folder."""
        methods = {
            label: MethodRecord(
                None,
                result.rounds == rounds or result.diverged is not None,
                result.history,
                result.table,
                result.summary,
                result.diverged,
            )
            for label, result in results.items()
        }
        return cls(None, config, versions(), methods, privacy)

    @property
    def comparison(self) -> pa.Table:
        """The last round of all methods that are done: one row per method, group, metric and number of steps."""
        parts = []
        for label, method in self.methods.items():
            if method.summary is not None and method.done:
                last = method.summary.filter(pc.field("round") == kept_round(method.summary))
                parts.append(last.add_column(0, "method", pa.array([label] * len(last), pa.string())))
        return pa.concat_tables(parts) if parts else pa.table({"method": pa.array([], pa.string())})


def load_run(path: str | Path) -> RunRecord:
    """Read a run directory, finished or not, without changing it."""
    path = Path(path)
    manifest = read_manifest(path)
    methods = {}
    for name in manifest["methods"]:
        journal = MethodJournal(path / name, keep=1)
        history, table = journal.tables()
        summary = path / name / "summary.parquet"
        methods[name] = MethodRecord(
            journal.path,
            journal.done,
            history,
            table,
            pq.read_table(summary) if journal.done else None,
            json.loads((journal.path / "model.json").read_text()).get("diverged") if journal.done else None,
        )
    spent = manifest["privacy"]
    privacy = None if spent is None else PrivacySpent(**spent)
    return RunRecord(
        path, manifest["config"], manifest["versions"], methods, privacy, manifest.get("tuning"), manifest["data"]
    )


def read_manifest(path: Path) -> dict[str, Any]:
    """What a run directory says of its run."""
    try:
        manifest: dict[str, Any] = json.loads((path / "run.json").read_text())
    except FileNotFoundError as error:
        raise UsageError(
            f"{path} is not a run directory: it has no run.json.", "Name the folder that a run was written to."
        ) from error
    except (OSError, ValueError) as error:
        raise UsageError(f"{path / 'run.json'} cannot be read: {error}.", "Start the run again elsewhere.") from error
    if manifest.get("format") != FORMAT:
        raise UsageError(
            f"{path} was written in format {manifest.get('format')}; this version reads format {FORMAT}.",
            f"Use headstart {manifest.get('versions', {}).get('headstart', '?')}.",
        )
    return manifest


def _lock(path: Path) -> FileLock:
    lock = FileLock(path / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise UsageError(
            f"{path} is being written by another process.", "Wait for it, or stop it, and try again."
        ) from error
    return lock


def _first_difference(before: Any, now: Any, where: str = "") -> tuple[str, Any, Any] | None:
    """Where two configurations differ first, and what each says there."""
    if not (isinstance(before, Mapping) and isinstance(now, Mapping)):
        return None if before == now else (where, before, now)
    for key in {**before, **now}:
        found = _first_difference(before.get(key), now.get(key), f"{where}.{key}" if where else key)
        if found is not None:
            return found
    return None


def versions() -> dict[str, str]:
    """Of Python and of the packages that decide a run's numbers."""
    import platform
    from importlib.metadata import version

    packages = ("headstart", "jax", "jaxlib", "equinox", "numpy")
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}
