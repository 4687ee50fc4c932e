"""Ways to deal labelled samples out to clients."""

from typing import Any, NamedTuple

import numpy as np

from headstart.core import checks
from headstart.errors import UsageError

__all__ = ["Rows", "two_groups"]


class Rows(NamedTuple):
    """Each client's rows of the training set and of the test set."""

    train: list[np.ndarray]
    test: list[np.ndarray]


def two_groups(
    train_labels: np.ndarray, test_labels: np.ndarray, *, clients: int, a: int, test_a: int, seed: int
) -> Rows:
    """Fallah's heterogeneous split (section 5, Table 2): no sample goes to two clients.

    Half of the clients have ``a`` samples of each of the first half of the classes. Each of the rest has
    ``a / 2`` of one of those classes and ``2 a`` of one of the other half. Test samples are dealt alike with
    ``test_a``. The clients are then shuffled, so that any slice of them mixes both groups.
    """
    checks.whole("clients", clients, 2)
    rng = np.random.default_rng(seed)
    order = rng.permutation(clients)
    train = _deal(train_labels, clients, a, "a", rng)
    test = _deal(test_labels, clients, test_a, "test_a", rng)
    return Rows([train[i] for i in order], [test[i] for i in order])


def _deal(labels: np.ndarray, clients: int, a: int, name: str, rng: np.random.Generator) -> list[np.ndarray]:
    checks.whole(name, a, 2)
    classes = np.unique(labels)
    if len(classes) < 2:
        raise UsageError(f"The labels hold {len(classes)} class.", "Two groups need two classes or more.")
    stock = {c: rng.permutation(np.flatnonzero(labels == c)) for c in classes}
    wanted = _wanted(classes, clients, a)
    short = _short_class(wanted, stock)
    if short is not None:
        total = sum(want.get(short, 0) for want in wanted)
        fits = next((b for b in range(a - 1, 1, -1) if _short_class(_wanted(classes, clients, b), stock) is None), None)
        raise UsageError(
            f"{clients} clients with {name} = {a} want {total} samples of class {short}, but there are "
            f"{len(stock[short])}.",
            "Take fewer clients." if fits is None else f"Lower {name} to {fits}, or take fewer clients.",
        )
    rows: list[np.ndarray] = []
    for want in wanted:
        taken = []
        for c, count in want.items():
            taken.append(stock[c][:count])
            stock[c] = stock[c][count:]
        rows.append(np.sort(np.concatenate(taken)))
    return rows


def _wanted(classes: np.ndarray, clients: int, a: int) -> list[dict[Any, int]]:
    """How many samples of which class each client is dealt."""
    half, first = len(classes) // 2, (clients + 1) // 2
    even = [dict.fromkeys(classes[:half], a) for _ in range(first)]
    skewed = [
        {classes[i % half]: a // 2, classes[half + (i // half) % (len(classes) - half)]: 2 * a}
        for i in range(clients - first)
    ]
    return even + skewed


def _short_class(wanted: list[dict[Any, int]], stock: dict[Any, np.ndarray]) -> Any:
    """The first class of which more is wanted than there is, or ``None``."""
    return next((c for c, rows in stock.items() if sum(want.get(c, 0) for want in wanted) > len(rows)), None)
