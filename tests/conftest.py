"""Two faked devices for every test, double precision for those that ask for it, and compiled code let go."""

import os

import jax
import pytest
from hypothesis import settings

from headstart.devices import MANY_MAPS, release_compiled_programs

jax.config.update("jax_num_cpu_devices", 2)
if "JAX_DISABLE_MOST_OPTIMIZATIONS" not in os.environ:
    # Most of the suite's time is spent compiling tiny programs; set the variable to 0 to test optimised ones. It is
    # for the processes that tests start, this one has read it already.
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
    jax.config.update("jax_disable_most_optimizations", True)
    # The older way to make kernels, which compiles in less than two thirds of the time. No device is in use yet.
    os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_cpu_use_fusion_emitters=false"

settings.register_profile("suite", deadline=None, max_examples=25, derandomize=True, database=None)
settings.load_profile("suite")


@pytest.fixture
def x64():
    with jax.enable_x64(True):
        yield


@pytest.fixture(autouse=True)
def few_memory_maps():
    """Drop compiled programs between tests, well before a run would do so itself in the middle of one."""
    yield
    release_compiled_programs(most=MANY_MAPS // 2)
