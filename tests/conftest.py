"""Two faked devices for every test, double precision for those that ask for it, and compiled code let go."""

import gc
import os
from pathlib import Path

import jax
import pytest
from hypothesis import settings

jax.config.update("jax_num_cpu_devices", 2)
if "JAX_DISABLE_MOST_OPTIMIZATIONS" not in os.environ:
    # Most of the suite's time is spent compiling tiny programs; set the variable to 0 to test optimised ones.
    jax.config.update("jax_disable_most_optimizations", True)
    # The older way to make kernels, which compiles in less than two thirds of the time. No device is in use yet.
    os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_cpu_use_fusion_emitters=false"

settings.register_profile("suite", deadline=None, max_examples=25, derandomize=True, database=None)
settings.load_profile("suite")


@pytest.fixture
def x64():
    with jax.enable_x64(True):
        yield


MAPS = Path("/proc/self/maps")
MANY_MAPS = 30_000


@pytest.fixture(autouse=True)
def few_memory_maps():
    """Drop compiled programs before they are too many.

    Each holds several memory maps, and where a process may have no more (65,530 on Linux) the compiler crashes.
    """
    yield
    if MAPS.exists() and MAPS.read_bytes().count(b"\n") > MANY_MAPS:
        jax.clear_caches()
        gc.collect()
