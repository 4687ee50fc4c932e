"""Against scipy's own functions, closed forms and published tables."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from headstart.statistics import association, holm, mean_interval, paired_test, rank_methods

RNG = np.random.default_rng(7)


def test_a_mean_has_students_interval():
    values = RNG.normal(size=12)
    low, high = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    found = mean_interval(np.append(values, [np.nan, np.inf]))
    assert found == pytest.approx((values.mean(), low, high, 12))
    assert found.excludes(high + 1e-9)
    assert not found.excludes(values.mean())


def test_one_value_has_no_interval_and_none_has_no_mean():
    assert mean_interval(np.array([2.0]))[0] == 2.0
    assert not mean_interval(np.array([2.0])).known
    assert not mean_interval(np.array([2.0])).excludes(0)
    assert math.isnan(mean_interval(np.array([])).mean)


def test_the_interval_covers_the_truth_as_often_as_it_says():
    means = [mean_interval(RNG.normal(size=5)) for _ in range(4000)]
    assert np.mean([not interval.excludes(0.0) for interval in means]) == pytest.approx(0.95, abs=0.015)


def test_association_is_spearmans():
    x = RNG.normal(size=40)
    y = x + RNG.normal(size=40)
    found = association(x, y)
    assert found.rho == pytest.approx(stats.spearmanr(x, y).statistic)
    assert found.low < found.rho < found.high
    half = 1.959963984540054 * math.sqrt((1 + found.rho**2 / 2) / 37)
    assert math.atanh(found.high) - math.atanh(found.rho) == pytest.approx(half)
    assert found.excludes_none
    assert association(x, -(x**3)).rho == pytest.approx(-1)


def test_association_of_a_constant_or_of_few_is_unknown():
    assert math.isnan(association(np.ones(9), RNG.normal(size=9)).rho)
    assert math.isnan(association(np.arange(4), np.arange(4)).rho)


def test_paired_tests_are_scipys():
    first, second = RNG.normal(size=10), RNG.normal(size=10) + 0.5
    found = paired_test(np.append(first, np.nan), np.append(second, 1.0))
    assert found.t_p == pytest.approx(stats.ttest_rel(first, second).pvalue)
    assert found.rank_p == pytest.approx(stats.wilcoxon(first, second, method="exact").pvalue)
    assert (found.above, found.below, found.ties) == ((first > second).sum(), (first < second).sum(), 0)


def test_the_signed_rank_test_counts_all_signs():
    """Five pairs that all move one way: of 32 equally likely signs two are as extreme."""
    assert paired_test(np.arange(1.0, 6), np.zeros(5)).rank_p == pytest.approx(2 / 32)
    moves = np.array([1.0, -2.0, 3.0, 4.0, 5.0])
    sums = [
        sum(r for r, s in zip(range(1, 6), signs, strict=True) if s) for signs in itertools.product((0, 1), repeat=5)
    ]
    expected = 2 * np.mean([total <= 2 for total in sums])
    assert paired_test(moves, np.zeros(5)).rank_p == pytest.approx(expected)


def test_equal_pairs_differ_in_nothing():
    same = paired_test(np.ones(4), np.ones(4))
    assert (same.t_p, same.rank_p, same.ties) == (1.0, 1.0, 4)
    assert paired_test(np.full(4, 2.0), np.ones(4)).t_p == 0.0
    alone = paired_test(np.ones(1), np.zeros(1))
    assert math.isnan(alone.t_p)


def test_holm_by_its_definition():
    p = RNG.uniform(size=8) ** 3
    corrected = holm(p)
    for level in np.linspace(0.001, 0.999, 200):
        rejected = set()
        for place, index in enumerate(np.argsort(p)):
            if p[index] > level / (len(p) - place):
                break
            rejected.add(int(index))
        assert rejected == {i for i, value in enumerate(corrected) if value <= level}


def test_holm_leaves_out_what_was_not_tested():
    corrected = holm([0.01, math.nan, 0.02])
    assert corrected[0] == pytest.approx(0.02)
    assert math.isnan(corrected[1])
    assert holm([]) == []
    assert holm([0.9, 0.8]) == [1.0, 1.0]


def test_ranks_and_friedman_are_scipys():
    scores = RNG.normal(size=(9, 4)) + np.arange(4)
    found = rank_methods(scores, higher_is_better=True)
    assert found.friedman_p == pytest.approx(stats.friedmanchisquare(*scores.T).pvalue)
    assert found.ranks == pytest.approx(stats.rankdata(-scores, axis=1).mean(axis=0))
    assert found.ranks.sum() == pytest.approx(4 * 5 / 2)
    lower = rank_methods(scores, higher_is_better=False)
    assert lower.ranks == pytest.approx(5 - found.ranks)


@pytest.mark.parametrize(("methods", "q"), [(2, 1.960), (3, 2.343), (5, 2.728), (10, 3.164)])
def test_the_critical_difference_is_demsars(methods, q):
    """Demsar 2006, Table 5a: critical values of the two-tailed Nemenyi test at 0.05."""
    blocks = 7
    found = rank_methods(RNG.normal(size=(blocks, methods)), higher_is_better=True)
    assert found.critical_difference == pytest.approx(q * math.sqrt(methods * (methods + 1) / (6 * blocks)), abs=2e-3)


def test_methods_alike_are_joined_once():
    found = rank_methods(np.tile([4.0, 3.0, 2.0, 1.0], (30, 1)), higher_is_better=True)
    assert found.alike() == []
    near = found._replace(critical_difference=1.5)
    assert near.alike() == [(0, 1), (1, 2), (2, 3)]
    assert found._replace(critical_difference=9.0).alike() == [(0, 1, 2, 3)]


def test_rows_without_a_score_are_left_out():
    found = rank_methods(np.array([[1.0, np.nan], [1.0, 2.0]]), higher_is_better=True)
    assert found.blocks == 1
    assert found.ranks.tolist() == [2.0, 1.0]
    assert rank_methods(np.full((2, 2), np.nan), higher_is_better=True).blocks == 0
