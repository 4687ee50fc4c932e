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


def interleaved(sides: dict[str, Callable[[], object]], repeats: int, patience: float = 300) -> dict[str, float]:
    """Median seconds of each side on a machine that does nothing else.

    The sides take turns. A run that other processes disturbed is not counted: a loop that waits for its threads
    suffers far more from company than one that does not, so a busy machine makes ratios, not only times, wrong.
    After ``patience`` seconds the least disturbed runs are taken, and a line says so.
    """
    runs: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    deadline = time.monotonic() + patience

    def quiet(name: str) -> int:
        return sum(share <= DISTURBED for share, _ in runs[name])

    while min(quiet(name) for name in sides) < repeats:
        for name, side in sides.items():
            while _disturbance(lambda: time.sleep(0.1))[0] > DISTURBED and time.monotonic() < deadline:
                pass
            runs[name].append(_disturbance(side))
        if time.monotonic() > deadline and min(len(taken) for taken in runs.values()) >= min(repeats, 3):
            break
    counted = {name: sorted(taken)[: max(quiet(name), min(repeats, 3))] for name, taken in runs.items()}
    worst = max(share for taken in counted.values() for share, _ in taken)
    if worst > DISTURBED:
        print(f"  not to be trusted: other processes took up to {worst:.0%} of the machine while this was measured")
    return {name: float(np.median([seconds for _, seconds in taken])) for name, taken in counted.items()}


DISTURBED = 0.06
"""The share of all cores' time that other processes may take while something is measured."""


def _disturbance(work: Callable[[], object]) -> tuple[float, float]:
    """The share of all cores' time that other processes took while ``work`` ran, and the seconds that it took."""
    busy, own, began = _busy_seconds(), time.process_time(), time.perf_counter()
    work()
    seconds = time.perf_counter() - began
    others = (_busy_seconds() - busy) - (time.process_time() - own)
    return max(0.0, others / seconds / (os.cpu_count() or 1)), seconds


def _busy_seconds() -> float:
    """Seconds that all cores have been busy since the machine started; 0 where Linux does not tell."""
    try:
        user, nice, system, _, _, *rest = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9])
    except OSError:
        return 0.0
    return (user + nice + system + sum(rest)) / os.sysconf("SC_CLK_TCK")


def sgemm_peak() -> float:
    """The machine's fastest large float32 matrix product, in GFLOP/s over all cores."""
    import torch

    a = torch.randn(2048, 2048)
    fastest = min(_disturbance(lambda: a @ a)[1] for _ in range(40))
    return 2 * 2048**3 / fastest / 1e9
