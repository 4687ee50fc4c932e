"""A journal in a folder: what it holds, and that training continues from it bit for bit."""

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest

import headstart as hs
from headstart.simulate import RunState, trace_count
from headstart.simulate.journal import FolderJournal
from tests import toy

PROBLEM = hs.Regression(hs.MLP(inputs=1, outputs=1, hidden=(6,), activation="tanh"))
SCHEDULED = hs.per_fedavg(batch_size=4, local_steps=2, outer_lr=hs.StepDecay(0.05, (3, 6), 0.5), random_iterate=True)


def _train(journal, rounds=8, stop_after=None, **options):
    federation = hs.data.sine(clients=7, held_out=1, query_size=5)
    return hs.train(
        SCHEDULED,
        PROBLEM,
        federation,
        rounds=rounds,
        cohort=3,
        chunk=2,
        journal=journal,
        evaluation=hs.Evaluation(every=4, batch_size=4),
        callbacks=toy.stopping(stop_after),
        **options,
    )


def _bits(result):
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(result.server)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return _train(FolderJournal(tmp_path_factory.mktemp("whole") / "m", keep=2))


@pytest.mark.parametrize("stop_after", [1, 4, 6])
def test_resuming_continues_bit_for_bit_and_traces_nothing(tmp_path, whole, stop_after):
    stopped = _train(FolderJournal(tmp_path / "m", keep=2), stop_after=stop_after)
    assert stopped.rounds < 8
    before = trace_count()
    resumed = _train(FolderJournal(tmp_path / "m", keep=2))
    assert trace_count() == before
    assert _bits(resumed) == _bits(whole)
    assert resumed.history.drop_columns("seconds").equals(whole.history.drop_columns("seconds"))
    assert resumed.table.equals(whole.table)


def test_chunk_length_changes_no_bit(tmp_path, whole):
    federation = hs.data.sine(clients=7, held_out=1, query_size=5)
    other = hs.train(SCHEDULED, PROBLEM, federation, rounds=8, cohort=3, chunk=8)
    assert _bits(other) == _bits(whole)


def test_resuming_on_another_number_of_devices_agrees_to_rounding(tmp_path, whole):
    _train(FolderJournal(tmp_path / "m", keep=2), stop_after=4)
    resumed = _train(FolderJournal(tmp_path / "m", keep=2), backend="sharded", devices=2)
    for one, other in zip(jax.tree.leaves(resumed.server), jax.tree.leaves(whole.server), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_checkpoints_are_kept_so_deep(tmp_path):
    _train(FolderJournal(tmp_path / "m", keep=2))
    names = sorted(path.name for path in (tmp_path / "m" / "checkpoints").iterdir())
    assert names == ["000000006.safetensors", "000000008.safetensors"]


def test_a_damaged_checkpoint_falls_back_to_the_one_before(tmp_path, whole):
    _train(FolderJournal(tmp_path / "m", keep=2), stop_after=6)
    newest = tmp_path / "m" / "checkpoints" / "000000006.safetensors"
    newest.write_bytes(newest.read_bytes()[:100])
    assert _bits(_train(FolderJournal(tmp_path / "m", keep=2))) == _bits(whole)


def test_tables_after_the_checkpoint_are_dropped(tmp_path):
    journal = FolderJournal(tmp_path / "m", keep=2)
    state = RunState({"w": jnp.zeros(2)}, ())
    journal.rounds(pa.table({"round": [0, 1]}))
    journal.checkpoint(2, state)
    # As if killed after the tables of the next chunk were written and before its checkpoint was.
    journal.rounds(pa.table({"round": [2, 3]}))
    journal.checkpoint(4, state)
    (tmp_path / "m" / "checkpoints" / "000000004.safetensors").unlink()
    again = FolderJournal(tmp_path / "m", keep=2)
    assert again.restore(state)[0] == 2
    assert again.tables()[0]["round"].to_pylist() == [0, 1]
