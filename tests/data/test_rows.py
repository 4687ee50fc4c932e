import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.data.rows import RowLists


@given(st.lists(st.lists(st.integers(0, 99)), min_size=1, max_size=8), st.data())
def test_some_clients_lists_are_those_of_the_clients(lists, data):
    rows = RowLists.from_lists(lists)
    assert [part.tolist() for part in rows] == lists
    chosen = data.draw(st.lists(st.integers(0, len(lists) - 1)))
    assert [part.tolist() for part in rows.chosen(np.array(chosen, int))] == [lists[i] for i in chosen]
    assert [part.tolist() for part in rows[1:]] == lists[1:]
    assert rows[-1].tolist() == lists[-1]


@given(st.lists(st.integers(-1, 4)))
def test_by_owner_keeps_the_order_of_rows(owner):
    lists = RowLists.by_owner(np.array(owner, int), owners=5)
    assert [part.tolist() for part in lists] == [[i for i, who in enumerate(owner) if who == c] for c in range(5)]


def test_there_is_no_client_beyond_the_last():
    with pytest.raises(IndexError):
        RowLists.from_lists([[1]])[1]


@given(st.lists(st.lists(st.integers(0, 99)), min_size=1, max_size=8), st.data())
def test_clients_moved_last_keep_their_lists(lists, data):
    last = sorted(data.draw(st.sets(st.integers(0, len(lists) - 1))))
    moved = RowLists.from_lists(lists).moved_last(np.array(last, int))
    order = [i for i in range(len(lists)) if i not in last] + last
    assert [part.tolist() for part in moved] == [lists[i] for i in order]


@given(st.lists(st.lists(st.integers(0, 99)), min_size=1, max_size=8), st.data())
def test_dividing_splits_every_client(lists, data):
    rows = RowLists.from_lists(lists)
    mask = np.array([data.draw(st.booleans()) for _ in rows.rows], bool)
    halves = rows.divided(mask)
    parts = iter(mask)
    chosen = [[next(parts) for _ in part] for part in lists]
    for half, wanted in zip(halves, (True, False), strict=True):
        pairs = [list(zip(part, which, strict=True)) for part, which in zip(lists, chosen, strict=True)]
        expected = [[row for row, c in part if c == wanted] for part in pairs]
        assert [part.tolist() for part in half] == expected
