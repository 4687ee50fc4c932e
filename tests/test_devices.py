"""CPU devices are settled before JAX starts, and not after."""

import subprocess
import sys

import pytest

import headstart as hs


def test_importing_the_package_does_not_start_jax():
    script = "import headstart as hs; hs.use_cpu_devices(3); import jax; assert jax.device_count() == 3"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_enough_devices_are_left_alone_and_more_are_refused():
    hs.use_cpu_devices(2)
    with pytest.raises(hs.UsageError, match=r"(?s)already started with 2.*first thing"):
        hs.use_cpu_devices(3)
