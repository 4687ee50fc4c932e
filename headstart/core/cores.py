"""All cores: with how many CPU devices JAX starts, unless somebody has said so.

XLA runs one client's small operations on one core. So that a cohort is computed on all of them, JAX has to be told
before it starts that every core is a device, and the first array starts it: this is done as soon as headstart imports
JAX.
"""

import os
import warnings

import jax

__all__ = ["all_cores", "claim_cores", "say_what_is_idle"]

FORCED = "xla_force_host_platform_device_count"
_told = False


def all_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def claim_cores() -> None:
    """Let JAX see a device for every core, unless it has been told a number or has started."""
    if _said():
        return
    try:
        jax.config.update("jax_num_cpu_devices", all_cores())
    except RuntimeError:
        return  # it has started, and what there is has to do


def say_what_is_idle() -> None:
    """Warn, once, where JAX had started with one CPU device before headstart could tell it of the other cores."""
    global _told
    cores = all_cores()
    if _told or _said() or cores == 1 or jax.default_backend() != "cpu" or jax.device_count() > 1:
        return
    _told = True
    warnings.warn(
        f"Training uses one of {cores} cores: JAX was started before headstart was imported. "
        f"Import headstart first, or set JAX_NUM_CPU_DEVICES={cores}.",
        stacklevel=3,
    )


def _said() -> bool:
    """Whether the number of CPU devices was chosen by somebody."""
    told: int = jax.config.jax_num_cpu_devices  # type: ignore[attr-defined]
    return FORCED in os.environ.get("XLA_FLAGS", "") or told >= 0
