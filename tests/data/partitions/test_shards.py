import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.data.partitions import Shards
from headstart.data.samples import Samples
from headstart.errors import UsageError
from tests.data.partitions.common import assert_contract, class_counts, samples


def test_mcmahans_mnist_has_two_digits_a_client_at_most():
    # 200 shards of 300 of 6,000 images a digit.
    partition = Shards()(samples(6000, 10, test=1000, side=1), 0)
    assert set(partition.train.counts) == {600}
    counts = class_counts(partition, "train")
    assert set(np.unique(counts)) == {0, 300, 600}
    assert len(partition.query.rows) == 10_000
    assert ((class_counts(partition, "query") > 0) == (counts > 0)).all()


@given(st.integers(1, 12), st.integers(1, 4), st.integers(0, 2**32))
def test_contract_and_exact_counts(clients, each, seed):
    these = samples(61, 5, test=60, values=3)
    partition = assert_contract(Shards(clients, each), these, seed, seeds_differ=clients > 1)
    assert len(partition.train.rows) == 305
    assert np.ptp(partition.train.counts) <= each
    train, query = class_counts(partition, "train"), class_counts(partition, "query")
    assert (query.sum(axis=0) == 60).all()
    assert (np.abs(query - 60 * train / 61) < 1).all()


@pytest.mark.parametrize(
    ("partitioner", "these", "words"),
    [
        (Shards(200), samples(), "192 training samples, fewer than 400 shards.*Take 96 clients or fewer"),
        (Shards(90), samples(), r"48 test samples are too few for 90 clients: client \d+ would get none.*test_share"),
        (Shards(2), Samples("wave", np.zeros((9, 1)), np.zeros(9)), "wave is a regression.*Use iid"),
        (Shards(2), Samples("toy", np.zeros((2, 1)), np.array([0, 3]), ("a", "b")), "row 1 has the label 3.*0 to 1"),
        (Shards(2), Samples("toy", np.zeros((2, 1)), np.array([0, np.nan]), ("a", "b")), "row 1 has the label nan"),
        (Shards(2), Samples("toy", np.zeros((2, 1)), np.zeros((2, 2), int), ("a", "b")), r"y has shape \(2, 2\)"),
    ],
)
def test_refusals(partitioner, these, words):
    with pytest.raises(UsageError, match=f"(?s){words}"):
        partitioner(these, 0)
