import jax
import numpy as np
import pytest

import headstart as hs
from headstart.data import MappedClients
from headstart.errors import UsageError
from headstart.simulate import Evaluation, Simulation, trace_count, train
from headstart.simulate.feed import Feed
from tests import toy

METHODS = {
    "fedavg": hs.fedavg(batch_size=3, local_steps=2, outer_lr=0.1),
    "full": hs.per_fedavg(batch_size="full", local_steps=2, inner_lr=0.1, outer_lr=0.1),
    "moml-v2": hs.MOMLv2(batch_size=3, inner_lr=0.1, outer_lr=0.1),
}


def on_disk(tmp_path, federation):
    """The same federation with its pool in memory-mapped files."""
    clients = federation.clients

    def mapped(name, array):
        np.save(tmp_path / f"{name}.npy", np.asarray(array))
        return np.load(tmp_path / f"{name}.npy", mmap_mode="r")

    pool = hs.Examples(mapped("x", clients.pool.x), mapped("y", clients.pool.y))
    lists = {
        part: np.split(np.asarray(index.rows), np.asarray(index.starts)[1:-1]) for part, index in clients.parts.items()
    }
    return hs.Federation.from_arrays(
        pool, lists["train"], lists["query"], held_out=federation.total - federation.trained
    )


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("fedavg", {"weighting": "samples"}),
        ("fedavg", {"backend": "sharded", "devices": 2}),
        ("fedavg", {"backend": "loop"}),
        ("full", {}),
        ("moml-v2", {}),
    ],
)
def test_samples_on_disk_give_the_same_bits(tmp_path, method, options):
    federation = toy.federation(held_out=1)
    mapped = on_disk(tmp_path, federation)
    assert isinstance(mapped.clients, MappedClients)
    one, other = (
        train(METHODS[method], toy.LOGISTIC, f, rounds=5, cohort=2, chunk=2, evaluation=Evaluation(every=5), **options)
        for f in (federation, mapped)
    )
    toy.assert_same_bits(other.server, one.server)
    assert other.history.drop_columns("seconds").equals(one.history.drop_columns("seconds"))
    assert other.table.equals(one.table)
    toy.assert_same_bits(other.personalize(4), one.personalize(4))


def test_a_run_from_disk_traces_its_round_once(tmp_path):
    problem = hs.CustomProblem(toy.start, lambda params, batch: 0.7 * toy.logistic_loss(params, batch))
    before = trace_count()
    train(METHODS["fedavg"], problem, on_disk(tmp_path, toy.federation()), rounds=9, cohort=2, chunk=4)
    assert trace_count() == before + 1


def feed(tmp_path, monkeypatch, cohort=2):
    """A feed from disk, and the cohorts' sizes that were gathered."""
    sim = Simulation(METHODS["fedavg"], toy.LOGISTIC, on_disk(tmp_path, toy.federation()), cohort=cohort)
    gathered = []
    gather = MappedClients.gather

    def counted(self, parts, ids, room):
        gathered.append(len(np.unique(ids)))
        return gather(self, parts, ids, room)

    monkeypatch.setattr(MappedClients, "gather", counted)
    return Feed(sim.federation.clients, sim.plan, sim.keys), sim, gathered


def test_what_was_read_ahead_is_not_read_again(tmp_path, monkeypatch):
    ahead, _, gathered = feed(tmp_path, monkeypatch)
    ahead.expect(3, 2, 4)
    clients, cohorts = ahead.chunk(3, 4, 4)
    assert len(gathered) == 1
    plain, _, _ = feed(tmp_path, monkeypatch)
    others, drawn = plain.chunk(3, 4, 4)
    np.testing.assert_array_equal(cohorts.clients, drawn.clients)
    toy.assert_same_bits(clients, others)


@pytest.mark.parametrize("asked", [(4, 1, 4), (3, 4, 4), (3, 1, 5)])
def test_another_chunk_than_the_expected_one_is_read_when_it_is_asked_for(tmp_path, monkeypatch, asked):
    ahead, sim, gathered = feed(tmp_path, monkeypatch)
    ahead.expect(3, 1, 4)
    clients, cohorts = ahead.chunk(*asked)
    ahead._reader.shutdown()  # it may still be reading what nobody asked for
    assert len(gathered) == 2
    for member, place in zip(np.asarray(cohorts.clients)[0], np.asarray(cohorts.places)[0], strict=True):
        own = clients.view("train", place).sample(jax.random.key(0), 4)
        toy.assert_same_bits(own, sim.federation.clients.view("train", member).sample(jax.random.key(0), 4))


def test_a_chunk_holds_no_more_than_fits(tmp_path, monkeypatch):
    federation = on_disk(tmp_path, toy.federation())
    row = federation.clients.row_bytes
    monkeypatch.setattr("headstart.data.mapped.GATHER_BYTES", 20 * row)
    sim = Simulation(METHODS["fedavg"], toy.LOGISTIC, federation, cohort=1)
    assert sim.largest_chunk() == 2  # the clients with most samples have 9, 8 and 7
    assert Simulation(METHODS["fedavg"], toy.LOGISTIC, federation, cohort=4).largest_chunk() == 1
    clients, places = federation.clients.gather(["train", "query"], np.array([3, 1, 3]), 2)
    assert clients.pool.y.shape == (9 + 8 + 2 * toy.QUERY,)
    np.testing.assert_array_equal(places, [1, 0, 1])


def test_tasks_on_disk_cannot_be_grouped(tmp_path):
    with pytest.raises(UsageError, match="grouped while their samples are on disk"):
        on_disk(tmp_path, toy.federation()).grouped([[0, 1], [2]])


def test_places_are_where_the_data_lie():
    federation = toy.federation()
    clients, places = federation.clients.gather(["train"], np.array([2, 0]), 2)
    assert clients is federation.clients
    np.testing.assert_array_equal(places, [2, 0])
