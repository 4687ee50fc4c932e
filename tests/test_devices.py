"""CPU devices are settled before JAX starts, and not after."""

import os
import subprocess
import sys

import pytest

import headstart as hs


def test_importing_the_package_does_not_start_jax():
    script = "import headstart as hs; hs.use_cpu_devices(3); import jax; assert jax.device_count() == 3"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_enough_devices_are_left_alone_and_more_are_refused():
    import jax

    assert jax.device_count() == 2  # which starts JAX
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


TRAINED = """
import warnings
import {first}
import headstart as hs
federation = hs.data.sine(clients=6, held_out=1)
problem = hs.Regression(hs.MLP(inputs=1, outputs=1, hidden=(128, 128)))
algorithm = hs.fedavg(batch_size=10, local_steps=8)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    result = hs.train(algorithm, problem, federation, rounds=2, cohort=4)
    hs.train(algorithm, problem, federation, rounds=1, cohort=4)
import jax
print(jax.device_count(), result._simulation.plan.devices, float(result.history["loss"][-1].as_py()))
print("\\n".join(str(each.message) for each in caught if "cores" in str(each.message)))
"""


def _trained(first="os", cores=2, **environment):
    """What a program says that trains in a process of its own, as if there were so many cores."""
    script = f"import os; os.sched_getaffinity = lambda _: range({cores})\n" + TRAINED.format(first=first)
    clean = {name: value for name, value in os.environ.items() if name not in ("JAX_NUM_CPU_DEVICES", "XLA_FLAGS")}
    ran = subprocess.run(
        [sys.executable, "-c", script], env={**clean, **environment}, capture_output=True, text=True, check=True
    )
    numbers, said = ran.stdout.split("\n", 1)
    seen, used, loss = numbers.split()
    return int(seen), int(used), float(loss), said.strip()


def test_a_program_uses_all_cores_unless_it_has_chosen_and_numbers_are_the_same():
    """Data is made, and so JAX started, before training: devices are settled when headstart imports JAX."""
    seen, used, loss, said = _trained(cores=3)
    assert (seen, used, said) == (3, 3, "")
    for chosen in ({"JAX_NUM_CPU_DEVICES": "1"}, {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}):
        fewer = _trained(cores=3, **chosen)
        assert fewer[0] == fewer[1] < 3
        assert fewer[3] == "", "nobody is told what they have chosen"
        assert fewer[2] == pytest.approx(loss, rel=1e-6)


def test_jax_that_has_started_with_one_device_is_told_of_in_one_line():
    seen, used, _, said = _trained("jax; jax.numpy.zeros(1)", cores=3)
    assert (seen, used) == (1, 1)
    assert said == (
        "Training uses one of 3 cores: JAX was started before headstart was imported. "
        "Import headstart first, or set JAX_NUM_CPU_DEVICES=3."
    )


def test_work_that_is_too_small_stays_on_one_device_and_one_asked_for_is_several():
    federation = hs.data.sine(clients=4)
    problem = hs.Regression(hs.MLP(inputs=1, outputs=1, hidden=(8,)))

    def devices(**asked):
        made = hs.Simulation(hs.fedavg(batch_size=10), problem, federation, cohort=2, **asked)
        return made.backend, made.plan.devices

    assert devices(backend="auto") == ("vmap", 1)
    assert devices(backend="auto", devices=2) == ("sharded", 2)
    with pytest.raises(hs.UsageError, match="no backend 'all'"):
        devices(backend="all")
