import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.data.partitions.dealing import apportioned, factorized, shuffled_within, sides, sorted_within
from headstart.errors import UsageError
from tests.data.partitions.common import samples

GROUPS = st.lists(st.integers(0, 5), max_size=40)


@given(GROUPS, st.integers(1, 2**32))
def test_a_shuffle_sorts_by_group_and_then_by_key(groups, seed):
    groups = np.array(groups, int)
    keys = np.random.default_rng(seed).integers(0, 2**64, len(groups), dtype=np.uint64)
    assert shuffled_within(groups, keys).tolist() == np.lexsort((keys, groups)).tolist()


def test_keys_that_agree_in_their_high_bits_are_told_apart():
    # 2**20 groups and 2**12 rows leave 32 bits of the key.
    groups = np.zeros(2**12, int)
    groups[-1] = 2**20 - 1
    keys = np.random.default_rng(0).permutation(2**12).astype(np.uint64)
    assert shuffled_within(groups, keys).tolist() == np.lexsort((keys, groups)).tolist()


def test_copies_do_not_go_the_same_way():
    keys = np.random.default_rng(0).integers(0, 2**64, 2, dtype=np.uint64)[np.arange(1000) % 2]
    order = shuffled_within(np.zeros(1000, int), keys)
    assert sorted(order) == list(range(1000))
    assert 200 < (order[:500] % 2).sum() < 300


VALUES = {
    "few": st.integers(-2, 2).map(float),
    "floats": st.floats(allow_nan=False),
    "zeros": st.sampled_from([0.0, -0.0, 1e-300, -1e-300]),
    "integers": st.integers(-(2**63), 2**63 - 1),
    "times": st.integers(-(10**6), 10**6).map(lambda day: np.datetime64(day, "D")),
}


@pytest.mark.parametrize("kind", VALUES)
@given(groups=GROUPS, data=st.data())
def test_sorting_by_value_breaks_ties_by_key(kind, groups, data):
    groups = np.array(groups, int)
    values = np.array(data.draw(st.lists(VALUES[kind], min_size=len(groups), max_size=len(groups))))
    keys = np.random.default_rng(0).integers(0, 2**64, len(groups), dtype=np.uint64)
    assert sorted_within(groups, values, keys).tolist() == np.lexsort((keys, values, groups)).tolist()


def test_values_that_agree_in_their_high_bits_are_told_apart():
    groups = np.zeros(2**12, int)
    groups[-1] = 2**30
    values = np.append(np.random.default_rng(0).permutation(2**12 - 1) / 2**12, 1e300)
    assert sorted_within(groups, values, np.zeros(2**12, np.uint64)).tolist() == np.lexsort((values, groups)).tolist()


@given(st.integers(0, 10_000), st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=30), st.integers(0, 5))
def test_apportioned_numbers_sum_to_the_total(extra, weights, least):
    weights = np.array(weights)
    numbers = apportioned(extra + least * len(weights), weights, least)
    assert numbers.sum() == extra + least * len(weights)
    assert (np.abs(numbers - least - extra * weights / weights.sum()) < 1 + 1e-6).all()


@pytest.mark.parametrize(
    "values",
    [
        np.array([3, -1, 3, 10**12]),
        np.array([3, 5, 3, 4], np.uint8),
        np.array(["b", "a", "b", "c"]),
        np.array([0.5, -1.0, 0.5, 7.0]),
        np.array(["2020-01-03", "2020-01-01", "2020-01-03", "2021-01-01"], "datetime64[D]"),
    ],
)
def test_factorized_is_unique_in_order(values):
    distinct, codes = factorized(values, "column")
    expected, which = np.unique(values, return_inverse=True)
    assert distinct.to_numpy(zero_copy_only=False).tolist() == expected.tolist()
    assert codes.tolist() == which.tolist()


def test_factorized_leaves_out_dictionary_entries_of_no_row():
    column = pa.array(["z", "b", "a", "z"]).dictionary_encode().take(pa.array([0, 2, 0]))
    distinct, codes = factorized(column, "column")
    assert (distinct.to_pylist(), codes.tolist()) == (["a", "z"], [1, 0, 1])


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (np.array([1.0, np.nan, np.nan]), "column has no value in row 1; 2 rows have none"),
        (np.array(["a", None, "b"], object), "column has no value in row 1; 1 rows have none"),
        (np.array(["a", 3], object), "column cannot be sorted"),
    ],
)
def test_what_cannot_be_factorized_is_refused(values, words):
    with pytest.raises(UsageError, match=words):
        factorized(values, "column")


def test_a_missing_test_set_is_set_apart_class_by_class():
    these = samples(per_class=50)
    train, test, notes = sides(these, 0, 0.3)
    assert sorted([*train, *test]) == list(range(200))
    assert np.bincount(these.y[test]).tolist() == [15] * 4
    assert notes == ("toy has no test set of its own: 0.3 of every class was set apart as one.",)


def test_a_side_without_samples_is_refused():
    with pytest.raises(UsageError, match=r"share of 0.001 leaves no test samples of 240"):
        sides(samples(), 0, 0.001)
