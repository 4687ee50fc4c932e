from dataclasses import replace

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.data.partitions import Alphabets, DisjointTasks
from headstart.data.samples import Samples
from headstart.errors import UsageError
from headstart.simulate import Evaluation


def samples(order=None, alphabets=10, letters=4, each=6):
    y = np.repeat(np.arange(alphabets * letters), each)
    rng = np.random.default_rng(0)
    x = rng.integers(0, 255, (len(y), 5), dtype=np.uint8)
    order = np.arange(len(y)) if order is None else order
    names = np.array([f"alphabet {a}" for a in y // letters])
    return Samples("toy", x[order], y[order], tuple(map(str, range(y.max() + 1))), columns={"alphabet": names[order]})


TASKS = DisjointTasks(ways=3, shots=1, queries=5, tasks=5, test_tasks=2)
ALPHABETS = Alphabets(clients=6, validation=1, test=3, ways=3, queries=5, tasks=7)


@given(st.integers(0, 2**32 - 1))
def test_no_class_is_in_two_tasks(seed):
    partition = TASKS(samples(), seed)
    classes = [set(partition.samples.y[rows]) for rows in partition.train]
    assert [len(c) for c in classes] == [3] * 7
    assert len(set.union(*classes)) == 21
    assert partition.held_out == 2
    assert partition.train.counts.tolist() == [18] * 7
    assert partition.federation().trained == 5


def test_a_test_task_is_judged_on_several_draws():
    once, often = (replace(TASKS, queries=2, test_draws=draws)(samples(), 4) for draws in (1, 3))
    assert often.held_out == 6
    assert often.names[4:8] == ["task 4", "task 5, draw 0", "task 5, draw 1", "task 5, draw 2"]
    for i, rows in enumerate(often.train):
        np.testing.assert_array_equal(rows, once.train[i if i < 5 else 5 + (i - 5) // 3])
    clients = often.federation().clients
    # Images are told apart by their content: draws 0 and 1 of task 5 adapt on others of the same classes.
    first, second = (np.asarray(clients.sample("support", i, jax.random.key(0), "full").x) for i in (5, 6))
    assert first.shape == second.shape == (3, 5)
    assert (first != second).any()


@given(st.integers(0, 2**32 - 1))
def test_alphabets_that_are_judged_do_not_train(seed):
    partition = ALPHABETS(samples(), seed)
    names = partition.samples.column("alphabet")
    groups = [set(names[rows]) for rows in partition.train]
    assert all(len(g) == 1 for g in groups)
    trained, judged = (set.union(*g) for g in (groups[:6], groups[6:]))
    assert (len(trained), len(judged), trained & judged) == (6, 3, set())
    assert partition.names[:6] == [next(iter(g)) for g in groups[:6]]
    assert partition.names[6].endswith(", task 0")
    assert len(set(partition.names)) == 13
    assert len(partition.federation().clients.classes.starts) == 14


@pytest.mark.parametrize(
    ("partitioner", "kinds"),
    [(replace(ALPHABETS, tasks=12), 3), (replace(TASKS, queries=2, test_tasks=3, test_draws=4), 3)],
)
def test_clients_that_are_evaluated_are_of_all_kinds_however_few(partitioner, kinds):
    federation = partitioner(samples(), 0).federation()
    for most in (3, 4, 6):
        chosen = Evaluation(max_clients=most).clients(federation)
        judged = [federation.names[i].split(",")[0] for i in chosen if i >= federation.trained]
        assert (len(judged), len(set(judged))) == (most, kinds)


def test_validation_and_test_alphabets_differ():
    both = [replace(ALPHABETS, evaluate=which)(samples(), 0).names[6:] for which in ("validation", "test")]
    validation, test = ({name.split(",")[0] for name in names} for names in both)
    assert (len(validation), len(test), validation & test) == (1, 3, set())


@pytest.mark.parametrize("partitioner", [TASKS, ALPHABETS])
def test_the_order_of_rows_does_not_matter(partitioner):
    order = np.random.default_rng(3).permutation(240)
    one, other = partitioner(samples(), 5), partitioner(samples(order), 5)
    for mine, theirs in zip(one.train, other.train, strict=True):
        np.testing.assert_array_equal(one.samples.x[mine], other.samples.x[theirs])


@pytest.mark.parametrize(
    ("partitioner", "words"),
    [
        (DisjointTasks(ways=10, tasks=4, test_tasks=1, queries=5), "need 50 classes .* has 40.*at most 4 tasks"),
        (DisjointTasks(queries=6), "need 100 classes with 7 samples or more, but toy has 0"),
        (Alphabets(), "33 clients, 5 validation and 12 test groups are more than the 10 values of alphabet"),
        (Alphabets(column="alphabt"), "no column 'alphabt'.*alphabet"),
    ],
)
def test_refusals(partitioner, words):
    with pytest.raises(UsageError, match=f"(?s){words}"):
        partitioner(samples(), 0)


def test_validation_and_test_alphabets_are_judged_side_by_side():
    both = replace(ALPHABETS, evaluate="both")(samples(), 5)
    validation, test = (replace(ALPHABETS, evaluate=kind)(samples(), 5) for kind in ("validation", "test"))
    assert (both.held_out, both.validation, validation.validation) == (14, 7, 0)
    assert both.names == [*validation.names, *test.names[6:]]
    assert both.notes == validation.notes + test.notes
    federation = both.federation()
    assert (federation.trained, federation.validation, federation.total) == (6, 7, 20)
    with pytest.raises(UsageError, match=r"(?s)evaluate = 'tset'.*'test'"):
        replace(ALPHABETS, evaluate="tset")(samples(), 5)
