"""The complexity tables can be queried, compared and printed, and agree with themselves and with the plans."""

import io

import numpy as np
import pytest
from rich.console import Console

from headstart.errors import UsageError
from headstart.theory import local_memory, memory
from headstart.theory.complexity import COMPLEXITIES, SETTINGS, complexity_table, ratio, row, rows
from tests.theory.known import random_problem


def test_every_row_of_the_tables_is_there():
    count = {setting: len(rows(setting=setting)) for setting in SETTINGS}
    assert count == {"tasks": 7, "endless-tasks": 4, "cross-device": 2, "cross-silo": 2, "compositional": 3}
    assert len(rows()) == len(COMPLEXITIES) == 18
    assert len(rows(method="LocalMOML")) == 4


@pytest.mark.parametrize("entry", rows(setting="tasks"), ids=lambda entry: entry.method)
def test_samples_are_iterations_times_tasks_times_batch(entry):
    """Tables 1 and 7 agree, up to what MOML's iterations already contain and BSpiderBoost's rare large batches."""
    factors = [ratio(part, 0.1, 100) for part in (entry.iterations, entry.cohort, entry.batch)]
    total = ratio(entry.samples, 0.1, 100)
    if entry.method == "BSpiderBoost":
        total = ratio(entry.samples.split(" + ")[1], 0.1, 100)
    np.testing.assert_allclose(np.prod(factors), total)


def test_plans_grow_as_the_tables_say():
    constants = random_problem(0).constants
    arguments = constants, 0.5 / constants.smoothness, 1.0
    planned = {
        ("MOML v1", "tasks"): [memory.plan(*arguments, e, 10).samples for e in (1e-4, 5e-5)],
        ("LocalMOML", "cross-device"): [
            local_memory.cross_device_plan(*arguments, e, 10, 2).run.samples for e in (1e-4, 5e-5)
        ],
        ("LocalMOML", "cross-silo"): [
            local_memory.cross_silo_plan(*arguments, e, 10).run.samples for e in (1e-4, 5e-5)
        ],
    }
    for (method, setting), (rough, fine) in planned.items():
        entry = row(method, setting).samples
        expected = ratio(entry, 5e-5, 10) / ratio(entry, 1e-4, 10)
        np.testing.assert_allclose(fine / rough, expected, rtol=0.02)


def test_ratios_are_products_of_powers():
    assert ratio("1", 0.1) == 1
    np.testing.assert_allclose(ratio("n^1/2 eps^-4", 0.1, 9), 3e4)
    np.testing.assert_allclose(ratio("eps^6", 0.1), 1e-6)
    with pytest.raises(UsageError, match="depends on n"):
        ratio("n eps^-4", 0.1)
    with pytest.raises(UsageError, match="no power of n or eps"):
        ratio("m eps^-4", 0.1)


def test_a_table_can_be_printed():
    console = Console(width=200, file=io.StringIO())
    console.print(complexity_table())
    text = console.file.getvalue()
    assert "n¹ᐟ² ε⁻⁴" in text
    for entry in COMPLEXITIES:
        assert entry.method in text
    assert complexity_table(setting="cross-silo").row_count == 3


def test_wrong_names_are_helped():
    assert rows(method="localmoml") == rows(method="LocalMOML")
    with pytest.raises(UsageError, match="Did you mean 'localmoml'"):
        rows(method="LocalMML")
    with pytest.raises(UsageError, match="Did you mean 'cross-silo'"):
        rows(setting="crosssilo")
    with pytest.raises(UsageError, match="rows for: tasks, endless-tasks"):
        row("MAML")
