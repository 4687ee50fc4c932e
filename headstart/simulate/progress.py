"""How far many runs have come, kept on disk so that a stopped sweep goes on."""

import time
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from headstart.simulate.files import read_arrays, write_arrays
from headstart.simulate.rounds import RunState

__all__ = ["Look", "Progress"]


class Look(NamedTuple):
    """One evaluation of all runs."""

    round: int
    seconds: float
    values: dict[str, np.ndarray]
    """For every metric an array over (run, number of steps, client)."""
    measured: dict[str, np.ndarray]


class Progress:
    """How far a sweep has come, on disk too where a checkpoint is asked for."""

    def __init__(self, template: RunState, path: Path | None, seconds_between: float):
        self.done, self.seconds = 0, 0.0
        self.looks: list[Look] = []
        self.losses: list[np.ndarray] = []
        self.state = template
        self._path, self._seconds_between = path, seconds_between
        self._kept = time.monotonic()
        if path is not None and path.exists():
            self._restore(path)

    def keep(self, state: RunState) -> None:
        """Write all of it, not too often."""
        if self._path is None or time.monotonic() - self._kept < self._seconds_between:
            return
        told = {
            "done": np.array(self.done),
            "seconds": np.array(self.seconds),
            "losses": np.concatenate(self.losses, axis=1),
            "rounds": np.array([look.round for look in self.looks]),
            "at": np.array([look.seconds for look in self.looks]),
        }
        for kind in ("values", "measured"):
            for name in getattr(self.looks[0], kind):
                told[f"{kind}/{name}"] = np.stack([getattr(look, kind)[name] for look in self.looks])
        leaves = {f"state/{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(state))}
        write_arrays(self._path, told | leaves, {})
        self._kept = time.monotonic()

    def forget(self) -> None:
        """Remove the checkpoint of a sweep that is done."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def _restore(self, path: Path) -> None:
        told, _ = read_arrays(path)
        leaves, structure = jax.tree.flatten(self.state)
        kept = [told[f"state/{i}"] for i in range(sum(name.startswith("state/") for name in told))]
        if [(leaf.shape, leaf.dtype) for leaf in kept] != [(leaf.shape, leaf.dtype) for leaf in leaves]:
            return  # another version of the program left it, whose models or memories had other shapes: start anew
        # Copied: JAX may otherwise use NumPy's own memory, which a program that is given the buffers would write to.
        self.state = jax.tree.unflatten(structure, [jnp.array(leaf, copy=True) for leaf in kept])
        self.done, self.seconds = int(told["done"]), float(told["seconds"])
        self.losses = [told["losses"]]
        for i, (round_, seconds) in enumerate(zip(told["rounds"], told["at"], strict=True)):
            parts: dict[str, dict[str, np.ndarray]] = {"values": {}, "measured": {}}
            for name, array in told.items():
                kind, sign, metric = name.partition("/")
                if sign and kind in parts:
                    parts[kind][metric] = array[i]
            self.looks.append(Look(int(round_), float(seconds), **parts))
