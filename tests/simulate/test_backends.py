"""Every method on every backend: the same rounds, whoever computes them and in whatever order."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from headstart.simulate import Simulation
from headstart.simulate.rounds import draw_cohorts, run_chunk
from tests import toy
from tests.algorithms.contract import CONTRACT, setting

ROUNDS, COHORT, DEVICES = 3, 3, 2
LOOPED = 2
"""Rounds of the loop, which runs every operation by itself: the first, and one that goes on from it."""
PRECISION = {"float32": (False, 1e-5), "x64": (True, 1e-10)}

rows = pytest.mark.parametrize("name", CONTRACT)


def simulation(name, backend="vmap", **options):
    algorithm, devices = CONTRACT[name], DEVICES if backend == "sharded" else None
    cohort = 1.0 if algorithm.needs_everyone else COHORT
    return Simulation(algorithm, *setting(name), cohort=cohort, backend=backend, devices=devices, **options)


def run(name, precision, backend="vmap", rounds=ROUNDS, **options):
    """The server's state and the losses after some rounds. Three clients on two devices leave one to fill up."""
    with jax.enable_x64(PRECISION[precision][0]):
        sim = simulation(name, backend, **options)
        history = sim.advance(rounds, ROUNDS)
        return toy.to_numpy(sim.state.server), history.drop_columns("seconds").to_pydict()


run_once = cache(run)


# Single precision shows no more than double, so it is left to slow runs; the loop runs every operation by itself.
@rows
@pytest.mark.parametrize(
    ("backend", "precision"),
    [
        ("loop", "x64"),
        pytest.param("loop", "float32", marks=pytest.mark.slow),
        ("sharded", "x64"),
        pytest.param("sharded", "float32", marks=pytest.mark.slow),
    ],
)
def test_agrees_with_vmap(name, precision, backend):
    tolerance, rounds = PRECISION[precision][1], LOOPED if backend == "loop" else ROUNDS
    (server, history), (want_server, want_history) = (run_once(name, precision, b, rounds) for b in (backend, "vmap"))
    toy.assert_close(server, want_server, tolerance)
    np.testing.assert_allclose(history["loss"], want_history["loss"], rtol=tolerance)
    assert history | {"loss": None} == want_history | {"loss": None}


@rows
def test_the_same_seed_gives_the_same_bits_twice(name):
    once, twice = run_once(name, "x64"), run(name, "x64")
    toy.assert_same_bits(twice[0], once[0])
    assert twice[1] == once[1]


@rows
def test_the_order_of_a_cohort_changes_nothing_beyond_rounding(name):
    with jax.enable_x64(True):
        sim = simulation(name)
        cohorts = draw_cohorts(sim.plan, sim.keys, jnp.asarray(0, jnp.int32), ROUNDS)
        backwards = jax.tree.map(lambda members: members[:, ::-1], cohorts)
        state, _ = run_chunk(
            sim.problem, sim.plan, sim.algorithm, None, sim.federation.clients, sim.state, sim.keys,
            backwards, jnp.asarray(0, jnp.int32), jnp.asarray(ROUNDS, jnp.int32),
        )  # fmt: skip
    toy.assert_close(toy.to_numpy(state.server), run_once(name, "x64")[0], 1e-10)


@pytest.mark.parametrize("name", ["fedavg", "meta-fl, exact", "aruba"])
@pytest.mark.parametrize(("backend", "at_once"), [("vmap", 1), ("vmap", 2), ("sharded", 1)])
def test_the_grouping_of_a_cohort_changes_nothing_beyond_rounding(name, backend, at_once):
    server, _ = run(name, "x64", backend, at_once=at_once)
    toy.assert_close(server, run_once(name, "x64")[0], 1e-10)


def test_another_seed_is_another_run():
    assert run("fedavg", "float32", seed=1)[1]["loss"] != run_once("fedavg", "float32")[1]["loss"]
