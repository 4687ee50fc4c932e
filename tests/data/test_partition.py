import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.data import two_groups
from headstart.errors import UsageError


def labels(each, classes=10):
    return np.random.default_rng(1).permutation(np.repeat(np.arange(classes), each))


def histogram(rows, of):
    return np.bincount(of[rows], minlength=of.max() + 1)


def test_the_papers_arithmetic():
    train = labels(6000)
    rows = two_groups(train, labels(1000), clients=50, a=196, test_a=34, seed=0)
    assert sum(map(len, rows.train)) == 36_750
    sizes = [len(r) for r in rows.train]
    assert (sizes.count(5 * 196), sizes.count(98 + 392)) == (25, 25)


@given(st.integers(2, 12), st.integers(2, 9), st.integers(2, 5), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_disjoint_exact_and_deterministic(clients, a, test_a, half, seed):
    train, test = labels(clients * 2 * a, 2 * half), labels(clients * 2 * test_a, 2 * half)
    rows, again = (two_groups(train, test, clients=clients, a=a, test_a=test_a, seed=seed) for _ in range(2))
    for dealt, repeated, of, count in ((rows.train, again.train, train, a), (rows.test, again.test, test, test_a)):
        everything = np.concatenate(dealt)
        assert len(np.unique(everything)) == len(everything)
        assert all(np.array_equal(one, other) for one, other in zip(dealt, repeated, strict=True))
        counts = [tuple(histogram(r, of)) for r in dealt]
        even = [c for c in counts if c == (count,) * half + (0,) * half]
        skewed = [c for c in counts if sorted(x for x in c[:half] if x) == [count // 2] and sum(c[half:]) == 2 * count]
        assert len(even) >= (clients + 1) // 2
        assert len(dealt) == clients
        assert all(c in even or c in skewed for c in counts)


def test_train_and_test_agree_on_which_client_is_which():
    train, test = labels(200), labels(100)
    rows = two_groups(train, test, clients=10, a=10, test_a=4, seed=3)
    for mine, scored in zip(rows.train, rows.test, strict=True):
        assert set(train[mine]) == set(test[scored])


def test_seeds_differ_and_clients_are_mixed():
    train, test = labels(200), labels(100)
    one, two = (two_groups(train, test, clients=10, a=10, test_a=4, seed=s) for s in (0, 1))
    assert any(not np.array_equal(x, y) for x, y in zip(one.train, two.train, strict=True))
    groups = [len(r) == 50 for r in one.train]
    assert len(set(groups[:5])) == 2


@given(st.integers(4, 20), st.integers(31, 60))
def test_too_few_samples_are_refused_with_a_number_that_works(clients, a):
    train, test = labels(60, 4), labels(2 * clients * 2, 4)

    def deal(a):
        two_groups(train, test, clients=clients, a=a, test_a=2, seed=0)

    with pytest.raises(UsageError, match=f"{clients} clients with a = {a} want .* samples of class") as refused:
        deal(a)
    fits = int(refused.value.remedy.removeprefix("Lower a to ").split(",")[0])
    deal(fits)
    with pytest.raises(UsageError):
        deal(fits + 1)


def test_too_many_clients_for_any_number_are_told_so():
    with pytest.raises(UsageError, match=r"(?s)but there are 3.*\n *Take fewer clients"):
        two_groups(labels(3, 4), labels(3, 4), clients=20, a=2, test_a=2, seed=0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"clients": 1}, "clients = 1"),
        ({"a": 1}, "a = 1"),
        ({"test_a": 500}, "test_a = 500 want .* samples of class 0, but there are 20.*Lower test_a"),
    ],
)
def test_refusals(options, words):
    with pytest.raises(UsageError, match=f"(?s){words}"):
        two_groups(labels(20), labels(20), **({"clients": 4, "a": 2, "test_a": 2, "seed": 0} | options))


def test_one_class_makes_no_two_groups():
    with pytest.raises(UsageError, match=r"(?s)hold 1 class.*two classes or more"):
        two_groups(labels(20, 1), labels(20, 1), clients=2, a=2, test_a=2, seed=0)
