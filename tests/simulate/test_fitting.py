"""A bound on memory: how it is read, what follows from it, and that a measured run keeps to it."""

import os
import subprocess
import sys

import numpy as np
import pytest

import headstart as hs
from headstart.simulate.fitting import Bound, bytes_of, largest_fitting

PROBLEM = hs.Regression(hs.MLP(inputs=1, outputs=1, hidden=(40, 40)))


@pytest.mark.parametrize(("said", "bytes_"), [("4GB", 4 * 10**9), ("512 MiB", 2**29), ("20000000", 20_000_000)])
def test_amounts_of_memory(said, bytes_):
    assert bytes_of("memory_limit", said) == bytes_


@pytest.mark.parametrize("said", ["", "4 GBs", "-1GB", "much", True, "1MB"])
def test_what_is_no_amount_is_refused(said):
    with pytest.raises(hs.UsageError, match=r"(?s)memory_limit.*such as 4GB"):
        bytes_of("memory_limit", said)


def test_as_many_as_fit():
    asked = []

    def needed(number):
        asked.append(number)
        return number * 10_000_000

    assert largest_fitting(Bound("100MB"), 32, needed, "A round") == 8
    assert asked == [32, 16, 8]
    assert largest_fitting(Bound("100MB"), 32, needed, "A round", beside=30_000_000) == 4
    with pytest.raises(hs.UsageError, match=r"(?s)A round takes 110 MB on each device.*100 MB.*on disk"):
        largest_fitting(Bound("100MB"), 32, needed, "A round", beside=100_000_000)


def test_fewer_clients_are_computed_at_once_and_numbers_stay():
    """32 clients with batches of 1,000 take some 30 MB of activations."""
    federation = hs.data.sine(clients=40)
    algorithm = hs.fedavg(batch_size=1000)

    def made(**limit):
        return hs.Simulation(algorithm, PROBLEM, federation, cohort=32, **limit)

    free, bounded = made(), made(memory_limit="17MB")
    assert free.plan.group == 32
    assert bounded.plan.group < 32
    ours, theirs = (each.advance(2, 4)["loss"].to_numpy() for each in (bounded, free))
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    with pytest.raises(hs.UsageError, match="A round takes"):
        hs.Simulation(hs.fedavg(batch_size=100_000), PROBLEM, federation, cohort=2, memory_limit="17MB")


def test_a_sweep_computes_fewer_runs_at_once():
    grid = [hs.fedavg(batch_size=1000, outer_lr=lr) for lr in (0.01, 0.02, 0.03, 0.04)]
    options = {"seeds": [0, 1], "rounds": 1, "cohort": 4, "evaluation": hs.Evaluation(steps=(0,), max_clients=4)}
    federation = hs.data.sine(clients=6)
    free = hs.sweep(grid, PROBLEM, federation, **options)
    bounded = hs.sweep(grid, PROBLEM, federation, memory_limit="17MB", **options)
    np.testing.assert_allclose(bounded.loss, free.loss, rtol=1e-5)


def test_chunks_of_samples_on_disk_are_as_long_as_the_bound_allows(tmp_path):
    x = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.float32, (6000, 100))
    pool = hs.Examples(x, np.zeros(6000, np.int32))
    rows = np.arange(6000).reshape(60, 100)
    federation = hs.Federation.from_arrays(pool, list(rows[:, :90]), list(rows[:, 90:]))
    problem = hs.Classification(hs.MLP(100, 2, hidden=(4,)))
    chunks = [
        hs.Simulation(hs.fedavg(batch_size=5), problem, federation, cohort=10, **limit).largest_chunk()
        for limit in ({}, {"memory_limit": "16.8MB"})
    ]
    assert chunks == [512, 5]  # 404 bytes a sample, 90 of them a client: 57 clients in an eighth of the bound


def test_an_experiment_refuses_what_is_no_amount():
    with pytest.raises(hs.UsageError, match="no amount of memory"):
        hs.Experiment.from_toml(settings=['train.memory_limit="plenty"'])


MEASURED = """
import resource, sys
import headstart as hs
federation = hs.data.sine(clients=200)
problem = hs.Regression(hs.MLP(inputs=1, outputs=1, hidden=(80, 60)))
limit = None if sys.argv[1] == "none" else sys.argv[1]
simulation = hs.Simulation(hs.fedavg(batch_size=20_000), problem, federation, cohort=32, at_once=32, memory_limit=limit)
small = hs.Simulation(hs.fedavg(batch_size=10), problem, federation, cohort=32)
small.advance(1)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
simulation.advance(2)
print(simulation.plan.group, 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before))
"""


@pytest.mark.slow
def test_a_measured_run_keeps_to_its_bound():
    """What the process grows by when it trains, beside what Python, JAX and a small run have taken."""
    found = {}
    for limit in ("none", "400MB"):
        environment = {**os.environ, "JAX_NUM_CPU_DEVICES": "1"}
        ran = subprocess.run(
            [sys.executable, "-c", MEASURED, limit], env=environment, capture_output=True, text=True, check=True
        )
        group, grown = map(int, ran.stdout.split())
        found[limit] = group, grown
    assert found["none"][0] == 32
    assert found["none"][1] > 400e6
    assert 1 <= found["400MB"][0] < 32
    assert found["400MB"][1] < 1.1 * 400e6, found
