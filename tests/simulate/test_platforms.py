"""What is chosen by platform: programs for CUDA and TPU, lowered here, where there is neither."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import headstart as hs
from headstart.simulate.rounds import draw_cohorts, run_chunk

PLATFORMS = {"cpu": "cpu", "gpu": "cuda", "tpu": "tpu"}
"""What JAX calls its backends, and what it lowers for."""


def lowered(backend, monkeypatch, problem, federation, algorithm, sharded=False):
    """A run's plan and the text of its program, as a machine with this backend would have it."""
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    jax.clear_caches()  # traces of another platform
    how = {"backend": "sharded", "devices": 2} if sharded else {}
    made = hs.Simulation(algorithm, problem, federation, cohort=6, **how)
    cohorts = draw_cohorts(made.plan, made.keys, jnp.int32(0), 4)

    def chunk(state, cohorts, key_data):
        keys = type(made.keys)(*map(jax.random.wrap_key_data, key_data))
        return run_chunk(
            made.problem, made.plan, made.algorithm, None, federation.clients, state, keys, cohorts, 0, 4
        )  # fmt: skip

    exported = jax.export.export(jax.jit(chunk, donate_argnums=0), platforms=[PLATFORMS[backend]])(
        made.state, cohorts, [jax.random.key_data(key) for key in made.keys]
    )
    assert exported.platforms == (PLATFORMS[backend],)
    shapes = jax.eval_shape(chunk, made.state, cohorts, [jax.random.key_data(key) for key in made.keys])
    assert jax.tree.map(jnp.shape, shapes[0]) == jax.tree.map(jnp.shape, made.state)
    jax.clear_caches()
    return made.plan, exported.mlir_module()


@pytest.fixture
def images():
    rng = np.random.default_rng(0)
    pool = hs.Examples(rng.random((40, 8, 8, 1), np.float32), rng.integers(0, 3, 40, dtype=np.int32))
    rows = np.arange(40).reshape(8, 5)
    federation = hs.Federation.from_arrays(pool, list(rows[:, :4]), list(rows[:, 4:]))
    return hs.Classification(hs.CNN((8, 8, 1), 3, filters=(4, 4), kernel=3, hidden=800)), federation


@pytest.mark.parametrize("backend", PLATFORMS)
def test_forms_of_convolutions_clients_at_once_and_donation(backend, monkeypatch, images):
    """A CPU computes the clients of a model this size one at a time; others all of them together, by convolutions of
    their own. The state's buffers are given to the program everywhere."""
    problem, federation = images
    plan, text = lowered(backend, monkeypatch, problem, federation, hs.per_fedavg(batch_size=2))
    convolutions = len(re.findall(r"stablehlo\.convolution", text))
    if backend == "cpu":
        assert plan.group == 1
    else:
        assert plan.group == 6
        assert convolutions > 0
    assert "tf.aliasing_output" in text or "jax.buffer_donor" in text


@pytest.mark.parametrize("backend", ["gpu", "tpu"])
def test_a_cohort_is_divided_among_accelerators(backend, monkeypatch, images):
    problem, federation = images
    plan, text = lowered(backend, monkeypatch, problem, federation, hs.fedavg(batch_size=2), sharded=True)
    assert (plan.devices, plan.group) == (2, 3)
    assert "all_reduce" in text


def test_an_accelerators_memory_is_the_bound_unless_another_is_given(monkeypatch):
    from headstart.simulate.fitting import Bound

    assert Bound.of(None) is None  # a CPU, whose memory is everybody's

    class Accelerator:
        def memory_stats(self):
            return {"bytes_limit": 16 * 10**9}

    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax, "local_devices", lambda: [Accelerator()])
    assert Bound.of(None).bytes == 14_400_000_000
    assert Bound.of("4GB").bytes == 4_000_000_000
