"""Claims against numbers whose verdict is plain."""

import math

import pytest

from headstart_papers.results import load
from headstart_papers.verdicts import judge
from tests.papers.made_up import claim, experiment, fill, write

NOISE = (-0.01, 0.0, 0.01)
INTERVAL = 4.302652729911275 / math.sqrt(3)  # of three values with deviation 1


def verdict(tmp_path, text, values, top="", profile="full", **more):
    paper = experiment(tmp_path, top=top, rest=text)
    fill(paper, tmp_path, values, profile, **more)
    return judge(paper.claims[0], paper, load(paper, tmp_path, profile))


def apart(gap, noise=1.0):
    """``a`` is better than ``b`` by a gap that varies with the seed, whatever else does."""
    return lambda row, method, seed: 0.5 + 0.1 * seed + (gap + noise * NOISE[seed] if method == "a" else 0)


@pytest.mark.parametrize(
    ("gap", "outcome"), [(0.03, "reproduced"), (0.02, "undecided"), (-0.02, "undecided"), (-0.03, "not reproduced")]
)
def test_an_order_is_decided_by_the_interval_of_paired_differences(tmp_path, gap, outcome):
    assert 0.02 < INTERVAL / 100 < 0.03
    found = verdict(tmp_path, claim("a > b"), apart(gap))
    assert found.outcome == outcome
    assert found.holding == (2 if outcome == "reproduced" else 0)
    assert found.singles[0].difference.mean == pytest.approx(100 * gap)
    assert found.singles[0].difference.half_width == pytest.approx(INTERVAL)


@pytest.mark.parametrize(
    ("gap", "margin", "outcome"),
    [
        (0.0, 3, "reproduced"),
        (0.0, 2, "undecided"),
        (-0.04, 2, "undecided"),
        (-0.05, 2, "not reproduced"),
        (0.03, 0, "reproduced"),
    ],
)
def test_at_least_as_good_to_a_margin(tmp_path, gap, margin, outcome):
    assert verdict(tmp_path, claim("a >= b", more=f"margin = {margin}"), apart(gap)).outcome == outcome


def test_equal_runs_are_at_least_as_good_and_not_better(tmp_path):
    assert verdict(tmp_path, claim("a >= b"), apart(0, 0)).outcome == "reproduced"
    assert verdict(tmp_path, claim("a > b"), apart(0, 0)).outcome == "undecided"


def test_one_row_that_does_not_hold_is_enough(tmp_path):
    def values(row, method, seed):
        return apart(0.1 if row == "easy" else -0.1)(row, method, seed)

    found = verdict(tmp_path, claim("a > b"), values)
    assert [single.outcome for single in found.singles] == ["reproduced", "not reproduced"]
    assert (found.outcome, found.holding) == ("not reproduced", 1)
    assert found.statistic == (
        "a - b: +10.00 ± 2.48 (p = 0.003, 3 seeds) in easy; a - b: -10.00 ± 2.48 (p = 0.003, 3 seeds) in hard"
    )


def test_a_lower_loss_and_an_order_between_rows(tmp_path):
    text = claim("easy/a < hard/a", "loss")
    found = verdict(tmp_path, text, lambda row, method, seed: (0.9 if row == "easy" else 0.5) + NOISE[seed])
    assert found.outcome == "reproduced"
    assert found.statistic == "hard/a - easy/a: +0.400 ± 0.000 (p < 0.001, 3 seeds)"


def test_of_many_comparisons_the_weakest_is_shown(tmp_path):
    text = '[[claims]]\ntext = "x"\nplace = "y"\nscore = "accuracy"\norder = ["a > b", "easy/a > hard/b", "b < a"]\n'
    paper = experiment(tmp_path, rest=text)
    fill(paper, tmp_path, lambda row, method, seed: apart(0.2 if row == "easy" else 0.3)(row, method, seed))
    found = judge(paper.claims[0], paper, load(paper, tmp_path, "full"))
    assert len(found.singles) == 3  # the same comparison is not counted twice
    many = type(found)(found.claim, found.singles * 2)
    assert many.statistic.startswith("6 of 6 comparisons hold; the weakest: a - b: +20.00")


def test_a_claim_on_speed_takes_the_mean_of_the_curve_after_the_start(tmp_path):
    paper = experiment(tmp_path, rest=claim("a > b", more="curve = true"))
    for unit in paper.units("full"):
        level = 0.2 + NOISE[unit.seeds[0]] if unit.method == "a" else 0.0
        # The same start, which is far off, and the same end.
        write(tmp_path, unit, {"accuracy": 0.9}, curves={"accuracy": [[[-5.0, level, 0.9]]]})
    found = judge(paper.claims[0], paper, load(paper, tmp_path, "full"))
    assert found.outcome == "reproduced"
    assert found.singles[0].difference.mean == pytest.approx(10)


def test_an_evaluation_shortly_after_another_counts_little_for_speed(tmp_path):
    paper = experiment(tmp_path, rest=claim("a > b", more="curve = true\nrows = ['easy']"))
    for unit in paper.units("full"):
        curve, evaluated = ([0.0, 0.4], [0, 100]) if unit.method == "b" else ([0.0, 0.4, 0.9], [0, 98, 100])
        write(tmp_path, unit, {"accuracy": 0.9}, curves={"accuracy": [[curve]]}, evaluated=evaluated)
    found = judge(paper.claims[0], paper, load(paper, tmp_path, "full"))
    assert found.singles[0].difference.mean == pytest.approx(1.0)  # 2% of the rounds, 50 points higher


def test_only_common_seeds_are_compared(tmp_path):
    paper = experiment(tmp_path, rest=claim("a > b", more='rows = ["easy"]'))
    for unit in paper.units("full"):
        if (unit.method, unit.seeds[0]) != ("b", 0):
            write(tmp_path, unit, {"accuracy": apart(0.1)(unit.row, unit.method, unit.seeds[0])})
    found = judge(paper.claims[0], paper, load(paper, tmp_path, "full"))
    assert found.singles[0].difference.count == 2
    assert found.singles[0].difference.mean == pytest.approx(10.5)


def test_one_seed_decides_nothing_but_has_a_sign(tmp_path):
    found = verdict(tmp_path, claim("a > b"), apart(0.1), top="")
    assert found.outcome == "reproduced"
    paper = experiment(tmp_path, rest=claim("a > b"))
    for path in tmp_path.rglob("*.json"):
        if not path.stem.endswith("seed1"):
            path.unlink()
    found = judge(paper.claims[0], paper, load(paper, tmp_path, "full"))
    assert found.outcome == "undecided"
    assert "a - b: +10.00 (1 seed) in easy, the paper's sign, but one seed decides nothing" in found.statistic


def test_what_is_missing_is_undecided_and_said(tmp_path):
    paper = experiment(tmp_path, rest=claim("a > b"))
    fill(paper, tmp_path, apart(0.1))
    for path in tmp_path.rglob("hard.a.*.json"):
        path.unlink()
    found = judge(paper.claims[0], paper, load(paper, tmp_path, "full"))
    assert found.outcome == "undecided"
    assert found.statistic == "a - b: +10.00 ± 2.48 (p = 0.003, 3 seeds) in easy; not run yet: hard/a"
    fill(paper, tmp_path, apart(0.1), "tiny")
    found = judge(paper.claims[0], paper, load(paper, tmp_path, "tiny"))
    assert found.outcome == "undecided"
    assert found.statistic.endswith("; not part of the tiny run: hard/a, hard/b")


@pytest.mark.parametrize(
    ("score", "order", "outcome"),
    [
        ("accuracy", "a > b", "not reproduced"),
        ("accuracy", "b > a", "reproduced"),
        ("loss", "a > b", "reproduced"),
        ("loss", "a < b", "not reproduced"),
    ],
)
def test_a_run_that_diverged_is_the_worst(tmp_path, score, order, outcome):
    def values(row, method, seed):
        return math.nan if method == "a" and seed == 1 else 0.5

    found = verdict(tmp_path, claim(order, score), values)
    assert found.outcome == outcome
    assert "a diverged with 1 of 3 seeds, which counts as worst" in found.statistic


def test_if_both_diverge_nothing_is_known(tmp_path):
    found = verdict(tmp_path, claim("a > b"), lambda row, method, seed: math.nan)
    assert found.outcome == "undecided"
    assert "a diverged with 3 of 3 seeds and b diverged with 3 of 3 seeds" in found.statistic


def test_repetitions_of_a_measurement_are_not_paired(tmp_path):
    paper = experiment(tmp_path, top="together = true", rest=claim("a < b", "ms", 'rows = ["easy"]'))
    for unit in paper.units("full"):
        # As pairs these differ by exactly one.
        times = [2.0, 4.0, 6.0] if unit.method == "b" else [1.0, 3.0, 5.0]
        write(tmp_path, unit, {"accuracy": 0.5}, extras={"milliseconds": times})
    found = judge(paper.claims[0], paper, load(paper, tmp_path, "full"))
    assert found.outcome == "undecided"
    assert "3 repetitions" in found.statistic
