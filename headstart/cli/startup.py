"""What must be settled before JAX starts."""

import os
from pathlib import Path

import jax

from headstart.cli.experiment import Experiment
from headstart.devices import use_cpu_devices

__all__ = ["prepare_jax"]


def prepare_jax(experiment: Experiment) -> None:
    """Devices and precision; compiled programs are kept for next time."""
    settings = experiment.train
    if settings.backend == "sharded":
        use_cpu_devices(settings.devices or len(os.sched_getaffinity(0)))
    if settings.precision == "float64":
        jax.config.update("jax_enable_x64", True)
    if getattr(jax.config, "jax_compilation_cache_dir", None) is None:
        cache = Path.home() / ".cache" / "headstart" / "xla"
        try:
            cache.mkdir(parents=True, exist_ok=True)
        except OSError:
            return
        jax.config.update("jax_compilation_cache_dir", str(cache))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
