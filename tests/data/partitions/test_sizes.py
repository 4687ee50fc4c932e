import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.data.partitions import IID, QuantitySkew
from headstart.data.samples import Samples
from headstart.errors import UsageError
from tests.data.partitions.common import assert_contract, samples


@given(st.integers(2, 30), st.integers(0, 20), st.integers(0, 2**32))
def test_iid_deals_everything_in_equal_parts(clients, test, seed):
    these = samples(60, test=10 + test, values=3)
    partition = assert_contract(IID(clients), these, seed)
    for lists, total in ((partition.train, 240), (partition.query, 40 + 4 * test)):
        assert len(lists.rows) == total
        assert np.ptp(lists.counts) <= 1


@given(st.integers(2, 15), st.sampled_from([0.05, 0.5, 5.0]), st.integers(1, 10), st.integers(0, 2**32))
def test_quantity_skew_deals_everything_in_unequal_parts(clients, concentration, least, seed):
    these = samples(60, test=20, values=3)
    partition = assert_contract(QuantitySkew(clients, concentration, least), these, seed)
    assert (len(partition.train.rows), len(partition.query.rows)) == (240, 80)
    assert partition.train.counts.min() >= least
    # One test sample each, and the rest as the training samples are.
    expected = 1 + (80 - clients) * partition.train.counts / 240
    assert (np.abs(partition.query.counts - expected) < 1).all()


def test_a_small_concentration_makes_few_clients_rich():
    these = samples(500)
    largest = [QuantitySkew(10, c, 1)(these, 0).train.counts.max() for c in (0.05, 0.5, 500.0)]
    assert largest[0] > largest[1] > largest[2]
    assert largest[2] < 200


def test_regressions_are_dealt_too():
    rng = np.random.default_rng(0)
    partition = IID(5)(Samples("toy", rng.normal(size=(100, 3)), rng.normal(size=100)), 0)
    assert partition.train.counts.tolist() == [16] * 5
    assert partition.notes == ("toy has no test set of its own: 0.2 of all samples was set apart as one.",)


@pytest.mark.parametrize(
    ("partitioner", "words"),
    [
        (IID(300), "192 training samples, too few for 300 clients with 1 each.*192 clients or fewer"),
        (IID(100), "48 test samples, too few for 100 clients with 1 each.*48 clients or fewer"),
        (QuantitySkew(20), "192 training samples, too few for 20 clients with 10 each.*19 clients or fewer"),
    ],
)
def test_too_many_clients_are_refused(partitioner, words):
    with pytest.raises(UsageError, match=f"(?s){words}"):
        partitioner(samples(), 0)
