"""Two faked devices for every test, and double precision for those that ask for it."""

import os

import jax
import pytest
from hypothesis import settings

jax.config.update("jax_num_cpu_devices", 2)
if "JAX_DISABLE_MOST_OPTIMIZATIONS" not in os.environ:
    # Most of the suite's time is spent compiling tiny programs; set the variable to 0 to test optimised ones.
    jax.config.update("jax_disable_most_optimizations", True)

settings.register_profile("suite", deadline=None, max_examples=25, derandomize=True, database=None)
settings.load_profile("suite")


@pytest.fixture
def x64():
    with jax.enable_x64(True):
        yield
