"""Which rows of a pool belong to which client, for few clients or millions."""

from collections.abc import Iterator, Sequence

import numpy as np

__all__ = ["RowLists"]


class RowLists(Sequence[np.ndarray]):
    """A list of row numbers for every client: one flat array, and where each client's part begins.

    >>> rows = RowLists.from_lists([[4, 2], [], [7]])
    >>> len(rows), rows[0].tolist(), rows.counts.tolist()
    (3, [4, 2], [2, 0, 1])
    >>> RowLists.by_owner(np.array([1, 0, 1, -1]), owners=2)[1].tolist()
    [0, 2]
    """

    def __init__(self, rows: np.ndarray, starts: np.ndarray):
        self.rows, self.starts = rows, starts

    @classmethod
    def from_lists(cls, lists: Sequence[Sequence[int] | np.ndarray]) -> "RowLists":
        """From one list a client."""
        if isinstance(lists, cls):
            return lists
        counts = np.fromiter(map(len, lists), np.int64, len(lists))
        rows = np.concatenate([np.zeros(0, np.int64), *(np.asarray(part, np.int64) for part in lists)])
        return cls(rows, starts_of(counts))

    @classmethod
    def by_owner(cls, owner: np.ndarray, owners: int, rows: np.ndarray | None = None) -> "RowLists":
        """From every row's owner; the rows of one stay in the order they have. Owner -1 is nobody."""
        order = np.argsort(owner, kind="stable")
        order = order[np.searchsorted(owner, 0, sorter=order) :]
        counts = np.bincount(owner[order], minlength=owners)
        return cls(order if rows is None else rows[order], starts_of(counts))

    @property
    def counts(self) -> np.ndarray:
        """How many rows each client has."""
        return np.diff(self.starts)

    def chosen(self, clients: np.ndarray) -> "RowLists":
        """The lists of some clients, in the order given."""
        counts = self.counts[clients]
        starts = starts_of(counts)
        offsets = np.arange(starts[-1]) - np.repeat(starts[:-1], counts)
        return RowLists(self.rows[np.repeat(self.starts[clients], counts) + offsets], starts)

    def divided(self, mask: np.ndarray) -> tuple["RowLists", "RowLists"]:
        """Every client's rows where the mask (one value a row, in order) is true, and its other rows.

        >>> these, others = RowLists.from_lists([[4, 2, 9], [7]]).divided(np.array([True, False, True, False]))
        >>> these[0].tolist(), others[0].tolist(), others[1].tolist()
        ([4, 9], [2], [7])
        """
        filled = np.flatnonzero(self.counts)
        counts = np.zeros(len(self), np.int64)
        if filled.size:
            counts[filled] = np.add.reduceat(mask, self.starts[filled], dtype=np.int64)
        return (
            RowLists(self.rows[mask], starts_of(counts)),
            RowLists(self.rows[~mask], starts_of(self.counts - counts)),
        )

    def moved_last(self, clients: np.ndarray) -> "RowLists":
        """The same with some clients (increasing numbers) behind all others."""
        last = np.zeros(len(self), bool)
        last[clients] = True
        rows = np.repeat(last, self.counts)
        counts = np.concatenate([self.counts[~last], self.counts[last]])
        return RowLists(np.concatenate([self.rows[~rows], self.rows[rows]]), starts_of(counts))

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, client):  # type: ignore[no-untyped-def, override]
        if isinstance(client, slice):
            return self.chosen(np.arange(len(self))[client])
        if not -len(self) <= client < len(self):
            raise IndexError(client)
        client = client % len(self)
        return self.rows[self.starts[client] : self.starts[client + 1]]

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[client] for client in range(len(self)))


def starts_of(counts: np.ndarray) -> np.ndarray:
    """Where each part begins in the flat list, and where the last one ends."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])
