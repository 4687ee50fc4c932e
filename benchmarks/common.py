"""What the benchmarks of this folder share: options, and data as `headstart bench` has it."""

import argparse
import os
from collections.abc import Callable
from pathlib import Path

from headstart.bench import pools, turns

__all__ = ["dataset", "interleaved", "parser", "scaled"]

dataset, scaled = pools.images, pools.scaled


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


def interleaved(sides: dict[str, Callable[[], object]], repeats: int, patience: float = 300) -> dict[str, float]:
    """Median seconds of each side; a line says so where other processes disturbed it."""
    times = turns.interleaved(sides, repeats, patience)
    if times.disturbed > turns.DISTURBED:
        print(f"  not to be trusted: other processes took up to {times.disturbed:.0%} of the machine meanwhile")
    return times.seconds
