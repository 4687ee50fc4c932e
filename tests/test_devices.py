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


def test_compiled_programs_are_let_go_where_there_are_too_many():
    """Each holds memory maps, of which Linux allows a process only so many."""
    import jax

    from headstart.devices import MAPS, release_compiled_programs

    traced = []

    @jax.jit
    def compiled(x):
        traced.append(x)
        return x + 1

    compiled(1.0)
    compiled(2.0)
    assert len(traced) == 1
    assert not release_compiled_programs()
    compiled(3.0)
    assert len(traced) == 1, "few maps: nothing is let go"
    if MAPS.exists():
        assert release_compiled_programs(most=10)
        compiled(4.0)
        assert len(traced) == 2
