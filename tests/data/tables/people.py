"""A small table of people, and what it looks like to clients."""

from itertools import pairwise

import numpy as np
import pyarrow as pa

from headstart.problems import Examples


def people(rows: int = 120, clients: int = 6, **changed: object) -> pa.Table:
    """Rows of several persons; named columns are added or take the place of others, and ``None`` takes them away."""
    rng = np.random.default_rng(0)
    columns = {
        "person": [f"p{i % clients}" for i in range(rows)],
        "speed": rng.normal(3, 2, rows),
        "age": rng.integers(20, 60, rows),
        "activity": [("run", "walk", "sit")[i] for i in rng.integers(0, 3, rows)],
    } | changed
    return pa.table({name: values for name, values in columns.items() if values is not None})


def rows_of(federation, part: str) -> list[np.ndarray]:
    """Each client's rows of one part."""
    lists = federation.clients.parts[part]
    rows, starts = np.asarray(lists.rows), np.asarray(lists.starts)
    return [rows[a:b] for a, b in pairwise(starts)]


def inputs(federation, rows: np.ndarray) -> np.ndarray:
    """What a model is given for some rows."""
    pool = federation.clients.pool
    return np.asarray(federation.clients.transform(Examples(pool.x[rows], pool.y[rows])).x)


def training_rows(federation) -> np.ndarray:
    """The training rows of the clients that train."""
    return np.concatenate(rows_of(federation, "train")[: federation.trained])
