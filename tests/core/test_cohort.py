import itertools

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from headstart.core import cohort_size, draw_cohort
from headstart.errors import UsageError


def draw_many(clients, size, draws):
    keys = jax.random.split(jax.random.key(0), draws)
    return np.asarray(jax.jit(jax.vmap(lambda key: draw_cohort(key, clients, size)))(keys))


@pytest.mark.parametrize(("clients", "size"), [(6, 3), (7, 2)])
def test_every_subset_is_equally_likely(clients, size):
    drawn = np.sort(draw_many(clients, size, 6000), axis=1)
    subsets = list(itertools.combinations(range(clients), size))
    counts = [(drawn == subset).all(axis=1).sum() for subset in subsets]
    assert sum(counts) == len(drawn)
    assert stats.chisquare(counts).pvalue > 1e-3


@pytest.mark.parametrize(("clients", "size"), [(40, 8), (40, 37)], ids=["floyd", "shuffle"])
def test_clients_and_pairs_of_clients_are_included_evenly(clients, size):
    draws = 4000
    taken = np.zeros((draws, clients))
    np.put_along_axis(taken, draw_many(clients, size, draws), 1.0, axis=1)
    together = taken.T @ taken
    single, pairs = np.diag(together), together[np.triu_indices(clients, 1)]
    share = size / clients
    spread = draws * share * (1 - share)
    # Inclusions sum to size in every draw: one degree of freedom fewer, and variances larger by n / (n - 1).
    statistic = ((single - draws * share) ** 2).sum() / spread * (clients - 1) / clients
    assert 1e-3 < stats.chi2(clients - 1).cdf(statistic) < 1 - 1e-3
    pair_share = share * (size - 1) / (clients - 1)
    z = (pairs - draws * pair_share) / np.sqrt(draws * pair_share * (1 - pair_share))
    assert np.abs(z).max() < 4.5
    assert 0.7 < z.var() < 1.3


@settings(max_examples=12)
@given(st.integers(1, 300).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n))), st.integers(0, 2**31 - 1))
def test_nobody_is_drawn_twice(shape, seed):
    clients, size = shape
    cohort = np.asarray(draw_cohort(jax.random.key(seed), clients, size))
    assert len(np.unique(cohort)) == len(cohort) == size
    assert cohort.min() >= 0
    assert cohort.max() < clients


def test_everyone_is_everyone():
    np.testing.assert_array_equal(draw_cohort(jax.random.key(0), 5, 5), np.arange(5))


@pytest.mark.parametrize(
    ("cohort", "clients", "size"),
    [(1.0, 7, 7), (1, 7, 1), (7, 7, 7), (0.2, 50, 10), (0.5, 5, 3), (0.001, 10, 1), (0.34, 3, 1)],
)
def test_a_share_or_a_count(cohort, clients, size):
    assert cohort_size(cohort, clients) == size


@pytest.mark.parametrize(
    ("cohort", "words"),
    [
        (0, "cohort = 0 clients of 5.*from 1 to 5"),
        (6, "cohort = 6 clients of 5"),
        (0.0, "cohort = 0.0 lies outside"),
        (1.5, "cohort = 1.5 lies outside"),
        (True, "cohort = True is not a number.*share in"),
        ("all", "cohort = 'all' is not a number"),
    ],
)
def test_refusals(cohort, words):
    with pytest.raises(UsageError, match=f"(?s){words}"):
        cohort_size(cohort, 5)
