from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.data.partitions import IID, Natural, Partition, TwoGroups, describe
from headstart.data.rows import RowLists
from headstart.data.samples import Samples
from tests.data.partitions.common import samples

LISTS = st.lists(st.lists(st.integers(0, 39), max_size=12), min_size=2, max_size=6)


@given(LISTS)
def test_counts_and_distances_are_those_counted_one_by_one(lists):
    these = samples(10)
    summary = describe(Partition(these, RowLists.from_lists(lists), RowLists.from_lists(lists[::-1])))
    counts = np.array([[sum(these.y[i] == c for i in rows) for c in range(4)] for rows in lists])
    assert summary.train.tolist() == counts.tolist()
    assert summary.query.tolist() == counts[::-1].tolist()
    shares = [mine / mine.sum() for mine in counts if mine.any()]
    pairs = [np.abs(p - q).sum() / 2 for p, q in combinations(shares, 2)]
    assert summary.distance_between == pytest.approx(np.mean(pairs) if pairs else 0)
    whole = counts.sum(axis=0) / max(counts.sum(), 1)
    distances = [np.abs(p - whole).sum() / 2 for p in shares]
    assert summary.distance_to_all == pytest.approx(np.mean(distances) if distances else 0)


def test_sizes_names_notes_and_held_out_clients():
    partition = TwoGroups(clients=4, a=4, test_a=2)(samples(60), 0)
    summary = describe(replace(partition, held_out=1, names=list("abcd"), notes=("so it is",)))
    assert (summary.sizes.least, summary.sizes.median, summary.sizes.most) == (8, 9, 10)
    assert (summary.sizes.variation, summary.sizes.ratio) == (pytest.approx(1 / 9), 1.25)
    assert (summary.query_sizes.least, summary.query_sizes.most) == (4, 5)
    assert (summary.held_out, summary.client(2), summary.notes, len(summary)) == (1, "c", ("so it is",), 4)
    assert describe(partition).client(2) == "2"


def test_a_regression_is_described_by_tenths_of_its_targets():
    rng = np.random.default_rng(0)
    y = rng.normal(size=(1000, 1)) + 10 * (np.arange(1000) % 2)[:, None]
    these = Samples("waves", rng.normal(size=(1000, 2)), y, columns={"who": np.arange(1000) % 2})
    apart, alike = describe(Natural("who")(these, 0)), describe(IID(2)(these, 0))
    assert apart.regression
    assert len(apart.classes) == 10
    assert (apart.train.sum(axis=0) == 80).all()
    assert apart.distance_between == pytest.approx(1)
    assert alike.distance_between < 0.2
    np.testing.assert_allclose(apart.target_means, [0, 10], atol=0.2)
    np.testing.assert_allclose(apart.target_deviations, [1, 1], atol=0.2)


def test_a_target_of_one_value_is_one_class():
    these = Samples("flat", np.arange(20.0)[:, None], np.full(20, 3.0))
    summary = describe(IID(2)(these, 0))
    assert summary.classes == ("3",)
    assert summary.distance_between == 0
