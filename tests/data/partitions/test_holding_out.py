"""Clients that never train: those for validation, and new ones behind them."""

from dataclasses import replace

import numpy as np
import pytest

import headstart as hs
from headstart.data.partitions import Natural
from headstart.data.tables import table
from headstart.errors import UsageError
from tests.data.partitions.common import samples
from tests.data.tables.people import people

PERSONS = np.tile(np.repeat([f"p{i:02}" for i in range(12)], 20), 1)
DEALT = Natural("person")(samples(person=PERSONS), 0)


def groups(partition):
    trained = len(partition) - partition.held_out
    split = trained + partition.validation
    return partition.names[:trained], partition.names[trained:split], partition.names[split:]


@pytest.mark.parametrize("validation", [0, 1, 2, 5])
def test_who_is_held_out_does_not_depend_on_validation(validation):
    without, split = DEALT.holding_out(5, 3), DEALT.holding_out(5, 3, validation)
    (trained, _, held_out), (also_trained, choosing, new) = groups(without), groups(split)
    assert also_trained == trained
    assert (len(choosing), len(new)) == (validation, 5 - validation)
    assert sorted(choosing + new) == held_out
    assert choosing == sorted(choosing)
    assert new == sorted(new)
    # Rows go with the names.
    for name, rows in zip(split.names, split.train, strict=True):
        assert set(PERSONS[rows]) == {name}


def test_a_share_is_of_all_clients():
    partition = DEALT.holding_out(0.5, 0, 0.25)
    assert (partition.held_out, partition.validation) == (6, 3)
    federation = partition.federation()
    assert (federation.total, federation.trained, federation.validation) == (12, 6, 3)


def test_no_more_are_for_validation_than_are_held_out():
    with pytest.raises(UsageError, match="validation = 4, but held_out = 3"):
        DEALT.holding_out(3, 0, 4)
    with pytest.raises(UsageError, match=r"validation = 1\.5 is not a share"):
        DEALT.holding_out(3, 0, 1.5)
    with pytest.raises(UsageError, match="validation = 3, but 2 clients are held out"):
        replace(hs.data.sine(clients=5, held_out=2), validation=3)


@pytest.mark.parametrize(
    ("clients", "options", "expected"),
    [
        (6, {}, (5, 0, 1)),
        (9, {}, (7, 0, 2)),
        (10, {}, (7, 1, 2)),
        (20, {}, (14, 2, 4)),
        (20, {"held_out": 3}, (17, 1, 2)),
        (20, {"held_out": 0}, (20, 0, 0)),
        (20, {"held_out": 0.5, "validation": 0.4}, (10, 8, 2)),
        (20, {"validation": 0}, (14, 0, 6)),
        (6, {"held_out": 3, "validation": 1}, (3, 1, 2)),
    ],
)
def test_tables_are_dealt_into_three_groups(clients, options, expected):
    federation = table(people(240, clients), client="person", label="activity", **options)
    new = federation.total - federation.trained - federation.validation
    assert (federation.trained, federation.validation, new) == expected


def test_embedded_data_may_have_validation_clients_too():
    assert hs.data.sine(clients=5, held_out=4, validation=2).validation == 2
    assert hs.data.mnist_small(clients=6, held_out=4, validation=2).validation == 2
