"""CPU cores as JAX devices, for the backend ``sharded``."""

import jax

from headstart.core import checks
from headstart.errors import UsageError

__all__ = ["use_cpu_devices"]


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
