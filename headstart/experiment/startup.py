"""What must be settled before JAX starts."""

import contextlib
import os

import jax

from headstart.devices import keep_compiled_programs, use_cpu_devices
from headstart.errors import UsageError
from headstart.experiment.settings import Training

__all__ = ["start_jax"]


def start_jax(settings: Training) -> None:
    """Devices and precision; compiled programs are kept for next time.

    Where no number of devices is asked for and JAX has started already, those that there are have to do.
    """
    if settings.backend == "sharded":
        with contextlib.suppress(*([UsageError] if settings.devices is None else [])):
            use_cpu_devices(settings.devices or len(os.sched_getaffinity(0)))
    if settings.precision == "float64":
        jax.config.update("jax_enable_x64", True)
    keep_compiled_programs()
