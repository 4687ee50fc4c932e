"""Timing side by side, the machine's own limit, and the data that benchmarks run on."""

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import headstart as hs

__all__ = ["dataset", "interleaved", "parser", "scaled", "sgemm_peak"]

SHAPES = {"mnist": (60_000, 784), "cifar10": (50_000, 3072)}


def parser(description: str | None) -> argparse.ArgumentParser:
    """The options that all benchmarks have."""
    options = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--repeats", type=int, default=9, help="interleaved measurements of each side")
    options.add_argument(
        "--data",
        type=Path,
        default=os.environ.get("HEADSTART_DATA"),
        help="folder with mnist.npz and cifar10.npz (x_train, y_train); left out, random data of the same shape",
    )
    return options


def dataset(name: str, folder: Path | None) -> tuple[np.ndarray, np.ndarray, str]:
    """Training images as uint8 rows, their labels, and where they come from."""
    path = None if folder is None else Path(folder) / f"{name}.npz"
    if path is not None and path.exists():
        with np.load(path) as file:
            return file["x_train"].reshape(len(file["x_train"]), -1), file["y_train"].astype(np.int32), "real data"
    rng = np.random.default_rng(0)
    rows, features = SHAPES[name]
    pixels = rng.integers(0, 256, (rows, features), dtype=np.uint8)
    return pixels, rng.integers(0, 10, rows, dtype=np.int32), "random data of its shape"


def scaled(batch: hs.Examples) -> hs.Examples:
    """Pixels in [0, 1]; the pool stays uint8."""
    return hs.Examples(batch.x.astype(np.float32) / 255, batch.y.astype(np.int32))


def interleaved(sides: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Median seconds of each side. They take turns, so that a noisy machine is noisy for all of them."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(repeats):
        for name, side in sides.items():
            began = time.perf_counter()
            side()
            times[name].append(time.perf_counter() - began)
    return {name: float(np.median(values)) for name, values in times.items()}


def sgemm_peak() -> float:
    """The machine's fastest large float32 matrix product, in GFLOP/s over all cores."""
    import torch

    a = torch.randn(2048, 2048)
    fastest = min(_timed(lambda: a @ a) for _ in range(12))
    return 2 * 2048**3 / fastest / 1e9


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
