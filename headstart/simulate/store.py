"""Client memories on disk: only the rows of a chunk's cohorts are ever in RAM.

    DIR/store.json       what is stored, and up to which round it has been applied
    DIR/rows-N.bin       one file a leaf of the client state, one row a client, sparse until clients take part
    DIR/present.bin      which clients have a row of their own; the others are as they began
    DIR/redo-ROUND.safetensors   rows that a chunk changed, until they have been applied

A chunk's changed rows are written to a redo file before the run's checkpoint and applied after it. Whenever a
process dies, the redo files up to the checkpoint's round are applied again and later ones are dropped, so that the
memories are those of the checkpoint.
"""

import json
import mmap
import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError

from headstart.errors import UsageError
from headstart.simulate.files import PARTIAL, read_arrays, write_arrays, write_json

__all__ = ["DiskStore"]

FORMAT = 1


class DiskStore:
    """The states of ``clients`` clients in memory-mapped files under ``path``.

    ``initial`` is every client's state before its first round.
    """

    def __init__(self, path: str | Path, clients: int, initial: Any):
        self.path = Path(path)
        self.clients = clients
        self.structure = jax.tree.structure(initial)
        self.initial = [np.asarray(leaf) for leaf in jax.tree.leaves(initial)]
        self._staged: tuple[np.ndarray, list[np.ndarray]] | None = None
        self._create_or_check()
        self._rows = [self._map(f"rows-{i}.bin", leaf.dtype, leaf.shape) for i, leaf in enumerate(self.initial)]
        self._present = self._map("present.bin", np.dtype(np.uint8), ())

    @property
    def row_bytes(self) -> int:
        """Bytes of one client's state."""
        return sum(leaf.nbytes for leaf in self.initial)

    def read(self, ids: np.ndarray) -> Any:
        """The states of some clients, stacked in the order of ``ids``."""
        own = self._present[ids].astype(bool)
        staged_ids, staged_rows = self._staged or (np.zeros(0, np.int64), [leaf[None] for leaf in self.initial])
        position = {int(client): row for row, client in enumerate(staged_ids)}
        staged = np.array([position.get(int(client), -1) for client in ids])
        leaves = []
        for rows, initial, changed in zip(self._rows, self.initial, staged_rows, strict=True):
            values = np.broadcast_to(initial, (len(ids), *initial.shape)).copy()
            values[own] = rows[ids[own]]
            values[staged >= 0] = changed[staged[staged >= 0]]
            # Mapped pages count as this process's memory until they are let go.
            rows._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]
            leaves.append(values)
        return jax.tree.unflatten(self.structure, leaves)

    def stage(self, ids: np.ndarray, states: Any) -> None:
        """Hold a chunk's changed rows until they are committed; a later chunk's overwrite an earlier one's."""
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(states)]
        if self._staged is not None:
            before, rows = self._staged
            kept = ~np.isin(before, ids)
            ids = np.concatenate([before[kept], ids])
            leaves = [np.concatenate([old[kept], new]) for old, new in zip(rows, leaves, strict=True)]
        self._staged = (ids, leaves)

    def prepare(self, round_: int) -> None:
        """Make the staged rows durable, to be called before the run's checkpoint of this round."""
        if self._staged is not None:
            ids, leaves = self._staged
            arrays = {"ids": ids.astype(np.int64), **{str(i): leaf for i, leaf in enumerate(leaves)}}
            write_arrays(self._redo(round_), arrays, {"round": str(round_)})

    def commit(self, round_: int) -> None:
        """Apply the staged rows, to be called after the run's checkpoint of this round."""
        if self._staged is not None:
            self._apply(*self._staged, round_)
            self._staged = None
            self._redo(round_).unlink()

    def recover(self, round_: int) -> None:
        """Bring the memories to the checkpoint of this round after a stop of any kind."""
        self._staged = None
        for partial in self.path.glob(PARTIAL):
            partial.unlink()
        for path in sorted(self.path.glob("redo-*.safetensors")):
            if int(path.stem.split("-")[1]) <= round_:
                try:
                    arrays, _ = read_arrays(path)
                except SafetensorError as error:
                    raise self._corrupt(f"{path.name} cannot be read ({error})") from error
                leaves = [arrays[str(i)] for i in range(len(self.initial))]
                self._apply(arrays["ids"], leaves, int(path.stem.split("-")[1]))
            path.unlink()
        applied = self._manifest()["round"]
        if applied > round_:
            raise self._corrupt(f"its memories are of round {applied}, but the newest whole checkpoint of {round_}")

    def _apply(self, ids: np.ndarray, leaves: list[np.ndarray], round_: int) -> None:
        # Written with pwrite, not through the map: on a full disk that is an error and not a fatal signal.
        for i, leaf in enumerate(leaves):
            self._write(f"rows-{i}.bin", ids, leaf)
        self._write("present.bin", ids, np.ones(len(ids), np.uint8))
        write_json(self.path / "store.json", self._manifest() | {"round": round_})

    def _write(self, name: str, ids: np.ndarray, rows: np.ndarray) -> None:
        rows = np.ascontiguousarray(rows)
        size = rows.nbytes // len(ids)
        descriptor = os.open(self.path / name, os.O_WRONLY)
        try:
            for client, row in zip(ids.tolist(), rows, strict=True):
                os.pwrite(descriptor, row.tobytes(), client * size)
            os.fsync(descriptor)
        except OSError as error:
            raise UsageError(
                f"The memory store {self.path} is full: {error.strerror}.",
                f"It grows to {self.clients * self.row_bytes / 1e9:.1f} GB. Make room, then resume the run.",
            ) from error
        finally:
            os.close(descriptor)

    def _create_or_check(self) -> None:
        wanted = {
            "format": FORMAT,
            "clients": self.clients,
            "leaves": [{"shape": list(leaf.shape), "dtype": str(leaf.dtype)} for leaf in self.initial],
        }
        if not (self.path / "store.json").exists():
            self.path.mkdir(parents=True, exist_ok=True)
            for name, size in self._sizes().items():
                with (self.path / name).open("wb") as file:
                    file.truncate(size)
            write_json(self.path / "store.json", wanted | {"round": 0})
            return
        manifest = self._manifest()
        if {key: manifest.get(key) for key in wanted} != wanted:
            raise UsageError(
                f"{self.path} holds the memories of another model or federation.",
                "Choose another folder, or resume with the configuration that the run was started with.",
            )
        for name, size in self._sizes().items():
            path = self.path / name
            if not path.exists() or path.stat().st_size != size:
                found = path.stat().st_size if path.exists() else "no"
                raise self._corrupt(f"{name} has {found} bytes instead of {size}")

    def _sizes(self) -> dict[str, int]:
        rows = {f"rows-{i}.bin": self.clients * leaf.nbytes for i, leaf in enumerate(self.initial)}
        return rows | {"present.bin": self.clients}

    def _map(self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.memmap:
        return np.memmap(self.path / name, dtype, "r", shape=(self.clients, *shape))

    def _redo(self, round_: int) -> Path:
        return self.path / f"redo-{round_:09d}.safetensors"

    def _manifest(self) -> dict[str, Any]:
        try:
            manifest: dict[str, Any] = json.loads((self.path / "store.json").read_text())
        except ValueError as error:
            raise self._corrupt(f"store.json cannot be read ({error})") from error
        return manifest

    def _corrupt(self, reason: str) -> UsageError:
        return UsageError(
            f"The memory store {self.path} is damaged: {reason}.", "Restore the folder from a copy, or start a new run."
        )


def compact(clients: np.ndarray, ids: np.ndarray) -> jnp.ndarray:
    """Cohorts as positions in ``ids``; what is no client stays out of range."""
    slots = np.searchsorted(ids, clients)
    inside = slots < len(ids)
    inside[inside] = ids[slots[inside]] == clients[inside]
    return jnp.asarray(np.where(inside, slots, np.iinfo(np.int32).max), jnp.int32)
