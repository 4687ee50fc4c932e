"""What must be settled before JAX starts."""

import os

import jax

from headstart.cli.experiment import Experiment
from headstart.devices import keep_compiled_programs, use_cpu_devices

__all__ = ["prepare_jax"]


def prepare_jax(experiment: Experiment) -> None:
    """Devices and precision; compiled programs are kept for next time."""
    settings = experiment.train
    if settings.backend == "sharded":
        use_cpu_devices(settings.devices or len(os.sched_getaffinity(0)))
    if settings.precision == "float64":
        jax.config.update("jax_enable_x64", True)
    keep_compiled_programs()
