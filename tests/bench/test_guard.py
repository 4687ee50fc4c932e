"""What makes rounds fast is still there: counts of compiled programs and ratios of them, never times."""

import re
from typing import Any

import numpy as np
import pytest

import headstart as hs
from headstart.bench.programs import kernels, round_program

CONVOLUTION = re.compile(r"convolution\(.*dim_labels=(\w+)")


def sine_round(algorithm: hs.core.Algorithm, clients: int = 25) -> Any:
    """A round of three tasks, compiled."""
    model = hs.MLP(inputs=1, outputs=1, hidden=(8, 8), activation="relu")
    federation = hs.data.sine(clients=clients, held_out=0)
    return round_program(hs.Simulation(algorithm, hs.Regression(model), federation, cohort=3))


@pytest.fixture(scope="module")
def rounds() -> dict[str, Any]:
    """Of MOML on sine waves."""
    return {
        "v1": sine_round(hs.MOML(batch_size=10)),
        "v2": sine_round(hs.MOMLv2(batch_size=10)),
        "v2 of many": sine_round(hs.MOMLv2(batch_size=10), clients=5_000),
    }


def test_a_small_round_starts_few_kernels(rounds: dict[str, Any]) -> None:
    counts = {name: sum(kernels(program).values()) for name, program in rounds.items()}
    assert counts["v1"] <= 220, counts
    assert counts["v2"] <= 1.5 * counts["v1"], counts
    assert counts["v2 of many"] <= 1.05 * counts["v2"], counts


def test_a_round_draws_without_loops(rounds: dict[str, Any]) -> None:
    # The loop over rounds alone, and those that some versions of the compiler make of a scatter.
    loops = [line for line in rounds["v1"].as_text().splitlines() if " while(" in line and "scatter" not in line]
    assert len(loops) == 1, loops


def test_a_round_of_many_clients_takes_no_room_for_them(rounds: dict[str, Any]) -> None:
    few, many = (rounds[name].memory_analysis().temp_size_in_bytes for name in ("v2", "v2 of many"))
    assert many <= few + 2**16


def test_convolutions_of_a_round_have_the_order_that_a_cpu_has_a_kernel_for() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.random((12, 8, 8, 2), np.float32), rng.integers(0, 3, 12)
    rows = np.split(np.arange(12), 3)
    federation = hs.Federation.from_arrays(hs.Examples(x, y), rows, rows)
    problem = hs.Classification(hs.Conv((8, 8, 2), 3, filters=8, blocks=2))
    algorithm = hs.per_fedavg(local_steps=2, batch_size=4, curvature="exact")
    program = round_program(hs.Simulation(algorithm, problem, federation, cohort=2, at_once=1))
    orders = set(CONVOLUTION.findall(program.as_text()))
    assert orders <= {"b01f_01io"}, orders
