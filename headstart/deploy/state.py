"""What a site's clients remember between rounds, on the site's disk, in step with what the server has counted.

    DIR/index.json           which answer the server has counted last, and in which file each client's memory is
    DIR/TAG.safetensors      the memories that the clients of one answer were left with

An answer's memories are *pending* until the server says that it has counted that answer and will not forget it: then
they become the *base*. A server that comes back from its checkpoint says what it had counted by then, so that work is
begun again from the same memories, and its numbers are those of an undisturbed run. Moving on writes one small file,
whole or not at all.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
from safetensors import SafetensorError, safe_open

from headstart.deploy.messages import Tag
from headstart.errors import HeadstartError
from headstart.simulate.files import PARTIAL, in_structure_of, named_leaves, read_arrays, write_arrays, write_json

__all__ = ["LostMemory", "Memories"]

INDEX = "index.json"
SUFFIX = ".safetensors"


class LostMemory(HeadstartError):
    """The disk has not the memories that the server counts on."""


class Memories:
    """The memories of a site's clients in the run of one method; ``fresh`` is that of a client's first round."""

    def __init__(self, folder: Path, fresh: Any):
        self._folder, self._fresh = folder, fresh
        self.kept = bool(jax.tree.leaves(fresh))
        """Whether clients remember anything at all; if not, nothing is ever written or missed."""
        self._base: Tag | None = None
        self._files: dict[int, str] = {}
        self._unreadable: str | None = None
        if self.kept:
            self._open()

    def confirm(self, counted: Tag | None, start: Tag | None, attempt: int) -> None:
        """The server has counted the answer ``counted`` last and goes on from ``start``, in ``attempt`` at a round.

        Pending memories of other attempts are dropped.
        """
        if not self.kept:
            return
        if self._unreadable is not None:
            raise LostMemory(self._unreadable)
        if counted != self._base:
            if counted is None or not self._path(counted).exists():
                raise LostMemory(_lost(counted, self._base))
            self._files |= self._pending(counted)
            self._base = counted
            self._write_index()
        wanted = {str(counted), *self._files.values()}
        if start != counted:
            assert start is not None
            wanted |= set(self._pending(start).values()) | {str(start)}
        for path in self._folder.glob(f"*{SUFFIX}"):
            if path.stem not in wanted and f"-{attempt:06d}-" not in path.stem:
                path.unlink(missing_ok=True)

    def read(self, client: int, start: Tag | None) -> Any:
        """What a client remembers as of the answer ``start``."""
        if not self.kept:
            return self._fresh
        files = self._files if start == self._base else self._files | self._pending(start)
        if client not in files:
            return self._fresh
        path = self._folder / f"{files[client]}{SUFFIX}"
        prefix = f"{client}:"
        try:
            stored, _ = read_arrays(path, prefix)
        except (OSError, SafetensorError) as error:
            raise LostMemory(f"{path.name} cannot be read: {error}") from error
        return in_structure_of(self._fresh, {n.removeprefix(prefix): array for n, array in stored.items()}, path)

    def propose(self, tag: Tag, start: Tag | None, states: Mapping[int, Any]) -> None:
        """What clients remember after the answer ``tag``, which went on from ``start``."""
        if not self.kept:
            return
        arrays = {
            f"{client}:{name}": jax.device_get(leaf) for client, state in states.items()
            for name, leaf in named_leaves(state)
        }  # fmt: skip
        files = (self._pending(start) if start != self._base else {}) | dict.fromkeys(states, str(tag))
        write_arrays(self._path(tag), arrays, {"files": json.dumps(files)})

    def forget(self) -> None:
        """Begin anew, as in the first round."""
        if self.kept:
            self._base, self._files, self._unreadable = None, {}, None
            self._write_index()

    def _open(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        for partial in self._folder.glob(PARTIAL):
            partial.unlink(missing_ok=True)
        try:
            index = json.loads((self._folder / INDEX).read_text())
            self._base = None if index["base"] is None else Tag(*index["base"])
            self._files = {int(client): file for client, file in index["files"].items()}
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            # Not said before it is asked for: a site that may begin anew need not have read it.
            self._base, self._files = None, {}
            self._unreadable = f"{INDEX} cannot be read: {error}"

    def _write_index(self) -> None:
        files = {str(client): file for client, file in self._files.items()}
        write_json(self._folder / INDEX, {"base": self._base, "files": files}, indent=None)

    def _pending(self, tag: Tag | None) -> dict[int, str]:
        """In which file each client's memory is that the answer ``tag`` and those of its round before it changed."""
        if tag is None or not (path := self._path(tag)).exists():
            raise LostMemory(_lost(tag, self._base))
        try:
            with safe_open(path, framework="numpy") as file:
                told = json.loads(file.metadata()["files"])
        except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
            raise LostMemory(f"{path.name} cannot be read: {error}") from error
        return {int(client): file for client, file in told.items()}

    def _path(self, tag: Tag) -> Path:
        return self._folder / f"{tag}{SUFFIX}"


def _lost(wanted: Tag | None, base: Tag | None) -> str:
    def words(tag: Tag | None) -> str:
        return "the beginning" if tag is None else f"round {tag.round}, attempt {tag.attempt} ({tag.phase})"

    return f"memories as of {words(wanted)} are asked for, and those here are of {words(base)}"
