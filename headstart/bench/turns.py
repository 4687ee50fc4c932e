"""Time taken on a machine that others use too: sides take turns, and what was disturbed does not count."""

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

__all__ = ["DISTURBED", "Times", "cores", "interleaved", "matrix_product"]

DISTURBED = 0.06
"""The share of all cores' time that other processes may take while something is measured."""
FEWEST = 3
PRODUCT_SIDE, PRODUCTS = 2048, 12


class Times(NamedTuple):
    """Median seconds of each side, and the most that others took of the machine in a run that counts."""

    seconds: dict[str, float]
    disturbed: float


def interleaved(sides: Mapping[str, Callable[[], object]], repeats: int, patience: float, pause: float = 0.1) -> Times:
    """The median of each side's undisturbed runs, which take turns.

    A loop that waits for its threads suffers far more from company than one that does not, so a busy machine makes
    ratios, not only times, wrong. Once ``patience`` seconds have gone to waiting for quiet and to runs that do not
    count, the least disturbed runs are taken. Between two runs the machine is watched for ``pause`` seconds.
    """
    runs: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    deadline = time.monotonic() + patience

    def quiet(name: str) -> int:
        return sum(share <= DISTURBED for share, _ in runs[name])

    while min(quiet(name) for name in sides) < repeats:
        for name, side in sides.items():
            while pause and _disturbance(lambda: time.sleep(pause))[0] > DISTURBED and time.monotonic() < deadline:
                pass
            runs[name].append(_disturbance(side))
        if time.monotonic() > deadline and min(len(taken) for taken in runs.values()) >= min(repeats, FEWEST):
            break
    counted = {name: sorted(taken)[: max(quiet(name), min(repeats, FEWEST))] for name, taken in runs.items()}
    worst = max(share for taken in counted.values() for share, _ in taken)
    return Times({name: float(np.median([s for _, s in taken])) for name, taken in counted.items()}, worst)


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def matrix_product(side: int = PRODUCT_SIDE, repeats: int = PRODUCTS) -> float:
    """The machine's fastest large product of float32 matrices, in FLOP/s over all cores.

    By PyTorch where it is installed, and by JAX, whichever is the faster: a bar must not fall with our own compiler.
    """
    import jax
    import jax.numpy as jnp

    square = jnp.asarray(np.random.default_rng(0).random((side, side), np.float32))
    product = jax.jit(jnp.matmul).lower(square, square).compile()
    contenders: list[Callable[[], object]] = [lambda: jax.block_until_ready(product(square, square))]
    try:
        import torch
    except ImportError:
        pass
    else:
        tensor = torch.from_numpy(np.array(square))
        contenders.append(lambda: tensor @ tensor)
    for contender in contenders:
        contender()
    fastest = min(_disturbance(contender)[1] for _ in range(repeats) for contender in contenders)
    return 2 * side**3 / fastest


def _disturbance(work: Callable[[], object]) -> tuple[float, float]:
    """The share of all cores' time that other processes took while ``work`` ran, and the seconds that it took."""
    busy, own, began = _busy_seconds(), _own_seconds(), time.perf_counter()
    work()
    seconds = time.perf_counter() - began
    others = (_busy_seconds() - busy) - (_own_seconds() - own)
    return max(0.0, others / seconds / (os.cpu_count() or 1)), seconds


def _own_seconds() -> float:
    """Processor time of this process and of those that it started and that have ended."""
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


def _busy_seconds() -> float:
    """Seconds that all cores have been busy since the machine started; 0 where Linux does not tell."""
    try:
        user, nice, system, _, _, *rest = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9])
    except OSError:
        return 0.0
    return (user + nice + system + sum(rest)) / os.sysconf("SC_CLK_TCK")
