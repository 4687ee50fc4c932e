"""Toy samples, and what every partition must keep."""

from dataclasses import replace

import numpy as np

from headstart.data.samples import Samples


def samples(per_class=60, classes=4, *, test=0, seed=0, values=2**16, side=2, **columns):
    """``per_class`` training and ``test`` test images of every class; few ``values`` make copies likely."""
    rng = np.random.default_rng(seed)
    y = np.repeat(np.tile(np.arange(classes), 2), np.repeat([per_class, test], classes))
    own = np.repeat([False, True], [per_class * classes, test * classes]) if test else None
    order = rng.permutation(len(y))
    x = rng.integers(0, values, (len(y), side, side)).astype(np.float32)
    names = tuple(f"class {c}" for c in range(classes))
    return Samples("toy", x, y[order], names, None if own is None else own[order], columns=columns)


def permuted(these, order):
    """The same samples in another order of rows."""
    return replace(
        these,
        x=these.x[order],
        y=these.y[order],
        test=None if these.test is None else these.test[order],
        columns={name: values[order] for name, values in these.columns.items()},
    )


def class_counts(partition, part):
    """Clients by classes, counted one by one."""
    these = partition.samples
    return np.array([np.bincount(these.y[rows], minlength=len(these.classes)) for rows in getattr(partition, part)])


def contents(partition):
    """What each client has, whatever the rows are called."""

    def of(lists):
        these = partition.samples
        return [sorted((these.x[row].tobytes(), these.y[row].tobytes()) for row in rows) for rows in lists]

    parts = (partition.train, partition.query, partition.train if partition.support is None else partition.support)
    return [of(lists) for lists in parts]


def assert_contract(partitioner, these, seed, seeds_differ=True):
    """Disjoint, the same for the same seed, another for another, and independent of the order of rows."""
    partition = partitioner(these, seed)
    flat = np.concatenate([partition.train.rows, partition.query.rows])
    assert len(np.unique(flat)) == len(flat)
    assert len(partition.train) == len(partition.query) == len(partition)
    assert (partition.train.counts > 0).all()
    assert (partition.query.counts > 0).all()
    if these.test is not None:
        assert not partition.samples.test[partition.train.rows].any()
        assert partition.samples.test[partition.query.rows].all()
    assert contents(partitioner(these, seed)) == contents(partition)
    assert not seeds_differ or contents(partitioner(these, seed + 1)) != contents(partition)
    moved = partitioner(permuted(these, np.random.default_rng(seed).permutation(len(these))), seed)
    assert contents(moved) == contents(partition)
    assert moved.notes == partition.notes
    return partition
