"""What the partitions have in common: shuffling by contents, splitting off test data, dealing by class."""

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headstart.data.blocks import in_blocks
from headstart.data.rows import RowLists, starts_of
from headstart.data.samples import Samples, fingerprint
from headstart.errors import UsageError

__all__ = [
    "Sides",
    "apportioned",
    "as_tests",
    "check_share",
    "class_labels",
    "deal",
    "dealt_by_size",
    "factorized",
    "rank_in_runs",
    "runs_of",
    "shuffled_within",
    "sides",
    "sorted_within",
    "stock_of",
]


class Sides(NamedTuple):
    """Rows that clients may train on, rows they may be scored on, and what is to be said about how they were parted."""

    train: np.ndarray
    test: np.ndarray
    notes: tuple[str, ...]


def check_share(name: str, value: Any) -> None:
    """``0 < value < 1``."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1:
        raise UsageError(f"{name} = {value!r} is not a share.", f"Give {name} a value between 0 and 1.")


def class_labels(samples: Samples) -> np.ndarray:
    """Each row's class number, once it is sure that each has one."""
    if samples.classes is None:
        raise UsageError(
            f"{samples.name} is a regression, which has no classes to deal by.",
            "Use iid, quantity-skew, natural or rotations.",
        )
    y, classes = samples.y, len(samples.classes)
    if y.ndim != 1:
        raise UsageError(f"{samples.name}: y has shape {y.shape}.", "Give every sample one class number.")
    bad = np.flatnonzero(~((y >= 0) & (y < classes) & (y == np.round(y))))
    if bad.size:
        raise UsageError(
            f"{samples.name}: row {bad[0]} has the label {y[bad[0]]}, which is none of the {classes} classes; "
            f"{bad.size} of {len(y)} rows have no class.",
            f"Leave those rows out, or label them with 0 to {classes - 1}.",
        )
    return y.astype(np.int64, copy=False)


def stock_of(samples: Samples, labels: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """How many of some rows are of each class."""
    assert samples.classes is not None
    return np.bincount(labels[rows], minlength=len(samples.classes))


def shuffled_within(groups: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """The order that sorts by group and, within a group, by random keys.

    Rows of equal contents have equal keys; each copy gets a key of its own, for otherwise all would go the same way.
    """
    order, same = _sorted_by_packed(groups, keys)
    # Ties in the bits that were sorted by need not be copies.
    tied = np.flatnonzero(same)
    same[tied] = keys[order[tied]] == keys[order[tied + 1]]
    if not same.any():
        return order
    copy = np.empty(len(order), np.uint64)
    copy[order] = rank_in_runs(np.cumsum(np.append(True, ~same)))
    repeated = np.flatnonzero(copy)
    keys = keys.copy()
    keys[repeated] = fingerprint(np.stack([keys[repeated], copy[repeated]], axis=1))
    return _sorted_by_packed(groups, keys)[0]


def sorted_within(groups: np.ndarray, values: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """The order that sorts by group, within a group by value (a number or a time), and equal values by random keys."""
    spread = _spread_out(values)
    order, same = _sorted_by_packed(groups, spread)
    tied = np.flatnonzero(same)
    same[tied] = spread[order[tied]] == spread[order[tied + 1]]
    return _settled(order, same, keys)


def _spread_out(values: np.ndarray) -> np.ndarray:
    """Values as 64-bit numbers in the same order, with what tells them apart in the high bits."""
    if values.dtype.kind == "f":
        # The bits of floats sort as those of integers do, once the negative ones are turned round; -0 is 0.
        bits = (values.astype(np.float64) + 0.0).view(np.int64)
        bits ^= (bits >> 63) & np.int64(2**63 - 1)
    else:
        bits = values.astype(np.int64)
    if not len(bits):
        return bits.view(np.uint64)
    above_least = bits.view(np.uint64) - bits.min().view(np.uint64)
    return above_least << np.uint64(64 - max(int(above_least.max()).bit_length(), 1))


def _sorted_by_packed(groups: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The order by group and key, and which neighbours in it are tied in their group and the high bits of their keys.

    Sorting numbers that hold the group, what fits of the key, and the row is several times faster than an argsort.
    """
    group_bits = int(groups.max(initial=0)).bit_length()
    row_bits = max(len(keys) - 1, 0).bit_length()
    key_bits = max(64 - group_bits - row_bits, 1)
    packed = np.empty(len(keys), np.uint64)

    def pack(part: slice) -> None:
        block = groups[part].astype(np.uint64)
        block <<= np.uint64(key_bits)
        block |= keys[part] >> np.uint64(64 - key_bits)
        block <<= np.uint64(row_bits)
        block |= np.arange(part.start, part.stop, dtype=np.uint64)
        packed[part] = block

    in_blocks(pack, len(keys), BLOCK_ROWS)
    packed.sort()
    same = np.empty(max(len(keys) - 1, 0), bool)
    order = np.empty(len(keys), np.int64)

    def unpack(part: slice) -> None:
        block = packed[part.start : part.stop + 1]
        np.bitwise_and(block[: part.stop - part.start], np.uint64(2**row_bits - 1), out=order[part].view(np.uint64))
        shared = block >> np.uint64(row_bits)
        same[part] = shared[1:] == shared[:-1]

    in_blocks(unpack, len(keys), BLOCK_ROWS)
    return _settled(order, same, keys), same


BLOCK_ROWS = 2**16
"""What a processor's cache holds of a few long arrays."""


def _settled(order: np.ndarray, same: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """The order with every run of tied neighbours sorted by key."""
    first = np.flatnonzero(same)
    if first.size:
        # A run of ties is a run of consecutive numbers here, and its members are they and the one after the last.
        ends = np.flatnonzero(np.append(first[1:] != first[:-1] + 1, True))
        tied = np.insert(first, ends + 1, first[ends] + 1)
        run = np.insert(np.repeat(ends, np.diff(ends, prepend=-1)), ends + 1, ends)
        order[tied] = order[tied][np.lexsort((keys[order[tied]], run))]
    return order


def rank_in_runs(values: np.ndarray) -> np.ndarray:
    """The position of every value in its run of equal values: 0 0 1 0 1 2 for a b b c c c."""
    starts, lengths = runs_of(values)
    return np.arange(len(values)) - np.repeat(starts, lengths)


def runs_of(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where every run of equal values begins, and how long it is."""
    starts = np.flatnonzero(np.append(np.ones(min(1, len(values)), bool), values[1:] != values[:-1]))
    return starts, np.diff(np.append(starts, len(values)))


def sides(samples: Samples, seed: int, test_share: float) -> Sides:
    """The source's own training and test rows; where it has no test set, a share of every class is set apart."""
    if samples.test is not None:
        own = samples.test.astype(bool, copy=False)
        parted = Sides(np.flatnonzero(~own), np.flatnonzero(own), ())
        how = f"{samples.name}'s own test set leaves"
    else:
        labels = np.zeros(len(samples), np.int64) if samples.classes is None else class_labels(samples)
        order = shuffled_within(labels, samples.keys(seed, "test side"))
        counts = np.bincount(labels, minlength=1)
        is_test = rank_in_runs(labels[order]) < np.repeat(np.rint(test_share * counts), counts)
        of_what = "all samples" if samples.classes is None else "every class"
        parted = Sides(
            order[~is_test],
            order[is_test],
            (f"{samples.name} has no test set of its own: {test_share:.3g} of {of_what} was set apart as one.",),
        )
        how = f"A test share of {test_share:.3g} leaves"
    for name, rows in (("training", parted.train), ("test", parted.test)):
        if not len(rows):
            raise UsageError(
                f"{how} no {name} samples of {len(samples)}.", "Mark other rows as test rows, or change the share."
            )
    return parted


def deal(labels: np.ndarray, rows: np.ndarray, wanted: np.ndarray, keys: np.ndarray) -> RowLists:
    """Give client ``i`` ``wanted[i, c]`` of the rows of class ``c``; where a class runs out, it starts again."""
    clients, classes = wanted.shape
    order = rows[shuffled_within(labels[rows], keys[rows])]
    stock = np.bincount(labels[rows], minlength=classes)
    totals = wanted.sum(axis=0)
    of_class = np.repeat(np.arange(classes), totals)
    position = (np.arange(totals.sum()) - starts_of(totals)[of_class]) % np.maximum(stock, 1)[of_class]
    owner = np.repeat(np.tile(np.arange(clients), classes), wanted.T.ravel())
    return RowLists.by_owner(owner, clients, order[starts_of(stock)[of_class] + position])


def dealt_by_size(rows: np.ndarray, sizes: np.ndarray, keys: np.ndarray) -> RowLists:
    """Give every client so many of the rows, whatever they are."""
    order = rows[shuffled_within(np.zeros(len(rows), np.int64), keys[rows])]
    starts = starts_of(sizes)
    return RowLists(order[: starts[-1]], starts)


def apportioned(total: int, weights: np.ndarray, least: int = 0) -> np.ndarray:
    """Whole numbers that sum to ``total``, each at least ``least``, the rest in proportion to weights.

    >>> apportioned(10, np.array([1, 2, 4])).tolist()
    [1, 3, 6]
    """
    rest = total - least * len(weights)
    exact = rest * (weights / weights.sum())
    numbers = np.floor(exact).astype(np.int64)
    # Largest remainders first.
    largest = np.argsort(numbers - exact, kind="stable")
    numbers[largest[: rest - numbers.sum()]] += 1
    return numbers + least


def as_tests(train_counts: np.ndarray, test_stock: np.ndarray) -> np.ndarray:
    """All test samples of every class, dealt in the proportions in which clients have the class for training."""
    wanted = np.zeros_like(train_counts)
    for c in np.flatnonzero(train_counts.any(axis=0)):
        wanted[:, c] = apportioned(int(test_stock[c]), train_counts[:, c])
    return wanted


def factorized(values: np.ndarray | pa.DictionaryArray, what: str) -> tuple[pa.Array, np.ndarray]:
    """The distinct values in order, and each row's number among them. Missing values are refused."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "iu" and len(values):
        least, most = int(values.min()), int(values.max())
        if most - least < 4 * len(values):
            there = np.zeros(most - least + 1, bool)
            there[values - least] = True
            return pa.array(np.flatnonzero(there) + least), (np.cumsum(there) - 1)[values - least]
    try:
        encoded = values
        if not isinstance(encoded, pa.DictionaryArray):
            encoded = pa.array(values, from_pandas=True).dictionary_encode()
        order = pc.sort_indices(encoded.dictionary).to_numpy()
    except (pa.ArrowException, TypeError) as error:
        raise UsageError(
            f"{what} cannot be sorted: {error}", "Give it numbers, texts or times, one kind only."
        ) from error
    if encoded.null_count:
        first = int(np.flatnonzero(encoded.is_null())[0])
        raise UsageError(
            f"{what} has no value in row {first}; {encoded.null_count} rows have none.",
            "Fill the values in, or leave those rows out.",
        )
    numbers = encoded.indices.to_numpy()
    # A dictionary may list values that no row has.
    order = order[np.bincount(numbers, minlength=len(order))[order] > 0]
    place = np.zeros(len(encoded.dictionary), np.int64)
    place[order] = np.arange(len(order))
    return encoded.dictionary.take(pa.array(order)), place[numbers]
