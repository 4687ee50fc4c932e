"""How JAX is started: its CPU devices, and where compiled programs are kept."""

from pathlib import Path

import jax

from headstart.core import checks
from headstart.errors import UsageError

__all__ = ["keep_compiled_programs", "use_cpu_devices"]


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
