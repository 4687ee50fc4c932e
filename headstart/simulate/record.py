"""The run directory: the one record of a run, and what brings it back after any kind of stop.

    DIR/run.json                       configuration as resolved, versions, seed, methods
    DIR/METHOD/checkpoints/*.safetensors   state after a chunk, the last few
    DIR/METHOD/rounds/*.parquet            a row a round, one file a chunk while the method trains
    DIR/METHOD/clients/*.parquet           a row a client, one file an evaluation while the method trains
    DIR/METHOD/rounds.parquet, clients.parquet, summary.parquet, model.safetensors, model.json   once it is done

A chunk's tables are written before its checkpoint. Whatever moment a process dies at, the last whole
checkpoint and the tables up to its round are there; later tables are dropped on resuming.
"""

import json
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jax
import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock, Timeout
from safetensors import SafetensorError

from headstart.errors import UsageError
from headstart.simulate.files import PARTIAL, read_tree, write_json, write_parquet, write_tree
from headstart.simulate.rounds import RunState
from headstart.simulate.train import Result

__all__ = ["MethodJournal", "MethodRecord", "RunDirectory", "RunRecord", "load_run"]

FORMAT = 1


class RunDirectory:
    """A run directory open for writing; only one process can have it open."""

    def __init__(self, path: Path, lock: FileLock, manifest: dict[str, Any]):
        self.path = path
        self.manifest = manifest
        self._lock = lock

    @classmethod
    def create(cls, path: Path, config: dict[str, Any], methods: list[str]) -> "RunDirectory":
        """Start a new run of some methods in a folder that does not exist yet or is empty."""
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
                "versions": _versions(),
                "methods": methods,
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
        manifest = _manifest(path)
        try:
            return cls(path, _lock(path), manifest)
        except OSError as error:
            raise UsageError(
                f"{path} cannot be written: {error.strerror or error}.", "Copy it to a folder that can be."
            ) from error

    def journal(self, method: str, keep: int) -> "MethodJournal":
        """The journal of one method of the run."""
        return MethodJournal(self.path / method, keep)

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
        self.keep = keep
        self._rounds: list[pa.Table] = []
        self._clients: list[pa.Table] = []

    @property
    def done(self) -> bool:
        """Whether the method has been trained to the end."""
        return (self.path / "model.json").exists()

    def rounds(self, table: pa.Table) -> None:
        """Keep metrics until the checkpoint they belong to."""
        self._rounds.append(table)

    def evaluated(self, table: pa.Table) -> None:
        """Keep an evaluation until the checkpoint it belongs to."""
        self._clients.append(table)

    def checkpoint(self, round_: int, state: RunState) -> None:
        """Write what was told since the last checkpoint, then the checkpoint, then drop the oldest."""
        for name, told in (("rounds", self._rounds), ("clients", self._clients)):
            if told:
                write_parquet(self.path / name / f"{round_:09d}.parquet", pa.concat_tables(told))
                told.clear()
        write_tree(
            self.path / "checkpoints" / f"{round_:09d}.safetensors",
            state,
            {"format": str(FORMAT), "round": str(round_)},
        )
        for old in self._checkpoints()[: -self.keep]:
            old.unlink()

    def restore(self, template: RunState) -> tuple[int, RunState] | None:
        """The newest checkpoint that can be read; tables written after it and half-written files are dropped."""
        for partial in self.path.rglob(PARTIAL):
            partial.unlink()
        for path in reversed(self._checkpoints()):
            try:
                state, metadata = read_tree(path, template)
            except (SafetensorError, OSError):
                path.unlink()
                continue
            round_ = int(metadata["round"])
            for folder in ("rounds", "clients"):
                for part in self._parts(folder):
                    if int(part.stem) > round_:
                        part.unlink()
            return round_, state
        return None

    def tables(self) -> tuple[pa.Table | None, pa.Table | None]:
        """All rounds and evaluations up to the last checkpoint."""
        return self._table("rounds"), self._table("clients")

    def finish(self, result: Result) -> None:
        """Gather the tables into one file each and write the model; its manifest comes last and says done."""
        write_parquet(self.path / "rounds.parquet", result.history)
        write_parquet(self.path / "clients.parquet", result.table)
        write_parquet(self.path / "summary.parquet", result.summary)
        write_tree(self.path / "model.safetensors", result.params, {"format": str(FORMAT)})
        write_json(
            self.path / "model.json",
            {
                "format": FORMAT,
                "rounds": result.rounds,
                "parameters": sum(leaf.size for leaf in jax.tree.leaves(result.params)),
                "arrays": {
                    jax.tree_util.keystr(path): {"shape": list(leaf.shape), "dtype": str(leaf.dtype)}
                    for path, leaf in jax.tree_util.tree_leaves_with_path(result.params)
                },
            },
        )
        for folder in ("rounds", "clients"):
            shutil.rmtree(self.path / folder)

    def _checkpoints(self) -> list[Path]:
        return sorted((self.path / "checkpoints").glob("[0-9]*.safetensors"))

    def _parts(self, folder: str) -> list[Path]:
        return sorted((self.path / folder).glob("[0-9]*.parquet"))

    def _table(self, name: str) -> pa.Table | None:
        whole = self.path / f"{name}.parquet"
        if self.done and whole.exists():
            return pq.read_table(whole)
        parts = self._parts(name)
        return pa.concat_tables(pq.read_table(part) for part in parts) if parts else None


@dataclass(frozen=True)
class MethodRecord:
    """What is recorded of one method."""

    path: Path
    done: bool
    history: pa.Table | None
    """A row a round."""
    table: pa.Table | None
    """A row a round evaluated, client and number of adaptation steps."""
    summary: pa.Table | None
    """Over clients, once the method is done."""

    def params(self, template: Any) -> Any:
        """The trained model, in the structure of ``template`` (such as ``problem.init(key)``)."""
        if not self.done:
            raise UsageError(f"{self.path} has not been trained to the end.", "Resume the run first.")
        return read_tree(self.path / "model.safetensors", template)[0]


@dataclass(frozen=True)
class RunRecord:
    """What is recorded of a run."""

    path: Path
    config: dict[str, Any]
    versions: dict[str, str]
    methods: dict[str, MethodRecord]


def load_run(path: str | Path) -> RunRecord:
    """Read a run directory, finished or not, without changing it."""
    path = Path(path)
    manifest = _manifest(path)
    methods = {}
    for name in manifest["methods"]:
        journal = MethodJournal(path / name, keep=1)
        history, table = journal.tables()
        summary = path / name / "summary.parquet"
        methods[name] = MethodRecord(
            journal.path, journal.done, history, table, pq.read_table(summary) if journal.done else None
        )
    return RunRecord(path, manifest["config"], manifest["versions"], methods)


def _manifest(path: Path) -> dict[str, Any]:
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


def _versions() -> dict[str, str]:
    import platform
    from importlib.metadata import version

    packages = ("headstart", "jax", "jaxlib", "equinox", "numpy")
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}
