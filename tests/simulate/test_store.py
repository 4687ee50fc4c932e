"""Client memories on disk: the same results as in RAM, whatever happens in between."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import headstart as hs
from headstart.simulate.journal import FolderJournal
from headstart.simulate.store import DiskStore
from tests import toy

PROBLEM = hs.Regression(hs.MLP(inputs=1, outputs=1, hidden=(6,), activation="tanh"))
INITIAL = {"u": jnp.arange(3.0), "seen": jnp.zeros((), bool)}


def _store(path, clients=5):
    return DiskStore(path, clients, INITIAL)


def _rows(*values):
    return {"u": np.array([[v, v, v] for v in values], np.float32), "seen": np.ones(len(values), bool)}


def _write(store, round_, ids, *values):
    store.stage(np.array(ids), _rows(*values))
    store.prepare(round_)
    store.commit(round_)


def test_clients_are_as_they_began_until_they_take_part(tmp_path):
    store = _store(tmp_path / "m")
    _write(store, 1, [3, 1], 7.0, 8.0)
    rows = store.read(np.array([0, 1, 3, 1]))
    np.testing.assert_array_equal(rows["u"], [[0, 1, 2], [8, 8, 8], [7, 7, 7], [8, 8, 8]])
    np.testing.assert_array_equal(rows["seen"], [False, True, True, True])
    np.testing.assert_array_equal(_store(tmp_path / "m").read(np.array([3]))["u"], [[7, 7, 7]])


def test_staged_rows_are_read_back_before_they_are_committed(tmp_path):
    store = _store(tmp_path / "m")
    store.stage(np.array([2, 4]), _rows(1.0, 2.0))
    store.stage(np.array([4, 0]), _rows(3.0, 4.0))
    np.testing.assert_array_equal(store.read(np.array([2, 4, 0]))["u"][:, 0], [1, 3, 4])
    np.testing.assert_array_equal(_store(tmp_path / "m").read(np.array([4]))["u"], [[0, 1, 2]])


def test_rows_after_the_checkpoint_are_dropped_and_those_before_it_applied(tmp_path):
    store = _store(tmp_path / "m")
    _write(store, 1, [0], 1.0)
    store.stage(np.array([1]), _rows(2.0))
    store.prepare(2)
    # Killed after the checkpoint of round 2 and before it was applied, with round 3 half prepared.
    store.stage(np.array([2]), _rows(3.0))
    store.prepare(3)
    (tmp_path / "m" / ".redo.123.partial").write_text("half")
    again = _store(tmp_path / "m")
    again.recover(2)
    np.testing.assert_array_equal(again.read(np.array([0, 1, 2]))["u"], [[1, 1, 1], [2, 2, 2], [0, 1, 2]])
    assert sorted(p.name for p in (tmp_path / "m").iterdir()) == [
        "present.bin", "rows-0.bin", "rows-1.bin", "store.json",
    ]  # fmt: skip


@pytest.mark.parametrize("damage", ["truncated", "missing", "manifest", "newer"])
def test_damage_is_named_with_its_remedy(tmp_path, damage):
    _write(_store(tmp_path / "m"), 4, [0], 1.0)
    rows = tmp_path / "m" / "rows-1.bin"
    if damage == "truncated":
        rows.write_bytes(rows.read_bytes()[:7])
    elif damage == "missing":
        rows.unlink()
    elif damage == "manifest":
        (tmp_path / "m" / "store.json").write_text("{")
    with pytest.raises(hs.UsageError, match=r"damaged.*\n.*[Rr]estore") as error:
        _store(tmp_path / "m").recover(3 if damage == "newer" else 4)
    assert str(tmp_path / "m") in str(error.value)


def test_another_federations_memories_are_refused(tmp_path):
    _store(tmp_path / "m")
    with pytest.raises(hs.UsageError, match="another model or federation"):
        _store(tmp_path / "m", clients=6)


def test_a_full_disk_says_how_much_it_wants(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    store = _store(tmp_path / "m")
    store.stage(np.array([1]), _rows(2.0))
    store.prepare(1)
    monkeypatch.setattr("headstart.simulate.store.os.pwrite", full)
    with pytest.raises(hs.UsageError, match=r"is full: No space left.*\n.*GB. Make room"):
        store.commit(1)


MEMORY_METHODS = {
    "moml": {"batch_size": 4, "averaging": 0.5, "outer_lr": 0.05},
    "moml-v2": {"batch_size": 4, "averaging": 0.5, "outer_lr": 0.05},
    "local-moml": {"batch_size": 4, "averaging": 0.5, "outer_lr": 0.05, "local_steps": 2, "keep_memory": True},
}


def _train(method, stop_after=None, **options):
    federation = hs.data.sine(clients=7, held_out=1, query_size=5)
    algorithm = hs.ALGORITHMS[method].build(**MEMORY_METHODS[method])
    return hs.train(
        algorithm, PROBLEM, federation, rounds=9, cohort=3, chunk=2, evaluation=hs.Evaluation(every=4),
        callbacks=toy.stopping(stop_after), **options,
    )  # fmt: skip


@pytest.mark.parametrize("method", MEMORY_METHODS)
def test_disk_and_ram_give_the_same_bits_and_so_does_resuming(tmp_path, method):
    ram = _train(method)
    disk = _train(method, memory=tmp_path / "disk")
    stopped = _train(method, stop_after=4, memory=tmp_path / "m", journal=FolderJournal(tmp_path / "j", keep=2))
    resumed = _train(method, memory=tmp_path / "m", journal=FolderJournal(tmp_path / "j", keep=2))
    assert stopped.rounds < 9
    for other in (disk, resumed):
        for one, two in zip(jax.tree.leaves(ram.server), jax.tree.leaves(other.server), strict=True):
            np.testing.assert_array_equal(one, two)
        assert other.table.equals(ram.table)
        assert other.clients == ()
    everyone = np.arange(7)
    for one, two in zip(
        jax.tree.leaves(ram._simulation.client_states(everyone)),
        jax.tree.leaves(resumed._simulation.client_states(everyone)),
        strict=True,
    ):
        np.testing.assert_array_equal(one, two)
