"""The data that suites run on: real where its folder is given, random of the same shape elsewhere."""

from pathlib import Path

import numpy as np

from headstart.data import Federation
from headstart.problems import Examples

__all__ = ["image_federation", "images", "scaled"]

SHAPES = {"mnist": (60_000, 784), "cifar10": (50_000, 3072)}


def images(name: str, folder: Path | None, rows: int | None = None) -> tuple[np.ndarray, np.ndarray, str]:
    """Training images as uint8 rows, their labels, and where they come from."""
    path = None if folder is None else Path(folder) / f"{name}.npz"
    if path is not None and path.exists():
        with np.load(path) as file:
            x, y = file["x_train"][:rows], file["y_train"][:rows]
        return x.reshape(len(x), -1), y.astype(np.int32), "real data"
    rng = np.random.default_rng(0)
    all_rows, features = SHAPES[name]
    size = rows or all_rows
    pixels = rng.integers(0, 256, (size, features), dtype=np.uint8)
    return pixels, rng.integers(0, 10, size, dtype=np.int32), "random data of its shape"


def scaled(batch: Examples) -> Examples:
    """Pixels in [0, 1]; the pool stays uint8."""
    return Examples(batch.x.astype(np.float32) / 255, batch.y.astype(np.int32))


def image_federation(x: np.ndarray, y: np.ndarray, clients: int) -> tuple[Federation, list[np.ndarray]]:
    """Images dealt out at random, and each client's rows."""
    rows = np.array_split(np.random.default_rng(0).permutation(len(x)), clients)
    return Federation.from_arrays(Examples(x, y), rows, rows, transform=scaled), rows
