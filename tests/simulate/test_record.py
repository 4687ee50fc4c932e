"""The run directory: what it holds, and that training continues from it bit for bit."""

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest

import headstart as hs
from headstart.simulate import RunDirectory, RunState, trace_count
from headstart.simulate.files import read_tree, write_tree
from headstart.simulate.record import MethodJournal

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
        observer=lambda progress: stop_after is None or progress.round < stop_after,
        **options,
    )


def _bits(result):
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(result.server)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return _train(MethodJournal(tmp_path_factory.mktemp("whole") / "m", keep=2))


@pytest.mark.parametrize("stop_after", [1, 4, 6])
def test_resuming_continues_bit_for_bit_and_traces_nothing(tmp_path, whole, stop_after):
    stopped = _train(MethodJournal(tmp_path / "m", keep=2), stop_after=stop_after)
    assert stopped.rounds < 8
    before = trace_count()
    resumed = _train(MethodJournal(tmp_path / "m", keep=2))
    assert trace_count() == before
    assert _bits(resumed) == _bits(whole)
    assert resumed.history.drop_columns("seconds").equals(whole.history.drop_columns("seconds"))
    assert resumed.table.equals(whole.table)


def test_chunk_length_changes_no_bit(tmp_path, whole):
    federation = hs.data.sine(clients=7, held_out=1, query_size=5)
    other = hs.train(SCHEDULED, PROBLEM, federation, rounds=8, cohort=3, chunk=8)
    assert _bits(other) == _bits(whole)


def test_resuming_on_another_number_of_devices_agrees_to_rounding(tmp_path, whole):
    _train(MethodJournal(tmp_path / "m", keep=2), stop_after=4)
    resumed = _train(MethodJournal(tmp_path / "m", keep=2), backend="sharded", devices=2)
    for one, other in zip(jax.tree.leaves(resumed.server), jax.tree.leaves(whole.server), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_checkpoints_are_kept_so_deep(tmp_path):
    _train(MethodJournal(tmp_path / "m", keep=2))
    names = sorted(path.name for path in (tmp_path / "m" / "checkpoints").iterdir())
    assert names == ["000000006.safetensors", "000000008.safetensors"]


def test_a_damaged_checkpoint_falls_back_to_the_one_before(tmp_path, whole):
    _train(MethodJournal(tmp_path / "m", keep=2), stop_after=6)
    newest = tmp_path / "m" / "checkpoints" / "000000006.safetensors"
    newest.write_bytes(newest.read_bytes()[:100])
    assert _bits(_train(MethodJournal(tmp_path / "m", keep=2))) == _bits(whole)


def test_tables_after_the_checkpoint_are_dropped(tmp_path):
    journal = MethodJournal(tmp_path / "m", keep=2)
    state = RunState({"w": jnp.zeros(2)}, ())
    journal.rounds(pa.table({"round": [0, 1]}))
    journal.checkpoint(2, state)
    # As if killed after the tables of the next chunk were written and before its checkpoint was.
    journal.rounds(pa.table({"round": [2, 3]}))
    journal.checkpoint(4, state)
    (tmp_path / "m" / "checkpoints" / "000000004.safetensors").unlink()
    again = MethodJournal(tmp_path / "m", keep=2)
    assert again.restore(state)[0] == 2
    assert again.tables()[0]["round"].to_pylist() == [0, 1]


def test_arrays_come_back_as_they_were(tmp_path):
    tree = {"a": jnp.arange(3, dtype=jnp.int32), "b": (jnp.float32(0.1), jnp.ones((2, 2), jnp.bfloat16)), "none": None}
    write_tree(tmp_path / "t.safetensors", tree, {"round": "7"})
    back, metadata = read_tree(tmp_path / "t.safetensors", jax.tree.map(jnp.zeros_like, tree))
    assert metadata["round"] == "7"
    assert jax.tree.structure(back) == jax.tree.structure(tree)
    for one, other in zip(jax.tree.leaves(back), jax.tree.leaves(tree), strict=True):
        assert one.dtype == other.dtype
        assert (one == other).all()


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ({"a": jnp.zeros(4)}, "wants float32"),
        ({"b": jnp.zeros(3)}, "other arrays"),
        ({"a": jnp.zeros(3, int)}, "int32"),
    ],
)
def test_a_checkpoint_of_another_model_is_refused(tmp_path, template, words):
    write_tree(tmp_path / "t.safetensors", {"a": jnp.zeros(3)}, {})
    with pytest.raises(hs.UsageError, match=words):
        read_tree(tmp_path / "t.safetensors", template)


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    def disk_full(*_, **__):
        raise OSError(28, "No space left on device")

    path = tmp_path / "t.safetensors"
    write_tree(path, {"a": jnp.zeros(3)}, {})
    before = path.read_bytes()
    monkeypatch.setattr("headstart.simulate.files.save_file", disk_full)
    with pytest.raises(hs.UsageError, match="No space"):
        write_tree(path, {"a": jnp.ones(3)}, {})
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_a_record_of_another_format_is_refused(tmp_path):
    with RunDirectory.create(tmp_path / "run", {}, []):
        pass
    text = (tmp_path / "run" / "run.json").read_text().replace('"format": 1', '"format": 99')
    (tmp_path / "run" / "run.json").write_text(text)
    with pytest.raises(hs.UsageError, match="format 99"):
        hs.load_run(tmp_path / "run")
