import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from headstart.errors import UsageError
from headstart.wire import CoordinateMedian, Krum, TrimmedMean


def cohort(members, poison=()):
    """Honest updates near one another, and poisoned ones where the caller wants them."""
    draw = np.random.default_rng(members)
    rows = draw.normal(size=(members, 6)).astype(np.float32)
    for place, value in poison:
        rows[place] = value
    return rows


def combined(aggregator, rows, weights=None):
    weights = np.ones(len(rows)) if weights is None else weights
    tree = {"a": jnp.asarray(rows[:, :4]).reshape(-1, 2, 2), "b": jnp.asarray(rows[:, 4:])}
    result = jax.jit(aggregator.combine)(tree, jnp.asarray(weights, jnp.float32))
    return np.concatenate([np.ravel(result["a"]), np.ravel(result["b"])])


def filled(rows, filling):
    """The same cohort with members of weight zero in between."""
    more = np.insert(rows, [0, 2, len(rows)], filling, axis=0)
    weights = np.insert(np.ones(len(rows)), [0, 2, len(rows)], 0)
    return more, weights


def krum(rows, attackers, keep):
    """Blanchard et al. 2017 by loops."""
    n = len(rows)
    scores = []
    for i in range(n):
        squares = sorted(float(np.sum((rows[i] - rows[j]) ** 2)) for j in range(n) if j != i)
        scores.append(sum(squares[: n - attackers - 2]))
    return np.mean(rows[np.argsort(scores)[:keep]], axis=0)


def trimmed(rows, count):
    ordered = np.sort(rows, axis=0)
    return np.mean(ordered[count : len(rows) - count], axis=0)


CASES = {
    "median": (CoordinateMedian(), lambda rows: np.median(rows, axis=0)),
    "trimmed": (TrimmedMean(0.25), lambda rows: trimmed(rows, int(0.25 * len(rows)))),
    "krum": (Krum(2), lambda rows: krum(rows, 2, 1)),
    "multi-krum": (Krum(1, keep=3), lambda rows: krum(rows, 1, 3)),
}
POISONED = {"none": [], "large": [(1, 1e6), (4, -1e7)], "shifted": [(0, 30.0), (5, 31.0)]}


@pytest.mark.parametrize("case", CASES)
def test_against_numpy(case):
    aggregator, expected = CASES[case]
    for members, poison in itertools.product((8, 9), POISONED.values()):
        rows = cohort(members, poison)
        np.testing.assert_allclose(combined(aggregator, rows), expected(rows), rtol=1e-4, atol=1e-6)
        for filling in (0.0, 1e9, np.nan, -np.inf):
            np.testing.assert_allclose(
                combined(aggregator, *filled(rows, filling)), expected(rows), rtol=1e-4, atol=1e-6
            )


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30, -1e30])
@pytest.mark.parametrize("case", ["median", "trimmed", "krum"])
def test_poison_does_not_get_through(case, value):
    """Two of nine send what the mean does not survive; the result stays within what the others sent."""
    rows = cohort(9, [(2, value), (6, value)])
    honest = np.delete(rows, [2, 6], axis=0)
    result = combined(CASES[case][0], rows)
    assert np.all((result >= honest.min(axis=0) - 1e-5) & (result <= honest.max(axis=0) + 1e-5))
    with np.errstate(all="ignore"):
        assert not np.all(np.abs(rows.mean(axis=0)) < 100)


def test_krum_tells_near_updates_apart_beside_a_far_one():
    """Distances come from differences: inner products of rows near 1000 would lose a distance of 0.01."""
    rows = 1000 + 0.01 * cohort(8)
    np.testing.assert_allclose(combined(Krum(1), rows), krum(rows.astype(np.float64), 1, 1), rtol=1e-6)


@pytest.mark.parametrize("members", [1, 2, 3, 5, 16, 33])
def test_cohorts_of_any_size(members):
    rows = cohort(members)
    np.testing.assert_allclose(combined(CoordinateMedian(), rows), np.median(rows, axis=0), rtol=1e-5)


def test_a_majority_of_poison_is_not_hidden():
    rows = cohort(5, [(i, np.nan) for i in range(3)])
    assert not np.isfinite(combined(CoordinateMedian(), rows)).any()


def test_single_precision_does_not_trim_too_few():
    rows = np.arange(100.0, dtype=np.float32)[:, None].repeat(6, 1) ** 2
    np.testing.assert_allclose(combined(TrimmedMean(0.29), rows), trimmed(rows, 29), rtol=1e-5)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: TrimmedMean(0.5), "share = 0.5 leaves nothing"),
        (lambda: TrimmedMean(0.0), "share = 0.0"),
        (lambda: Krum(-1), "attackers = -1"),
        (lambda: Krum(1, keep=0), "keep = 0"),
        (lambda: TrimmedMean(0.1).check("uniform", 5), "of a cohort of 5 trims nobody.*at least 0.2"),
        (lambda: Krum(2).check("uniform", 6), "2 attackers needs cohorts of at least 7 clients, not 6"),
        (lambda: Krum(2, keep=6).check("uniform", 7), "keep = 6 of 7 clients.*at most 5"),
        (lambda: CoordinateMedian().check("samples", 9), "'median' counts every client once.*weighting = \"uniform\""),
        (lambda: TrimmedMean(0.2).check("samples", 9), "'trimmed-mean' counts"),
        (lambda: Krum(2).check("samples", 9), "'krum' counts"),
    ],
)
def test_refusals(build, words):
    with pytest.raises(UsageError, match=f"(?s){words}"):
        build()


def test_what_fits_passes():
    for aggregator in (CoordinateMedian(), TrimmedMean(0.2), Krum(1, keep=4)):
        aggregator.check("uniform", 5)
