import jax
import jax.numpy as jnp
import numpy as np
import pytest

from headstart.core import Weighted
from headstart.data import Federation
from headstart.errors import UsageError
from headstart.problems import Examples
from tests import toy

POOL = Examples(np.arange(40, dtype=np.uint8).reshape(10, 4), np.arange(10))
TRAIN = [[0, 1, 2], [3], [4, 5]]
SUPPORT = [[0], [3, 4], [5, 6, 7]]
QUERY = [[8, 9], [7, 8], [9, 0]]


def build(**changes):
    return Federation.from_arrays(**({"pool": POOL, "train": TRAIN, "query": QUERY} | changes))


def sample(federation, part, client, size, seed=0):
    return federation.clients.view(part, jnp.asarray(client)).sample(jax.random.key(seed), size)


def test_samples_stay_as_stored_and_are_never_copied_or_padded():
    federation = build(support=SUPPORT)
    clients = federation.clients
    assert clients.pool.x.dtype == jnp.uint8
    assert clients.pool.x.shape == POOL.x.shape
    leaves = sum(leaf.size for leaf in jax.tree.leaves(clients))
    rows = sum(len(r) for lists in (TRAIN, SUPPORT, QUERY) for r in lists)
    assert leaves == POOL.x.size + POOL.y.size + rows + 3 * (3 + 1)


@pytest.mark.parametrize(("part", "lists"), [("train", TRAIN), ("support", SUPPORT), ("query", QUERY)])
def test_a_client_draws_its_own_rows_of_that_part_only(part, lists):
    federation = build(support=SUPPORT)
    for client, rows in enumerate(lists):
        drawn = sample(federation, part, client, 60)
        assert set(drawn.y.tolist()) == set(rows)
        np.testing.assert_array_equal(drawn.x, POOL.x[drawn.y])


def test_draws_are_uniform_and_with_replacement():
    counts = np.bincount(sample(build(), "train", 0, 3000).y)
    assert np.abs(counts - 1000).max() < 4 * np.sqrt(3000 * 2 / 9)


def test_full_is_every_sample_once_whatever_the_key():
    federation = build()
    for client, rows in enumerate(TRAIN):
        batch = sample(federation, "train", client, "full")
        assert isinstance(batch, Weighted)
        assert batch.weight.shape == (3,)
        assert batch.samples.y[batch.weight > 0].tolist() == rows
        toy.assert_same_bits(batch, sample(federation, "train", client, "full", seed=1))
    assert sample(federation, "query", 0, "full").y.tolist() == QUERY[0]  # equal clients need no weights


def test_support_is_the_training_rows_unless_given():
    toy.assert_same_bits(sample(build(), "support", 2, "full"), sample(build(), "train", 2, "full"))


def test_transform_is_applied_to_each_batch():
    federation = build(transform=lambda batch: Examples(batch.x / 255, batch.y))
    batch = sample(federation, "train", 0, 5)
    np.testing.assert_allclose(batch.x, POOL.x[batch.y] / 255, rtol=1e-6)
    assert federation.clients.pool.x.dtype == jnp.uint8


def test_held_out_clients_come_last_and_need_no_training_rows():
    federation = build(train=[*TRAIN[:2], []], support=SUPPORT, held_out=1, names=["a", "b", "c"])
    assert (federation.total, federation.trained) == (3, 2)
    assert federation.name(2) == "c"
    assert build().name(2) == "2"


def spoilt(row):
    values = np.arange(20.0).reshape(10, 2)
    values[row, 1] = np.nan
    return values


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"train": [[0], [], [1]]}, "Client 1 has no train samples.*leave it out"),
        ({"query": [[0], [1], []], "names": ["a", "b", "c"]}, "Client c has no query samples"),
        ({"train": [[0], [], []]}, "Client 1 has no train samples .nor have 1 others"),
        ({"pool": spoilt(4)}, r"Row 4 of the data.* holds a NaN or an infinity \(client 2\).*Drop those rows"),
        ({"pool": spoilt(4), "names": ["a", "b", "c"]}, r"Row 4 .*\(client c\)"),
        ({"pool": {"x": spoilt(0), "y": np.zeros(10)}}, r"Row 0 of the data\['x'\].*\(client 0\)"),
        ({"train": [[0], [10], [1]]}, "train rows reach from 0 to 10, but the pool has 10 rows.*0 to 9"),
        ({"query": [[0], [-1], [1]]}, "query rows reach from -1"),
        ({"names": ["a", "b", "a"]}, "Two clients are called 'a'.*name of its own"),
        ({"names": ["a", "b"]}, "2 names for 3 clients"),
        ({"held_out": 3}, "held_out = 3 of 3 clients leaves none to train.*fewer"),
        ({"query": QUERY[:2]}, "3 clients have training rows but 2 have query rows"),
        ({"pool": (np.zeros(10), np.zeros(9))}, r"different lengths: \[9, 10\].*one row a sample"),
        ({"train": [], "query": []}, "number of clients"),
    ],
)
def test_refusals(changes, words):
    with pytest.raises(UsageError, match=f"(?s){words}"):
        build(**changes)


def test_a_batch_that_a_client_cannot_fill_is_refused():
    build().check_batch(1)
    with pytest.raises(
        UsageError,
        match=r"(?s)Client 1 has 1 training samples, fewer than a batch of 3.*1, use 'full'",
    ):
        build().check_batch(3)
    build(train=[*TRAIN[::2], [9]], held_out=1).check_batch(2)  # those that never train do not count


def noise(task, key, size):
    return task + jax.random.normal(key, (size,))


def generated(tasks, **options):
    return Federation.from_tasks(jnp.asarray(tasks), noise, support_size=3, query_size=7, **options)


def test_generated_clients_draw_from_their_own_task():
    federation = generated([0.0, 100.0])
    federation.check_batch(10**6)
    assert float(jnp.mean(sample(federation, "train", 1, 50))) > 90
    np.testing.assert_array_equal(sample(federation, "train", 0, 5), sample(federation, "train", 0, 5))
    assert not np.isin(sample(federation, "train", 0, 5), sample(federation, "train", 0, 5, seed=1)).any()


def test_generated_parts_are_apart_and_the_whole_of_a_part_stays_the_same():
    federation = generated([0.0, 0.0])
    support, query = (sample(federation, part, 0, "full") for part in ("support", "query"))
    assert (support.shape, query.shape) == ((3,), (7,))
    assert not np.isin(support, query).any()
    for part, whole in (("support", support), ("query", query)):
        np.testing.assert_array_equal(sample(federation, part, 0, "full", seed=1), whole)
        assert not np.isin(sample(federation, part, 1, "full"), whole).any()


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: sample(generated([0.0]), "train", 0, "full"), "no whole data.*as a number"),
        (lambda: generated([0.0, 1.0], held_out=2), "held_out = 2 of 2"),
        (lambda: generated([0.0, 1.0], names=["a", "a"]), "Two clients are called 'a'"),
        (
            lambda: Federation.from_tasks((jnp.ones(2), jnp.ones(3)), noise, support_size=1, query_size=1),
            "do not agree on the number of clients.*same leading axis",
        ),
        (lambda: Federation.from_tasks(jnp.ones(2), noise, support_size=1, query_size=0), "query_size = 0"),
    ],
)
def test_refusals_of_generated_clients(build, words):
    with pytest.raises(UsageError, match=f"(?s){words}"):
        build()
