"""Distances between clients' data: total variation and 1-Wasserstein, as in fallah's section 4.1.

(14a) and (16) there bound how unlike clients' gradients and Hessians are by the distances of their distributions
``p_i`` to the mean ``p = (1/n) sum_i p_i``. ``total_variation_to_mean`` and ``wasserstein_to_mean`` give those
distances, and ``per_fedavg.dissimilarity_from_total_variation`` and ``..._from_wasserstein`` the bounds.

>>> import headstart as hs
>>> from headstart.theory.distance import client_samples, total_variation_to_mean
>>> data = client_samples(hs.data.mnist_small(clients=20), clients=[0, 1, 2])
>>> distances = total_variation_to_mean([batch.y for batch in data])  # of the label distributions
>>> distances.shape
(3,)
"""

import importlib.util
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linear_sum_assignment, linprog
from scipy.sparse import eye_array, kron, vstack
from scipy.spatial.distance import cdist
from scipy.stats import wasserstein_distance

from headstart.core import Batch, Size, Weighted, client_key
from headstart.data import Federation, Part
from headstart.errors import UsageError
from headstart.theory.sampling import choose_clients, choose_size, in_memory

__all__ = [
    "client_samples",
    "frequencies",
    "total_variation",
    "total_variation_to_mean",
    "wasserstein",
    "wasserstein_to_mean",
]


def client_samples(
    federation: Federation,
    *,
    part: Part = "train",
    clients: int | Sequence[int] | None = None,
    batch_size: Size | None = None,
    seed: int = 0,
) -> list[Batch]:
    """Clients' samples as NumPy arrays: all of them, or ``batch_size`` draws (1024 where clients generate them).

    ``clients`` are numbers of clients, or how many to draw from those that train; left out, all that train.
    """
    ids, _ = choose_clients(federation, clients, seed)
    size = choose_size(federation, batch_size)
    key = jax.random.key(seed)
    data, places = in_memory(federation, part, ids)
    found = []
    for place in places:
        batch = data.view(part, jnp.asarray(place)).sample(client_key(key, place), size)
        if isinstance(batch, Weighted):
            counted = np.asarray(batch.weight) > 0
            batch = jax.tree.map(lambda leaf, counted=counted: np.asarray(leaf)[counted], batch.samples)
        found.append(jax.tree.map(np.asarray, batch))
    return found


def frequencies(samples: Sequence[ArrayLike]) -> np.ndarray:
    """How often each value occurs in each client's samples: a row a client, a column a value that any client has.

    A sample is a number, such as a label, or a row of numbers.
    """
    arrays = _rows(samples)
    _, value = np.unique(np.concatenate(arrays), axis=0, return_inverse=True)
    owner = np.repeat(np.arange(len(arrays)), [len(rows) for rows in arrays])
    counts = np.zeros((len(arrays), value.max() + 1))
    np.add.at(counts, (owner, value.ravel()), 1)
    return counts / counts.sum(axis=1, keepdims=True)


def total_variation(p: ArrayLike, q: ArrayLike) -> float:
    """``1/2 sum_z |p(z) - q(z)|`` of two distributions over the same values.

    >>> total_variation([0.5, 0.5, 0.0], [0.5, 0.0, 0.5])
    0.5
    """
    p, q = np.asarray(p, float), np.asarray(q, float)
    if p.shape != q.shape or p.ndim != 1:
        raise UsageError(
            f"Distributions of shapes {p.shape} and {q.shape} are not over the same values.",
            "Give two vectors of probabilities of equal length, such as rows of frequencies(samples).",
        )
    for name, shares in (("first", p), ("second", q)):
        if (shares < 0).any() or not np.isclose(shares.sum(), 1):
            raise UsageError(
                f"The {name} distribution adds up to {shares.sum():.6g}, or has negative parts.",
                "Give probabilities: divide counts by their sum.",
            )
    return float(np.abs(p - q).sum() / 2)


def total_variation_to_mean(samples: Sequence[ArrayLike]) -> np.ndarray:
    """``||p_i - p||_TV`` for each client, with ``p_i`` the frequencies of its samples: what (14a) squares and averages.

    Where no two clients share a value, as with images, every distance is ``1 - 1/n``: only distributions over few
    values, such as labels, can be compared so.
    """
    shares = frequencies(samples)
    return np.abs(shares - shares.mean(axis=0)).sum(axis=1) / 2


def wasserstein(
    x: ArrayLike, y: ArrayLike, x_weight: ArrayLike | None = None, y_weight: ArrayLike | None = None
) -> float:
    """The exact 1-Wasserstein distance of two sets of samples, one a row, in the Euclidean metric.

    Weights make samples unequally likely. Numbers are compared by their distribution functions, equally many
    equally likely samples by an assignment, and others by a linear program, which the optional package POT
    (``pip install pot``) solves many times faster than SciPy; without it, keep to some 100,000 pairs.

    >>> wasserstein([[0.0, 0.0]], [[3.0, 4.0], [0.0, 0.0]])
    2.5
    """
    x, y = _rows([x, y])
    p, q = _likely(x_weight, len(x)), _likely(y_weight, len(y))
    if x.shape[1] == 1:
        return float(wasserstein_distance(x[:, 0], y[:, 0], p, q))
    cost = cdist(x, y)
    if x_weight is None and y_weight is None and len(x) == len(y):
        return float(cost[linear_sum_assignment(cost)].mean())
    return _transport(cost, p, q)


def wasserstein_to_mean(samples: Sequence[ArrayLike]) -> np.ndarray:
    """``W_1(p_i, p)`` for each client, with ``p_i`` its samples, equally likely: what (16) squares and averages."""
    arrays = _rows(samples)
    if len(arrays) == 1:
        return np.zeros(1)
    weights = [np.full(len(rows), 1 / len(rows)) for rows in arrays]
    # W_1 depends on the difference p_i - p = (1 - 1/n) (p_i - mean of the others) alone, so what p shares with p_i
    # need not be moved.
    return (1 - 1 / len(arrays)) * np.array(
        [
            wasserstein(
                rows,
                np.concatenate(arrays[:client] + arrays[client + 1 :]),
                weights[client],
                np.concatenate(weights[:client] + weights[client + 1 :]),
            )
            for client, rows in enumerate(arrays)
        ]
    )


def _transport(cost: np.ndarray, p: np.ndarray, q: np.ndarray) -> float:
    """The least cost of moving ``p`` to ``q``."""
    if importlib.util.find_spec("ot"):
        import ot

        return float(ot.emd2(p, q, cost, numItermax=10_000_000))
    leaves = kron(eye_array(len(p)), np.ones((1, len(q))))
    arrives = kron(np.ones((1, len(p))), eye_array(len(q)))
    solved = linprog(cost.ravel(), A_eq=vstack([leaves, arrives]).tocsr(), b_eq=np.concatenate([p, q]))
    if solved.status != 0:
        raise UsageError(f"The transport problem was not solved: {solved.message}", "Take fewer samples.")
    return float(solved.fun)


def _rows(samples: Sequence[ArrayLike]) -> list[np.ndarray]:
    """Each set of samples as a matrix with a row a sample."""
    if not len(samples):
        raise UsageError("There are no samples.", "Give one array a client.")
    arrays = [np.asarray(rows) for rows in samples]
    for number, rows in enumerate(arrays):
        if rows.ndim == 0 or not len(rows):
            raise UsageError(f"The samples of entry {number} are empty.", "Give an array with one row a sample.")
        if rows.shape[1:] != arrays[0].shape[1:]:
            raise UsageError(
                f"Samples have shape {rows.shape[1:]} in entry {number} but {arrays[0].shape[1:]} in entry 0.",
                "Give samples of one shape.",
            )
    return [rows.reshape(len(rows), -1) for rows in arrays]


def _likely(weight: ArrayLike | None, count: int) -> np.ndarray:
    if weight is None:
        return np.full(count, 1 / count)
    shares = np.asarray(weight, float)
    if shares.shape != (count,) or (shares < 0).any() or not shares.sum() > 0:
        raise UsageError(
            f"Weights of shape {shares.shape} for {count} samples, or not above 0.",
            "Give each sample a weight of 0 or more, not all 0.",
        )
    return shares / shares.sum()
