import numpy as np
import pytest

from examples import portfolio


@pytest.fixture(scope="module")
def portfolios():
    return portfolio.main()


def test_the_closed_form_is_the_optimum():
    data, h = portfolio.returns(), 1e-4
    right = portfolio.optimum(data)

    def cost(x):
        gains = data @ x
        return np.mean(portfolio.AVERSION * gains.var(axis=1) - gains.mean(axis=1))

    for unit in np.eye(len(right)):
        np.testing.assert_allclose((cost(right + h * unit) - cost(right - h * unit)) / (2 * h), 0, atol=1e-9)


def test_a_memory_finds_it(portfolios):
    right = portfolios["closed form"]
    assert np.linalg.norm(portfolios["local-scgdm"] - right) < 0.15 * np.linalg.norm(right)


def test_the_biased_gradient_holds_too_much_by_as_much_as_batches_miss_of_the_variance(portfolios):
    expected = portfolio.BATCH / (portfolio.BATCH - 1) * portfolios["closed form"]
    assert np.linalg.norm(portfolios["local-bsgd"] - expected) < 0.15 * np.linalg.norm(expected)
