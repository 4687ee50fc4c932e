"""CPU devices for JAX."""

import jax

__all__ = ["use_cpu_devices"]


def use_cpu_devices(n: int) -> None:
    """Fake ``n`` CPU devices; call before JAX starts."""
    jax.config.update("jax_num_cpu_devices", n)
