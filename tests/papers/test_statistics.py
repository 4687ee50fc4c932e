"""Intervals against SciPy's own and closed forms."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from headstart_papers.statistics import CONTRARY, difference, diverges_more, estimate, holm, paired_difference

VALUES = st.floats(-100, 100).map(lambda value: round(value, 3))
SAMPLES = st.lists(VALUES, min_size=2, max_size=8)


def test_two_values_have_a_closed_form():
    # With one degree of freedom Student's t is Cauchy's distribution.
    found = estimate([1.0, 3.0])
    assert found.mean == 2
    assert found.half_width == pytest.approx(math.tan(0.475 * math.pi))
    assert found.p == pytest.approx(1 - 2 / math.pi * math.atan(2))
    assert (found.low, found.high) == (found.mean - found.half_width, found.mean + found.half_width)


@given(SAMPLES)
def test_a_mean_is_as_scipy_has_it(values):
    assume(np.std(values) > 1e-3)
    found, theirs = estimate(values), stats.ttest_1samp(values, 0)
    low, high = theirs.confidence_interval(0.95)
    np.testing.assert_allclose([found.low, found.high, found.p], [low, high, theirs.pvalue], rtol=1e-6, atol=1e-9)


@given(st.lists(st.tuples(VALUES, VALUES), min_size=2, max_size=8))
def test_a_paired_difference_is_as_scipy_has_it(pairs):
    left, right = np.array(pairs).T
    assume(np.std(left - right) > 1e-3)
    found, theirs = paired_difference(left, right), stats.ttest_rel(left, right)
    low, high = theirs.confidence_interval(0.95)
    np.testing.assert_allclose([found.low, found.high, found.p], [low, high, theirs.pvalue], rtol=1e-6, atol=1e-9)


@given(SAMPLES, SAMPLES)
def test_a_difference_is_as_scipy_has_welchs(left, right):
    assume(min(np.std(left), np.std(right)) > 1e-3)
    found, theirs = difference(left, right), stats.ttest_ind(left, right, equal_var=False)
    low, high = theirs.confidence_interval(0.95)
    np.testing.assert_allclose([found.low, found.high, found.p], [low, high, theirs.pvalue], rtol=1e-6, atol=1e-9)
    assert found.count == min(len(left), len(right))


def test_one_value_has_no_interval():
    assert estimate([3.0]).half_width is None
    assert difference([3.0, 4.0], [1.0]).half_width is None
    assert estimate([3.0]).low == 3


@pytest.mark.parametrize(("value", "p"), [(2.0, 0.0), (0.0, 1.0)])
def test_values_that_are_all_the_same(value, p):
    for found in (estimate([value] * 3), difference([value] * 3, [0.0] * 3)):
        assert (found.mean, found.half_width, found.p) == (value, 0, p)


def test_a_bound_is_left_behind_where_the_interval_does():
    found = estimate([1.0, 2.0, 4.0])
    assert found.p_below(found.high) == pytest.approx(CONTRARY)
    assert found.p_below(found.low) == pytest.approx(1 - CONTRARY)
    assert found.p_below(0.0) == pytest.approx(stats.ttest_1samp([1.0, 2.0, 4.0], 0.0, alternative="less").pvalue)


@given(SAMPLES.filter(lambda values: len(set(values)) > 1), st.integers(2, 500))
def test_with_more_values_the_interval_is_that_of_their_number(values, count):
    found = estimate(values).with_count(count)
    deviation = np.std(values, ddof=1)
    assert (found.mean, found.count) == (estimate(values).mean, count)
    assert found.half_width == pytest.approx(stats.t.ppf(0.975, count - 1) * deviation / math.sqrt(count))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_is_the_step_down_procedure(p_values):
    adjusted = holm(p_values)
    for level in (0.01, 0.05, 0.2):
        rejected, left = set(), sorted(range(len(p_values)), key=lambda i: p_values[i])
        while left and (p_values[left[0]] * len(left) <= level):
            rejected.add(left.pop(0))
        assert {i for i, p in enumerate(adjusted) if p <= level} == rejected


def test_fishers_test_by_counting():
    # 4 of 5 against 1 of 5: of the ways to deal 5 of 10, those at least as uneven.
    ways = sum(math.comb(5, k) * math.comb(5, 5 - k) for k in (4, 5)) / math.comb(10, 5)
    assert diverges_more(4, 1, 5) == pytest.approx(ways)
