"""Claims against numbers whose verdict is plain."""

import math

import numpy as np
import pytest
from scipy import stats

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
    ("gap", "outcome"), [(0.03, "reproduced"), (0.02, "undecided"), (-0.02, "undecided"), (-0.04, "not reproduced")]
)
def test_an_order_is_decided_by_the_interval_of_paired_differences(tmp_path, gap, outcome):
    assert 0.02 < INTERVAL / 100 < 0.03
    found = verdict(tmp_path, claim("a < b", "loss"), apart(gap))  # of losses the paper reports nothing
    assert found.outcome == outcome
    assert found.holding == (2 if outcome == "reproduced" else 0)
    assert found.singles[0].difference.mean == pytest.approx(gap)
    assert found.singles[0].difference.half_width == pytest.approx(INTERVAL / 100)


@pytest.mark.parametrize(
    ("gap", "margin", "outcome"),
    [
        (0.0, 3, "reproduced"),
        (0.0, 2, "undecided"),
        (-0.04, 2, "undecided"),
        (-0.06, 2, "not reproduced"),
        (0.03, 0, "reproduced"),
    ],
)
def test_at_least_as_good_to_a_margin(tmp_path, gap, margin, outcome):
    assert verdict(tmp_path, claim("a >= b", more=f"margin = {margin}"), apart(gap)).outcome == outcome


def test_equal_runs_are_at_least_as_good_and_not_better(tmp_path):
    assert verdict(tmp_path, claim("a >= b"), apart(0, 0)).outcome == "reproduced"
    assert verdict(tmp_path, claim("a < b", "loss"), apart(0, 0)).outcome == "undecided"


def test_one_row_that_does_not_hold_is_enough(tmp_path):
    def values(row, method, seed):
        return apart(0.1 if row == "easy" else -0.1)(row, method, seed)

    found = verdict(tmp_path, claim("a > b"), values)
    assert [single.outcome for single in found.singles] == ["reproduced", "not reproduced"]
    assert (found.outcome, found.holding) == ("not reproduced", 1)
    assert found.statistic == (
        "a - b: +10.00 ± 2.48 (p = 0.003, 3 seeds; the paper +10.00) in easy; "
        "a - b: -10.00 ± 2.48 (p = 0.003, 3 seeds) in hard"
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
    assert (
        "a - b: +10.00 (1 seed; the paper +10.00) in easy, the paper's sign, but one seed decides nothing"
        in found.statistic
    )


def test_what_is_missing_is_undecided_and_said(tmp_path):
    paper = experiment(tmp_path, rest=claim("a > b"))
    fill(paper, tmp_path, apart(0.1))
    for path in tmp_path.rglob("hard.a.*.json"):
        path.unlink()
    found = judge(paper.claims[0], paper, load(paper, tmp_path, "full"))
    assert found.outcome == "undecided"
    assert found.statistic == "a - b: +10.00 ± 2.48 (p = 0.003, 3 seeds; the paper +10.00) in easy; not run yet: hard/a"
    fill(paper, tmp_path, apart(0.1), "tiny")
    found = judge(paper.claims[0], paper, load(paper, tmp_path, "tiny"))
    assert found.outcome == "undecided"
    assert found.statistic.endswith("; not part of the tiny run: hard/a, hard/b")


def five(tmp_path, text, values):
    """A verdict on the easy setting, with five seeds of each method."""
    paper = experiment(tmp_path, rest=text.replace("place", 'rows = ["easy"]\nplace'))
    for unit in paper.units("full", 5):
        score = values(unit.method, unit.seeds[0])
        # Both begin at 1, so that a loss above 10 has diverged.
        curve = np.array([[[1.0, score, score]]])
        write(
            tmp_path,
            unit,
            {"accuracy": 1 - score if np.isfinite(score) else math.nan, "loss": score},
            curves={"accuracy": 1 - curve, "loss": curve},
        )
    return judge(paper.claims[0], paper, load(paper, tmp_path, "full", 5))


@pytest.mark.parametrize(
    ("score", "order", "outcome"),
    [
        ("accuracy", "a > b", "not reproduced"),
        ("accuracy", "b > a", "reproduced"),
        ("loss", "a > b", "reproduced"),
        ("loss", "a < b", "not reproduced"),
    ],
)
def test_who_diverges_more_often_than_by_chance_is_worse(tmp_path, score, order, outcome):
    found = five(tmp_path, claim(order, score), lambda method, seed: math.nan if method == "a" and seed else 0.5)
    assert found.outcome == outcome
    told = "which decides (p = 0.048)" if outcome == "reproduced" else "and what diverges with most seeds is not better"
    assert f"a diverged with 4 of 5 seeds, {told}" in found.statistic


@pytest.mark.parametrize("lost", [math.nan, 1.5e12])
def test_one_diverged_seed_of_five_decides_nothing(tmp_path, lost):
    def values(method, seed):
        return lost if method == "a" and seed == 4 else 0.2 + 0.01 * seed if method == "a" else 0.5

    found = five(tmp_path, claim("a < b", "loss"), values)
    assert found.outcome == "reproduced"  # by the four seeds that are left, although the mean of a would be 3e11
    assert found.singles[0].difference.count == 4
    assert "4 seeds, a diverged with 1 of 5 seeds" in found.statistic


def test_a_loss_up_to_ten_times_that_of_the_untrained_model_has_not_diverged(tmp_path):
    found = five(tmp_path, claim("a > b", "loss"), lambda method, seed: 9.9 if method == "a" else 0.5)
    assert (found.outcome, found.singles[0].difference.count) == ("reproduced", 5)
    found = five(tmp_path, claim("a > b", "loss"), lambda method, seed: 10.1 if method == "a" else 0.5)
    assert "a diverged with 5 of 5 seeds, which decides (p = 0.008)" in found.statistic


def test_where_most_seeds_diverged_on_either_side_too_few_are_left(tmp_path):
    found = five(tmp_path, claim("b > a"), lambda method, seed: math.nan if (seed < 3) == (method == "a") else 0.5)
    assert found.outcome == "undecided"
    assert found.statistic.endswith(
        "b diverged with 2 of 5 seeds and a diverged with 3 of 5 seeds, so that too few are left to compare in easy"
    )


def test_what_diverges_with_most_seeds_is_not_better_whatever_the_other_does(tmp_path):
    found = five(tmp_path, claim("a > b"), lambda method, seed: math.nan if method == "b" or seed < 3 else 0.5)
    assert found.outcome == "not reproduced"
    assert "a diverged with 3 of 5 seeds and b diverged with 5 of 5 seeds, and what diverges with" in found.statistic


def test_a_contrary_comparison_of_many_has_to_survive_holms_correction(tmp_path):
    # t = -5.2 with two degrees of freedom: p = 0.018 one-sided, below 0.025 alone and above it among two.
    alone = verdict(tmp_path, claim("a < b", "loss", 'rows = ["easy"]'), apart(-0.03))
    assert alone.outcome == "not reproduced"
    found = verdict(tmp_path, claim("a < b", "loss"), apart(-0.03))
    assert [single.outcome for single in found.singles] == ["not reproduced"] * 2
    assert found.outcome == "undecided"


@pytest.mark.parametrize(
    ("gap", "plain", "substantial"),
    [
        (0.03, "reproduced in direction", "undecided"),
        (0.06, "reproduced in size", "undecided"),
        (0.08, "reproduced in size", "reproduced"),
        (0.02, "not reproduced in size", "not reproduced"),
        (-0.01, "not reproduced in size", "not reproduced"),
        (-0.03, "not reproduced", "not reproduced"),
    ],
)
def test_the_papers_own_size_of_an_effect(tmp_path, gap, plain, substantial):
    # The paper reports +10 in the easy setting; half of it is a difference of its size.
    easy = 'rows = ["easy"]\n'
    assert verdict(tmp_path, claim("a > b", more=easy), apart(gap)).label == plain
    assert verdict(tmp_path, claim("a > b", more=f"{easy}substantial = true"), apart(gap)).label == substantial


def test_a_claim_on_two_scores(tmp_path):
    text = claim("", more='rows = ["easy"]').replace('order = ""', 'order = ["a > b", "loss: a > b"]')
    found = verdict(tmp_path, text, apart(0.1))
    assert [single.outcome for single in found.singles] == ["reproduced", "not reproduced"]
    assert "loss: a - b: -0.100" in found.statistic


@pytest.mark.parametrize(("more", "mean"), [("", -25.0), ("curve = true", -12.5)])
def test_at_equal_time_the_slower_is_judged_where_the_faster_has_finished(tmp_path, more, mean):
    paper = experiment(tmp_path, rest=claim("a > b", more=f"{more}\nwithin = 'seconds'\nrows = ['easy']"))
    for unit in paper.units("full"):
        # Both go up evenly; a ends higher, but takes four times as long.
        end, last = (1.0, 40.0) if unit.method == "a" else (0.5, 10.0)
        curves = {"accuracy": [[[0.0, end / 2, end]]]}
        write(tmp_path, unit, {"accuracy": end}, curves=curves, seconds=[0.0, last / 2, last])
    found = judge(paper.claims[0], paper, load(paper, tmp_path, "full"))
    assert found.outcome == "not reproduced"
    assert found.singles[0].difference.mean == pytest.approx(mean, abs=0.1)


def test_how_many_seeds_would_decide(tmp_path):
    found = verdict(tmp_path, claim("a < b", "loss", 'rows = ["easy"]'), apart(0.02))
    assert found.outcome == "undecided"
    # Mean 2 and deviation 1: t(0.975, 3) / 2 = 1.59 < 2 with four seeds, and 2.48 > 2 with three.
    assert found.seeds_to_decide == 4


def test_one_contrary_comparison_decides_before_the_others_do(tmp_path):
    """Of two, one hardly differs and would take thousands; the other is contrary, to Holm's level, long before."""
    gaps = {"easy": -0.02, "hard": 0.0001}
    found = verdict(tmp_path, claim("a < b", "loss"), lambda row, *rest: apart(gaps[row])(row, *rest))
    assert found.outcome == "undecided"
    # t = -2 sqrt(n) with n - 1 degrees: twice its p falls below 0.025 with five seeds.
    levels = [2 * stats.t.cdf(-2 * math.sqrt(count), count - 1) for count in (4, 5)]
    assert levels[1] < 0.025 < levels[0]
    assert found.seeds_to_decide == 5


def test_late_evaluations_are_averaged(tmp_path):
    paper = experiment(tmp_path, rest=claim("a > b", more="late = 2\nrows = ['easy']"))
    for unit in paper.units("full"):
        level = 0.2 + NOISE[unit.seeds[0]] if unit.method == "a" else 0.0
        write(tmp_path, unit, {"accuracy": 0.9}, curves={"accuracy": [[[9.0, 0.5 + level, 0.5 - level / 2]]]})
    found = judge(paper.claims[0], paper, load(paper, tmp_path, "full"))
    assert found.outcome == "reproduced"
    assert found.singles[0].difference.mean == pytest.approx(5)


def test_if_both_diverge_neither_is_better(tmp_path):
    found = verdict(tmp_path, claim("a > b"), lambda row, method, seed: math.nan)
    assert found.outcome == "not reproduced"
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


def test_a_gain_that_is_greater_in_one_row_than_in_another(tmp_path):
    def values(row, method, seed):
        return apart(0.1 if row == "easy" else 0.3)(row, method, seed)

    found = verdict(tmp_path, claim("hard/a - b > easy/a - b"), values)
    assert found.outcome == "reproduced"
    assert found.statistic == "hard/(a - b) - easy/(a - b): +20.00 ± 0.00 (p < 0.001, 3 seeds)"
    assert verdict(tmp_path, claim("hard/a - b < easy/a - b"), values).outcome == "not reproduced"


@pytest.mark.parametrize(("bound", "outcome"), [("30", "reproduced"), ("50.5", "undecided"), ("70", "not reproduced")])
def test_a_score_against_a_number(tmp_path, bound, outcome):
    found = verdict(tmp_path, claim(f"b > {bound}"), lambda row, method, seed: 0.5 + NOISE[seed])
    assert found.outcome == outcome
    assert found.statistic.startswith(f"b - {bound}: ")
