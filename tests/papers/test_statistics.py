"""Intervals against SciPy's own and closed forms."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from headstart_papers.statistics import difference, estimate, paired_difference

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
