"""Plans and estimates as tables, and the picture of a bound."""

from io import StringIO

import numpy as np
from rich.console import Console

from headstart.report import bounds_table, estimates_table, plans_table, plot_bound
from headstart.theory import plan
from headstart.theory.estimate import Estimate, Estimates
from headstart.theory.measure import Trace
from tests.theory.test_planner import AMONG, MILD


def printed(table, width=80):
    console = Console(file=StringIO(), width=width)
    console.print(table)
    return console.file.getvalue()


def test_estimates_are_shown_with_their_errors_and_origin():
    found = Estimates({"gradient_noise": Estimate(1.23456, 0.0789, 40, "mean over 40 samples [all]")})
    text = printed(estimates_table(found))
    for part in ("gradient_noise", "1.235", "0.079", "40", "mean over"):
        assert part in text
    assert "[all]" in " ".join(text.split())


def test_every_method_is_in_the_table_and_fits_a_terminal():
    plans = plan(MILD, epsilon=0.1, **AMONG)
    text = printed(plans_table(plans))
    assert "…" not in text
    for method, found in plans.items():
        assert method.partition(" ")[0] in text
        if found.run is not None:
            assert f"{found.run.outer_lr:.3g}" in text
    assert text.count("no plan") == 1
    bounds = printed(bounds_table(plans))
    assert "…" not in bounds
    assert "memory_noise" in bounds
    assert "first-order" not in bounds


def test_a_picture_is_drawn(tmp_path):
    found = plan(MILD, epsilon=0.1, **AMONG, methods=["per-fedavg (exact)"])["per-fedavg (exact)"]
    rounds = np.arange(0, 100, 5)
    measured = Trace(rounds, 1 / (1 + rounds), 0.01 * rounds)
    plot_bound(measured, found.run, 0.1, "A run", tmp_path / "bound.png")
    assert (tmp_path / "bound.png").read_bytes().startswith(b"\x89PNG")
