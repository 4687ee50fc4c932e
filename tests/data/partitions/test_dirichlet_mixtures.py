import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.data.partitions import DirichletMixtures
from headstart.errors import UsageError
from tests.data.partitions.common import assert_contract, class_counts, contents, permuted, samples


def test_the_papers_setting():
    partition = DirichletMixtures()(samples(5000, 10, test=1000, side=1), 0)
    assert set(partition.train.counts) == {800}
    assert set(partition.query.counts) == {200}
    assert len(partition) == 50
    # With alpha_d = .01 nearly all of a client's samples are of one class.
    assert (class_counts(partition, "train").max(axis=1) > 700).mean() > 0.8
    assert "own 10000 test samples are not used" in partition.notes[0]
    assert not partition.samples.test[np.concatenate([partition.train.rows, partition.query.rows])].any()


@given(
    st.integers(1, 8), st.integers(2, 30), st.sampled_from([1e-4, 0.01, 1.0, 100.0]), st.floats(0.01, 0.99),
    st.integers(2, 40), st.integers(0, 2**32),
)  # fmt: skip
def test_exact_counts_however_little_there_is(clients, each, concentration, share, stock, seed):
    partitioner = DirichletMixtures(clients, each, concentration, share)
    these = samples(stock, 3)
    partition = partitioner(these, seed)
    tests = min(max(round(share * each), 1), each - 1)
    assert set(partition.query.counts) == {tests}
    assert set(partition.train.counts) == {each - tests}
    assert not set(partition.train.rows) & set(partition.query.rows)
    flat = np.concatenate([partition.train.rows, partition.query.rows])
    dealt = np.bincount(these.y[flat], minlength=3)
    distinct = np.bincount(these.y[np.unique(flat)], minlength=3)
    # A class is dealt again only where it ran out, and then all of it was dealt before (but for a side's rounding).
    assert (distinct[dealt <= stock] == dealt[dealt <= stock]).all()
    assert bool(partition.notes) == bool((dealt > stock).any())
    moved = partitioner(permuted(these, np.random.default_rng(1).permutation(len(these))), seed)
    assert contents(moved) == contents(partition)


def test_contract_where_nothing_runs_out():
    assert_contract(DirichletMixtures(6, 20, 0.3, 0.25), samples(130, values=3), 5)


def test_notes_say_which_classes_ran_out_and_by_how_much():
    partition = DirichletMixtures(10, 30, 1000.0)(samples(40, 3), 0)
    dealt = class_counts(partition, "train").sum(axis=0) + class_counts(partition, "query").sum(axis=0)
    words = ", ".join(f"class {c} ({count - 40})" for c, count in enumerate(dealt))
    assert partition.notes == (f"180 of 300 samples were dealt before, since these classes ran out: {words}.",)


def test_a_client_sees_a_sample_twice_only_if_it_wants_more_than_there_are():
    partition = DirichletMixtures(10, 30, 1000.0)(samples(40, 3), 0)
    assert all(len(np.unique(rows)) == len(rows) for rows in partition.train)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"concentration": 0.0}, "concentration = 0"),
        ({"samples_per_client": 1}, "samples_per_client = 1"),
        ({"test_share": 1.0}, "test_share = 1.0 is not a share"),
        ({"concentration": 100.0}, "1 training samples of class class 0, too few to train some clients and score"),
    ],
)
def test_refusals(options, words):
    with pytest.raises(UsageError, match=words):
        DirichletMixtures(**{"clients": 4, "samples_per_client": 50} | options)(samples(1), 0)
