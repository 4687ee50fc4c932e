"""How JAX is started and kept going: its CPU devices, and the programs it has compiled."""

import gc
from pathlib import Path

import jax

from headstart.core import checks
from headstart.errors import UsageError

__all__ = ["keep_compiled_programs", "release_compiled_programs", "use_cpu_devices"]

MAPS = Path("/proc/self/maps")
MANY_MAPS = 30_000
"""Linux allows a process 65,530 memory maps. A compiled program holds several, and none is left for one more."""


def use_cpu_devices(n: int) -> None:
    """Let JAX see ``n`` CPU devices, so that as many clients are computed side by side.

    To be called before anything makes JAX start: before the first array. Where JAX has started with as many
    devices already, nothing is left to do.
    """
    checks.whole("devices", n, 1)
    try:
        jax.config.update("jax_num_cpu_devices", n)
    except RuntimeError as error:
        if jax.device_count() < n:
            raise UsageError(
                f"{n} devices are asked for, but JAX has already started with {jax.device_count()}.",
                "Call headstart.use_cpu_devices first thing, before any array is made.",
            ) from error


def keep_compiled_programs() -> None:
    """Keep compiled programs for next time, unless JAX has been told where."""
    if getattr(jax.config, "jax_compilation_cache_dir", None) is None:
        cache = Path.home() / ".cache" / "headstart" / "xla"
        try:
            cache.mkdir(parents=True, exist_ok=True)
        except OSError:
            return
        jax.config.update("jax_compilation_cache_dir", str(cache))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


def release_compiled_programs(most: int = MANY_MAPS) -> bool:
    """Let go of all compiled programs where this process has more than ``most`` memory maps; whether it had.

    The compiler ends the process where it is allowed no more maps, as a process may find that trains thousands of
    different models. What is used again after this is compiled again.
    """
    if not MAPS.exists() or MAPS.read_bytes().count(b"\n") <= most:
        return False
    jax.clear_caches()
    gc.collect()
    return True
