import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.data.partitions import Natural
from headstart.data.samples import Samples
from headstart.errors import UsageError
from tests.data.partitions.common import assert_contract, samples

SEEDS = st.integers(0, 2**32)
WAYS = st.sampled_from([{}, {"order": "time"}, {"group": "segment"}, {"shots": 2}, {"group": "segment", "shots": 1}])


def people(seed=0, rows=240, persons=6, segments=4, values=3):
    """Samples of unequal persons, each with a few recordings of one class and moments that are not all different."""
    rng = np.random.default_rng(seed)
    person = np.minimum(rng.integers(0, persons, rows), rng.integers(0, persons, rows))
    segment = rng.integers(0, segments, rows)
    x = rng.integers(0, values, (rows, 2, 2)).astype(np.float32)
    columns = {"person": np.array([f"p{i}" for i in range(persons)])[person], "segment": segment}
    return Samples("walks", x, segment % 2, ("slow", "fast"), columns=columns | {"time": rng.integers(0, 30, rows)})


@given(WAYS, st.floats(0.05, 0.9), SEEDS)
def test_clients_are_those_of_the_column_and_keep_their_samples_apart(way, share, seed):
    these = people(seed)
    partition = assert_contract(Natural("person", share, small="drop", **way), these, seed, "order" not in way)
    who = these.column("person")
    for name, train, query in zip(partition.names, partition.train, partition.query, strict=True):
        assert sorted([*train, *query]) == np.flatnonzero(who == name).tolist()
        if "group" not in way:
            total = len(train) + len(query)
            assert len(query) == min(max(round(share * total), 1), total - 1)


@given(SEEDS, st.sampled_from(["int", "float", "datetime64[s]", "str"]))
def test_by_order_the_last_samples_are_for_tests(seed, kind):
    these = people(seed)
    these = these.with_columns(time=np.char.zfill(these.column("time").astype(str), 2).astype(kind)
                               if kind == "str" else these.column("time").astype(kind))  # fmt: skip
    partition = Natural("person", order="time", small="drop")(these, seed)
    time = these.column("time")
    for train, query in zip(partition.train, partition.query, strict=True):
        assert max(time[train].tolist()) <= min(time[query].tolist())


@given(SEEDS, st.floats(0.05, 0.9))
def test_groups_stay_whole_and_both_sides_have_the_classes(seed, share):
    these = people(seed)
    partition = Natural("person", share, group="segment", small="drop")(these, seed)
    segment = these.column("segment")
    for train, query in zip(partition.train, partition.query, strict=True):
        assert not set(segment[train]) & set(segment[query])
        # Segments 0 and 2 are slow, 1 and 3 fast: where a person has both of a class, one is on each side.
        mine = set(segment[train]) | set(segment[query])
        for label in (0, 1):
            if {label, label + 2} <= mine:
                assert label in these.y[train]
                assert label in these.y[query]


def test_groups_without_a_twin_leave_one_for_tests():
    these = Samples(
        "toy", np.arange(12.0)[:, None], np.arange(12) // 4, tuple("abc"),
        columns={"who": np.zeros(12, int), "take": np.arange(12) // 4},
    )  # fmt: skip
    partition = Natural("who", group="take")(these, 0)
    assert (partition.train.counts[0], partition.query.counts[0]) == (8, 4)
    assert partition.notes == ("33% of the samples are test samples rather than 20%: clients are small.",)


@given(SEEDS, st.integers(1, 60), st.sampled_from([None, "segment"]))
def test_shots_are_training_samples_of_each_class(seed, shots, group):
    these = people(seed)
    partition = Natural("person", group=group, small="drop", shots=shots)(these, seed)
    scarce = 0
    for train, support, query in zip(partition.train, partition.support, partition.query, strict=True):
        assert set(support) <= set(train)
        if group:
            assert not set(these.column(group)[support]) & set(these.column(group)[query])
        had = np.bincount(these.y[train], minlength=2)
        assert np.bincount(these.y[support], minlength=2).tolist() == np.minimum(had, shots).tolist()
        scarce += (had[had > 0] < shots).any()
    note = (
        f"{scarce} of {len(partition)} clients have fewer than {shots} training samples of a class, and adapt on those."
    )
    assert (note in partition.notes) == (scarce > 0)


def test_shots_of_a_regression_are_of_all_samples():
    these = Samples("toy", np.arange(40.0)[:, None], np.arange(40.0), columns={"who": np.arange(40) // 20})
    assert Natural("who", shots=3)(these, 0).support.counts.tolist() == [3, 3]


def test_the_sources_own_test_set():
    these = samples(30, test=10)
    these = these.with_columns(who=np.arange(len(these)) % 3)
    partition = Natural("who", test_share="own")(these, 0)
    assert these.test[partition.query.rows].all()
    assert not these.test[partition.train.rows].any()
    assert len(partition.query.rows) == 40


def test_dictionary_columns_serve_as_well():
    these = people()
    encoded = these.with_columns(person=pa.array(these.column("person")).dictionary_encode())
    one, two = (Natural("person", small="drop")(s, 0) for s in (these, encoded))
    assert one.names == two.names
    assert one.train.rows.tolist() == two.train.rows.tolist()


def small_clients(**options):
    who = np.array(["ann"] * 9 + ["bob"] + ["cem"] * 3 + ["dan"])
    these = Samples("toy", np.arange(14.0)[:, None], np.arange(14) % 2, ("a", "b"), columns={"who": who, "take": who})
    return Natural("who", **options)(these, 0)


def test_small_clients_are_dropped_on_request():
    partition = small_clients(small="drop")
    assert partition.names == ["ann", "cem"]
    assert partition.notes[0] == (
        "2 of 4 clients are too small and are left out with 2 samples: 'bob' has 1 sample, fewer than 2."
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, r"toy: client 'bob' of column who has 1 sample, fewer than 2; 2 of 4 clients are too small.*'drop'"),
        ({"min_samples": 5}, "client 'bob' .* fewer than 5; 3 of 4 clients"),
        (
            {"min_samples": 50, "small": "drop"},
            "client 'ann' .* has 9 samples, fewer than 50; 4 of 4.*Lower min_samples",
        ),
        ({"group": "take", "small": "drop"}, "client 'ann' of column who has all of its 9 samples in one take"),
        ({"group": "tape"}, "no column 'tape'.*take"),
        ({"test_share": 0.0}, "test_share = 0.0"),
        ({"test_share": "own"}, "no test set of its own.*test_share"),
        ({"group": "take", "order": "take"}, "group = 'take' and order = 'take' each say.*Give one"),
        ({"test_share": "own", "order": "take"}, "order = 'take' and test_share = 'own' each say"),
        ({"test_share": "source"}, "test_share = 'source' is not a share"),
        ({"small": "keep"}, "small = 'keep'"),
        ({"shots": 0}, "shots = 0"),
    ],
)
def test_refusals(options, words):
    with pytest.raises(UsageError, match=f"(?s){words}"):
        small_clients(**options)


def test_clients_on_one_side_of_the_sources_test_set_are_refused():
    these = samples(30, test=10)
    with pytest.raises(UsageError, match="client 0 of column who has none of its 120 samples in the test set; 2 of 2"):
        Natural("who", "own")(these.with_columns(who=these.test.astype(int)), 0)


def test_a_column_with_gaps_is_refused():
    these = people()
    gaps = np.where(np.arange(240) == 7, np.nan, 1.0)
    for options, name in (({"column": "gaps"}, "gaps"), ({"column": "person", "order": "gaps"}, "gaps")):
        with pytest.raises(UsageError, match=f"walks: column {name} has no value in row 7"):
            Natural(**options, small="drop")(these.with_columns(gaps=gaps), 0)
