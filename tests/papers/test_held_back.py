import numpy as np
import pytest

from headstart.data.partitions import TwoGroups
from headstart.errors import UsageError
from headstart_papers.held_back import holding_back
from tests.data.partitions.common import class_counts, samples


@pytest.mark.parametrize("shots", [None, 3])
def test_every_client_is_there_twice_and_judged_by_training_samples_that_it_lost(shots):
    whole = TwoGroups(clients=8, a=24, test_a=4, shots=shots)(samples(400, 4, test=100), 0)
    halves = holding_back(whole, 0.25, seed=0)
    assert (len(halves), halves.held_out, halves.validation) == (16, 8, 8)
    for client in range(8):
        kept, back = halves.train[client], set(halves.query[8 + client])
        assert set(halves.query[client]) == set(whole.query[client])
        assert halves.train[8 + client].tolist() == kept.tolist()
        if shots:
            assert len(halves.support[8 + client]) == shots
            back |= set(halves.support[8 + client])
        else:
            assert set(halves.support[8 + client]) == set(kept)
        assert sorted([*kept, *back]) == sorted(whole.train[client])
    # A quarter of every class of every client.
    assert (class_counts(halves, "train")[:8] * 4 == class_counts(whole, "train") * 3).all()
    assert not np.isin(whole.query.rows, halves.train.rows).any()


def test_what_is_held_back_depends_on_the_seed():
    whole = TwoGroups(clients=4, a=20, test_a=4)(samples(200, 4, test=50), 0)
    first, again, other = (holding_back(whole, 0.25, seed).query.rows.tolist() for seed in (0, 0, 1))
    assert first == again != other


def test_too_little_held_back_is_refused():
    whole = TwoGroups(clients=4, a=20, test_a=8, shots=5)(samples(200, 4, test=80), 0)
    with pytest.raises(UsageError, match=r"held_back = 0.1 leaves client \d [45] samples, of which it adapts on 5"):
        holding_back(whole, 0.1, seed=0)
    with pytest.raises(UsageError, match="clients are held out"):
        holding_back(whole.holding_out(1, 0), 0.5, seed=0)
