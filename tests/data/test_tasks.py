"""Clients with several tasks, and tasks drawn from a distribution."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import headstart as hs
from headstart.core import draw_tasks

PROBLEM = hs.Regression(hs.MLP(inputs=1, outputs=1, hidden=(4,)))
STATELESS = hs.per_fedavg(batch_size=3, local_steps=1)


def _constant(task, key, size):
    """Samples that say which task they are of."""
    return hs.Examples(jnp.full((size, 1), task), jax.random.normal(key, (size, 1)))


def _federation(held_out=1):
    return hs.Federation.from_tasks(jnp.arange(6.0), _constant, query_size=2, held_out=held_out)


def test_a_clients_tasks_are_its_groups():
    grouped = _federation().grouped([[4, 0, 2], [1, 3]])
    assert (grouped.total, grouped.trained, grouped.tasks_per_client) == (2, 2, (2, 3))
    view = grouped.clients.view("train", jnp.asarray(1))
    assert int(view.task_count) == 2
    assert [float(view.task(j).sample(jax.random.key(0), 1).x[0, 0]) for j in (0, 1)] == [1.0, 3.0]


def test_sampling_a_client_as_a_whole_draws_from_all_its_tasks_and_no_other():
    view = _federation().grouped([[4, 0, 2], [1, 3]]).clients.view("train", jnp.asarray(1))
    seen = jax.vmap(lambda k: view.sample(k, 1).x[0, 0])(jax.random.split(jax.random.key(0), 200))
    values, counts = np.unique(seen, return_counts=True)
    assert values.tolist() == [1.0, 3.0]
    assert counts.min() > 70


def test_tasks_of_a_step_are_drawn_uniformly_without_replacement():
    view = _federation().grouped([[4, 0, 2], [1, 3]]).clients.view("train", jnp.asarray(0))
    drawn = jax.vmap(lambda k: draw_tasks(view, k, 3, 2))(jax.random.split(jax.random.key(0), 600))
    assert (np.asarray(drawn)[:, 0] != np.asarray(drawn)[:, 1]).all()
    assert np.bincount(np.asarray(drawn).ravel(), minlength=3).min() > 340
    short = _federation().grouped([[4, 0, 2], [1, 3]]).clients.view("train", jnp.asarray(1))
    drawn = jax.vmap(lambda k: draw_tasks(short, k, 3, 2))(jax.random.split(jax.random.key(0), 50))
    assert np.asarray(drawn).max() == 1, "a slot beyond a client's own tasks is never drawn"


def _by_task(**fields):
    return hs.ALGORITHMS["local-moml"].build(batch_size=3, local_steps=1, **({"tasks_per_client": 3} | fields))


@pytest.mark.parametrize(
    "algorithm", [STATELESS, _by_task(tasks_per_client=2), _by_task(tasks_per_step=3)], ids=["none", "few", "many"]
)
def test_a_method_must_be_set_to_the_tasks_that_clients_have(algorithm):
    with pytest.raises(hs.UsageError, match=r"(?s)clients have 2 to 3 tasks.*set it to 3.*at most 2"):
        hs.train(algorithm, PROBLEM, _federation().grouped([[4, 0, 2], [1, 3]]), rounds=1)


def test_evaluation_looks_at_every_single_task():
    result = hs.train(_by_task(tasks_per_step=2), PROBLEM, _federation().grouped([[4, 0, 2], [1, 3]]), rounds=1)
    last = result.table.filter(np.array(result.table["round"].to_pylist()) == 1)
    assert last.num_rows == 2 * 6
    assert sum(last["held_out"].to_pylist()) == 2


@pytest.mark.parametrize(
    ("groups", "words"),
    [([], "number of groups"), ([[0], []], "empty"), ([[0], [0]], "two groups"), ([[5]], "0 to 4")],
)
def test_groups_that_make_no_sense(groups, words):
    with pytest.raises(hs.UsageError, match=f"(?s){words}"):
        _federation().grouped(groups)


def _endless(held_out=2):
    return hs.Federation.from_distribution(jax.random.normal, _constant, query_size=2, held_out=held_out)


def test_every_cohort_meets_new_tasks_and_the_held_out_ones_stay():
    federation = _endless()
    task = jax.vmap(lambda i: federation.clients.sample("train", i, jax.random.key(0), 1).x[0, 0])
    assert len(np.unique(task(jnp.arange(50)))) == 50
    np.testing.assert_array_equal(task(jnp.arange(3)), task(jnp.arange(3)))
    result = hs.train(STATELESS, PROBLEM, federation, rounds=2, cohort=3)
    assert set(result.table["held_out"].to_pylist()) == {True}
    assert len(set(result.table["client"].to_pylist())) == 2


def test_an_endless_federation_needs_a_number_of_clients():
    with pytest.raises(hs.UsageError, match=r"(?s)endlessly many.*number"):
        hs.train(STATELESS, PROBLEM, _endless(), rounds=1)


def test_an_endless_federation_refuses_memories():
    algorithm = hs.ALGORITHMS["moml"].build(batch_size=3)
    with pytest.raises(hs.UsageError, match=r"(?s)memory for every client.*finitely many"):
        hs.train(algorithm, PROBLEM, _endless(), rounds=1, cohort=3)
