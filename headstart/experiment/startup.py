"""What must be settled before JAX starts."""

import jax

from headstart.devices import keep_compiled_programs, use_cpu_devices
from headstart.experiment.settings import Training

__all__ = ["start_jax"]


def start_jax(settings: Training) -> None:
    """Devices and precision; compiled programs are kept for next time.

    Where no number of devices is asked for, it is that of all cores, or what whoever started JAX has chosen.
    """
    if settings.devices is not None and settings.backend in ("auto", "sharded"):
        use_cpu_devices(settings.devices)
    if settings.precision == "float64":
        jax.config.update("jax_enable_x64", True)
    keep_compiled_programs()
