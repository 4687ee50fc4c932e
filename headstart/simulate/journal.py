"""Where a run's results go as they appear, and what brings a run back after any kind of stop."""

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from safetensors import SafetensorError, safe_open

from headstart.simulate.files import PARTIAL, read_tree, write_parquet, write_tree
from headstart.simulate.identity import Identity, refuse_another
from headstart.simulate.rounds import RunState

__all__ = ["FolderJournal", "Journal", "Unrecorded"]

FORMAT = 1


class Journal(Protocol):
    """What the training loop tells of a run, and asks when it goes on with one."""

    def identify(self, identity: Identity) -> None:
        """Which run this is, told before anything else; a journal of another run refuses to restore."""

    def rounds(self, table: pa.Table) -> None:
        """Metrics of some finished rounds."""

    def evaluated(self, table: pa.Table) -> None:
        """An evaluation of all clients."""

    def checkpoint(self, round_: int, state: RunState) -> None:
        """Everything up to ``round_`` has been told; this state continues it."""

    def restore(self, template: RunState) -> tuple[int, RunState] | None:
        """The last checkpoint in the shape of ``template``, or ``None`` for a new run."""

    def tables(self) -> tuple[pa.Table | None, pa.Table | None]:
        """All rounds and evaluations told so far, those before the restored checkpoint too."""


@dataclass
class Unrecorded:
    """The journal of a run that is not recorded."""

    told_rounds: list[pa.Table] = field(default_factory=list)
    told_evaluations: list[pa.Table] = field(default_factory=list)

    def identify(self, identity: Identity) -> None:
        pass

    def rounds(self, table: pa.Table) -> None:
        self.told_rounds.append(table)

    def evaluated(self, table: pa.Table) -> None:
        self.told_evaluations.append(table)

    def checkpoint(self, round_: int, state: RunState) -> None:
        pass

    def restore(self, template: RunState) -> None:
        return None

    def tables(self) -> tuple[pa.Table | None, pa.Table | None]:
        return _joined(self.told_rounds), _joined(self.told_evaluations)


class FolderJournal:
    """A journal in a folder.

        DIR/checkpoints/*.safetensors   state after a chunk, the last ``keep`` of them, and which run it is of
        DIR/rounds/*.parquet            metrics of rounds, one file per checkpoint
        DIR/clients/*.parquet           evaluations, one file per checkpoint that followed one

    What was told is written before the checkpoint that it belongs to. Whatever moment a process dies at, the last
    whole checkpoint and the tables up to its round are there; later tables are dropped on resuming.
    """

    def __init__(self, path: Path, keep: int):
        self.path, self.keep = path, keep
        self._identity: Identity = {}
        self._rounds: list[pa.Table] = []
        self._clients: list[pa.Table] = []

    def identify(self, identity: Identity) -> None:
        self._identity = dict(identity)

    def rounds(self, table: pa.Table) -> None:
        self._rounds.append(table)

    def evaluated(self, table: pa.Table) -> None:
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
            {"format": str(FORMAT), "round": str(round_), "identity": json.dumps(self._identity)},
        )
        for old in self._checkpoints()[: -self.keep]:
            old.unlink()

    def restore(self, template: RunState) -> tuple[int, RunState] | None:
        """The newest checkpoint that can be read; tables written after it and half-written files are dropped."""
        for partial in self.path.rglob(PARTIAL):
            partial.unlink()
        for path in reversed(self._checkpoints()):
            try:
                metadata = _metadata(path)
                refuse_another(json.loads(metadata.get("identity", "{}")), self._identity, path)
                state, _ = read_tree(path, template)
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
        return self._table("rounds", self._rounds), self._table("clients", self._clients)

    def remove_tables(self) -> None:
        """Drop the tables, once they have been gathered elsewhere."""
        for folder in ("rounds", "clients"):
            if (self.path / folder).exists():  # without a first chunk there are no rounds
                shutil.rmtree(self.path / folder)

    def remove(self) -> None:
        """Drop all of it, once the run is done."""
        shutil.rmtree(self.path, ignore_errors=True)

    def _checkpoints(self) -> list[Path]:
        return sorted((self.path / "checkpoints").glob("[0-9]*.safetensors"))

    def _parts(self, folder: str) -> list[Path]:
        return sorted((self.path / folder).glob("[0-9]*.parquet"))

    def _table(self, name: str, told: list[pa.Table]) -> pa.Table | None:
        return _joined([*(pq.read_table(part) for part in self._parts(name)), *told])


def _joined(tables: list[pa.Table]) -> pa.Table | None:
    return pa.concat_tables(tables) if tables else None


def _metadata(path: Path) -> dict[str, str]:
    with safe_open(path, framework="numpy") as file:
        return file.metadata() or {}
