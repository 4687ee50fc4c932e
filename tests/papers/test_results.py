"""Files become cells: merged over seeds, tuned, and only where their settings are the experiment's."""

import json
import math

import numpy as np
import pytest

from headstart.errors import UsageError
from headstart_papers.results import load
from tests.papers.made_up import GRID, experiment, fill, write

POINTS = tuple({"outer_lr": lr} for lr in (0.1, 0.2, 0.3))


def units(paper, profile="full", seeds=None, row="easy", method="a"):
    return [unit for unit in paper.units(profile, seeds) if (unit.row, unit.method) == (row, method)]


def test_seeds_of_separate_files_are_put_together_in_order_and_shown_in_percent(tmp_path):
    paper = experiment(tmp_path)
    fill(paper, tmp_path, lambda row, method, seed: 0.1 * seed + (method == "b"))
    results = load(paper, tmp_path, "full")
    cell = results.cell("easy", "a")
    assert cell.seeds == (0, 1, 2)
    np.testing.assert_allclose(cell.final("accuracy"), [0, 10, 20])
    np.testing.assert_allclose(cell.final("loss"), [1, 0.9, 0.8])
    np.testing.assert_allclose(cell.curve("accuracy"), [[0, 0, 0], [0, 5, 10], [0, 10, 20]])
    assert (cell.rounds, cell.took, cell.point) == (100, 180.0, {})
    assert results.cell("hard", "b").rounds == 200
    assert (results.missing, results.stale, results.progress) == ({}, (), (12, 12))
    assert (results.commits, results.versions) == (("abc1234",), {"jax": ("0.10.2",)})


def test_a_file_of_all_seeds_and_points(tmp_path):
    paper = experiment(tmp_path, top="together = true\ntune = 'accuracy'", grid=GRID)
    (unit,) = units(paper)
    final = np.arange(9).reshape(3, 3) / 10
    write(tmp_path, unit, {"accuracy": final, "loss": -final}, points=POINTS)
    cell = load(paper, tmp_path, "full").cell("easy", "a")
    assert cell.seeds == (0, 1, 2)
    np.testing.assert_allclose(cell.final("accuracy"), [60, 70, 80])
    np.testing.assert_allclose(cell.final("loss"), [-0.6, -0.7, -0.8])
    assert cell.point == {"outer_lr": 0.3}
    assert [point for point, _ in cell.points_table] == list(POINTS)
    np.testing.assert_allclose([mean for _, mean in cell.points_table], [10, 40, 70])
    # Nine runs took twelve seconds together.
    np.testing.assert_allclose(cell.x("seconds"), [0, 6 / 9, 12 / 9])
    np.testing.assert_allclose(cell.x("round"), [0, 50, 100])
    np.testing.assert_allclose(cell.x("samples"), [0, 50, 100])


@pytest.mark.parametrize(("score", "best"), [("accuracy", 1), ("loss", 0)])
def test_the_best_point_is_the_best_mean_over_files_and_no_one_that_diverged(tmp_path, score, best):
    paper = experiment(tmp_path, top=f"tune = '{score}'", grid=GRID)
    values = [[0.1, 0.5, 0.9], [0.2, 0.3, math.nan], [0.3, 0.4, 0.8]]
    for unit, mine in zip(units(paper), values, strict=True):
        write(tmp_path, unit, {score: np.array(mine)[:, None]}, points=POINTS)
    cell = load(paper, tmp_path, "full").cell("easy", "a")
    assert cell.point == POINTS[best]
    assert np.isnan(cell.points_table[2][1])
    np.testing.assert_allclose(cell.final(score), [cell.scores[score].scale * mine[best] for mine in values])


def test_a_cell_that_diverged_at_all_points_is_kept(tmp_path):
    paper = experiment(tmp_path, top="tune = 'loss'", grid=GRID)
    write(tmp_path, units(paper)[0], {"loss": np.full((3, 1), math.nan)}, points=POINTS)
    cell = load(paper, tmp_path, "full").cell("easy", "a")
    assert cell.point == POINTS[0]
    assert np.isnan(cell.final("loss")).all()


def test_what_is_missing_is_said(tmp_path):
    paper = experiment(tmp_path)
    write(tmp_path, units(paper)[1], {"accuracy": 0.5})
    results = load(paper, tmp_path, "full")
    assert results.missing[("easy", "a")] == (0, 2)
    assert results.missing[("easy", "b")] == (0, 1, 2)
    assert results.progress == (1, 12)
    assert results.cell("easy", "b") is None


def test_results_of_other_settings_are_ignored_and_counted(tmp_path):
    paper = experiment(tmp_path)
    quick = units(paper, "quick")[0]
    write(tmp_path, quick, {"accuracy": 0.5})
    write(tmp_path, units(paper)[1], {"accuracy": 0.5})
    assert load(paper, tmp_path, "full").stale == (quick.name,)
    assert load(paper, tmp_path, "full").cell("easy", "a").seeds == (1,)
    assert load(paper, tmp_path, "quick").cell("easy", "a").seeds == (0,)


@pytest.mark.parametrize("top", ["", "together = true"])
def test_another_number_of_seeds_is_read_too(tmp_path, top):
    paper = experiment(tmp_path, top)
    for unit in units(paper, seeds=2):
        write(tmp_path, unit, {"accuracy": 0.5})
    assert load(paper, tmp_path, "full").missing[("easy", "a")] == (2,)
    assert ("easy", "a") not in load(paper, tmp_path, "full", seeds=2).missing
    assert load(paper, tmp_path, "full", seeds=1).cell("easy", "a").seeds == (0, 1)


def test_a_seed_counts_once(tmp_path):
    paper = experiment(tmp_path, "together = true")
    for seeds in (1, 3):
        write(tmp_path, units(paper, seeds=seeds)[0], {"accuracy": 0.1 * seeds})
    cell = load(paper, tmp_path, "full").cell("easy", "a")
    np.testing.assert_allclose(cell.final("accuracy"), [30, 30, 30])


def test_extras_are_repetitions(tmp_path):
    paper = experiment(tmp_path)
    write(tmp_path, units(paper)[0], {"accuracy": 0.5}, extras={"milliseconds": [1.0, 2.0]})
    np.testing.assert_allclose(load(paper, tmp_path, "full").cell("easy", "a").final("ms"), [1, 2])


def test_time_during_which_something_ran(tmp_path):
    paper = experiment(tmp_path)
    # Two side by side from 0:00 to 1:00, another half a minute later.
    for unit, finished in zip(units(paper), ("00:01:00", "00:01:00", "00:02:30"), strict=True):
        write(tmp_path, unit, {"accuracy": 0.5}, finished=f"2026-01-01T{finished}+00:00")
    results = load(paper, tmp_path, "full")
    assert (results.took, results.wall_clock) == (180.0, 120.0)


def test_a_broken_file_is_named(tmp_path):
    paper = experiment(tmp_path)
    path = write(tmp_path, units(paper)[0], {"accuracy": 0.5})
    for text in ('{"fing', json.dumps({"other": 1})):
        path.write_text(text)
        with pytest.raises(UsageError, match=path.name):
            load(paper, tmp_path, "full")
