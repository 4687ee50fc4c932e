"""One case measured: every side's time in turns, compile time, peak memory, share of the matrix product, bars."""

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax

from headstart.bench.cases import LOOP, OURS, VMAP, Case, Settings, Side
from headstart.bench.turns import Times, interleaved, matrix_product

__all__ = ["measured"]

COMPILING = ("jaxpr_to_mlir_module_duration", "backend_compile_duration")
"""How JAX's events end that tell how long something was lowered and compiled. Those of traces contain each other."""
QUICK_SIDE = 256
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def measured(case: Case, settings: Settings) -> dict[str, Any]:
    """All that is found out about a case, as JSON has it."""
    if not settings.quick:
        # So that every case compiles all that it runs, and holds nothing of the one before.
        jax.clear_caches()
        gc.collect()
    _forget_peak()
    notes: list[str] = []
    if case.once:
        sides, compiling, peak, times = _once(case)
    else:
        with _compile_time() as spent:
            ours = case.ours()
            ours.run()
        compiling, peak = spent(), _peak_bytes()
        sides = {OURS: ours} | _others(case, notes)
        repeats = 1 if settings.quick else settings.repeats
        # Quick runs try the suite and say nothing about speed: they wait for nobody.
        patience, pause = (0.0, 0.0) if settings.quick else (settings.patience, 0.1)
        times = interleaved({name: side.run for name, side in sides.items()}, repeats, patience, pause)
    seconds = {name: times.seconds[name] / side.units for name, side in sides.items()}
    flops = sides[OURS].flops
    product = None
    if flops:
        product = matrix_product(QUICK_SIDE, 2) if settings.quick else matrix_product()
    share = flops / seconds[OURS] / product if flops and product else None
    return {
        "case": case.name,
        "unit": case.unit,
        "seconds": seconds,
        "flops": flops,
        "matrix_product": product,
        "share": share,
        "compile_seconds": compiling,
        "peak_bytes": peak,
        "disturbed": times.disturbed,
        "bars": [
            asdict(bar) | {"value": (value := bar.value(seconds, share, peak)), "holds": bar.holds(value)}
            for bar in case.bars
        ],
        "notes": notes,
    }


def _once(case: Case) -> tuple[dict[str, Side], float, int | None, Times]:
    """Making it and running it for the first time are what is measured."""
    began = time.perf_counter()
    with _compile_time() as spent:
        side = case.ours()
        side.run()
    return {OURS: side}, spent(), _peak_bytes(), Times({OURS: time.perf_counter() - began}, 0.0)


def _others(case: Case, notes: list[str]) -> dict[str, Side]:
    """The other sides, warm; PyTorch's `vmap` cannot do everything, and what it cannot is noted."""
    ready: dict[str, Side] = {}
    for name, make in case.others.items():
        try:
            side = make()
            side.run()
        except ImportError as error:
            if name not in (LOOP, VMAP):
                raise
            notes.append(f"no {name}: {error.name or error} is not installed")
        except (RuntimeError, NotImplementedError) as error:
            if name != VMAP:
                raise
            notes.append(f"torch.func.vmap cannot: {str(error).splitlines()[0][:120]}")
        else:
            ready[name] = side
    return ready


@contextmanager
def _compile_time() -> Iterator[Callable[[], float]]:
    """A function that gives the seconds spent on compiling so far in this block."""
    total = 0.0

    def told(event: str, duration_secs: float, **_: str | int) -> None:
        nonlocal total
        if event.endswith(COMPILING):
            total += duration_secs

    jax.monitoring.register_event_duration_secs_listener(told)
    try:
        yield lambda: total
    finally:
        jax.monitoring.unregister_event_duration_listener(told)


def _forget_peak() -> None:
    """Let the peak of this process's memory begin anew, where Linux can."""
    try:
        CLEAR.write_text("5")
    except OSError:
        return


def _peak_bytes() -> int | None:
    """The most memory that this process has held since."""
    if not STATUS.exists():
        return None
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM"))
    return 1024 * int(line.split()[1])
