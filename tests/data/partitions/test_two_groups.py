import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.data.partitions import TwoGroups
from headstart.errors import UsageError
from tests.data.partitions.common import assert_contract, class_counts, samples

SEEDS = st.integers(0, 2**32 - 1)


@pytest.mark.parametrize(
    ("options", "stock", "classes", "train", "test"),
    [
        ({"a": 196, "test_a": 34}, (6000, 1000), 10, 36_750, 6_375),
        ({"a": 68, "test_a": 34}, (5000, 1000), 10, 12_750, 6_375),
        # 25 clients with 5 a, and 25 with 2 a alone.
        ({"a": 68, "test_a": 34, "overlap": False}, (5000, 1000), 10, 11_900, 5_950),
        # 25 clients with 10 a, and 25 with 5 a / 2; 15 // 2 = 7.
        ({"a": 68, "test_a": 15}, (2500, 500), 20, 25 * (680 + 170), 25 * (150 + 37)),
    ],
)
def test_the_papers_arithmetic(options, stock, classes, train, test):
    partition = TwoGroups(clients=50, **options)(samples(stock[0], classes, test=stock[1], side=1), 0)
    assert (len(partition.train.rows), len(partition.query.rows)) == (train, test)
    assert len(np.unique(partition.train.rows)) == train
    rare = (class_counts(partition, "train") > 0)[:, classes // 2 :]
    # Table 2: the rare classes go round among 25 clients, one each.
    assert sorted(rare.sum(axis=1)) == [0] * 25 + [1] * 25
    assert sorted(rare.sum(axis=0)) == ([5] * 5 if classes == 10 else [2] * 5 + [3] * 5)


def test_table_2_pairs_the_first_common_class_with_the_first_rare_one():
    counts = class_counts(TwoGroups(clients=10, a=4, test_a=2)(samples(60, 10, test=30), 0), "train")
    assert sorted(map(tuple, counts)) == sorted(
        [(4,) * 5 + (0,) * 5] * 5 + [tuple(2 * (c == i) + 8 * (c == 5 + i) for c in range(10)) for i in range(5)]
    )


@given(st.integers(2, 12), st.integers(2, 9), st.integers(2, 5), st.integers(1, 4), st.booleans(), SEEDS)
def test_contract_and_exact_counts(clients, a, test_a, half, overlap, seed):
    these = samples(clients * 2 * a, 2 * half, test=clients * 2 * test_a, values=3)
    partition = assert_contract(TwoGroups(clients, a, test_a, overlap), these, seed)
    for part, count in (("train", a), ("query", test_a)):
        counts = class_counts(partition, part)
        even = (counts == [count] * half + [0] * half).all(axis=1)
        few = count // 2 if overlap else 0
        skewed = (counts[:, :half].sum(axis=1) == few) & (counts.max(axis=1) == 2 * count)
        skewed &= counts.sum(axis=1) == few + 2 * count
        assert (even | skewed).all()
        assert abs(int(even.sum()) - (clients + 1) // 2) <= (skewed & even).sum()
    both = class_counts(partition, "train") > 0, class_counts(partition, "query") > 0
    if a > 1 and test_a > 1:
        assert (both[0] == both[1]).all()


@given(st.integers(1, 6), SEEDS)
def test_with_shots_some_test_samples_are_adapted_on_and_the_others_scored(shots, seed):
    these = samples(60, 10, test=40)
    without = TwoGroups(clients=10, a=4, test_a=4)(these, seed)
    partition = assert_contract(TwoGroups(clients=10, a=4, test_a=4, shots=shots), these, seed)
    assert partition.support.counts.tolist() == [shots] * 10
    for support, query, tests in zip(partition.support, partition.query, without.query, strict=True):
        assert sorted([*support, *query]) == sorted(tests)
    assert [rows.tolist() for rows in partition.train] == [rows.tolist() for rows in without.train]


def test_shots_are_of_any_class():
    partition = TwoGroups(clients=50, a=4, test_a=4, shots=5)(samples(200, 10, test=200), 0)
    counts = class_counts(partition, "support")
    first = counts[:, 5:].sum(axis=1) == 0
    # 5 of 20 samples, 4 of each of 5 classes: not one of each by rule, and all classes alike on average.
    assert (counts[first].max(axis=1) > 1).any()
    np.testing.assert_allclose(counts[first][:, :5].mean(axis=0), 1, atol=0.6)


def test_clients_are_mixed():
    partition = TwoGroups(clients=10, a=10, test_a=4)(samples(200, 10, test=100), 0)
    assert len(set((partition.train.counts == 50)[:5])) == 2


@given(st.integers(2, 10), st.integers(2, 20), st.integers(2, 20), SEEDS)
def test_without_a_test_set_one_is_set_apart_that_is_just_large_enough(clients, a, test_a, seed):
    most = TwoGroups(clients, a, test_a)._wanted(4, a) + TwoGroups(clients, a, test_a)._wanted(4, test_a)
    these = samples(int(most.sum(axis=0).max()) + 2, 4)
    partition = assert_contract(TwoGroups(clients, a, test_a), these, seed)
    assert "has no test set of its own" in partition.notes[0]


@given(st.integers(4, 20), st.integers(31, 60))
def test_too_few_samples_are_refused_with_a_number_that_works(clients, a):
    these = samples(60, 4, test=4 * clients)

    def deal(a):
        TwoGroups(clients=clients, a=a, test_a=2)(these, 0)

    with pytest.raises(UsageError, match=f"{clients} clients with a = {a} want .* samples of class class") as refused:
        deal(a)
    fits = int(refused.value.remedy.removeprefix("Lower a to ").split(",")[0])
    deal(fits)
    with pytest.raises(UsageError):
        deal(fits + 1)


def test_too_many_clients_for_any_number_are_told_so():
    with pytest.raises(UsageError, match=r"(?s)but there are 3.*\n *Take fewer clients"):
        TwoGroups(clients=20, a=2, test_a=2)(samples(3, 4, test=3), 0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"clients": 1}, "clients = 1"),
        ({"a": 1}, "a = 1"),
        ({"shots": 0}, "shots = 0"),
        ({"shots": 5}, "shots = 5 of a client's 5 test samples.*Lower shots to 4 or less, or raise test_a"),
        ({"test_a": 500}, "test_a = 500 want .* samples of class class 0, but there are 20.*Lower test_a"),
    ],
)
def test_refusals(options, words):
    with pytest.raises(UsageError, match=f"(?s){words}"):
        TwoGroups(**{"clients": 4, "a": 2, "test_a": 2} | options)(samples(20, 10, test=20), 0)


def test_one_class_makes_no_two_groups():
    with pytest.raises(UsageError, match=r"(?s)has one class.*two classes or more"):
        TwoGroups(clients=2, a=2, test_a=2)(samples(20, 1, test=20), 0)
