"""Targets are standardised and shown in their own units, and no scale or tail of a feature does harm."""

import jax
import numpy as np
import pytest

import headstart as hs
from headstart.data.tables import arrays, table
from headstart.data.tables.fitting import LIMIT
from headstart.problems import Examples, problem_for
from tests.data.tables.people import inputs, people, training_rows

COLUMNS = {"client": "person", "label": "activity"}
RNG = np.random.default_rng(5)


def examples(federation, rows):
    pool = federation.clients.pool
    return federation.clients.transform(Examples(pool.x[rows], pool.y[rows]))


@pytest.mark.parametrize(("mean", "scale"), [(0, 1), (0, 1e-6), (3e6, 1e6), (-40, 1e-3), (1.7e9, 5.0)])
def test_targets_are_standardised_over_training_rows_of_training_clients(mean, scale):
    targets = mean + scale * RNG.normal(size=120)
    federation = table(people(activity=targets), **COLUMNS)
    fit = targets[training_rows(federation)]
    y = np.asarray(examples(federation, np.arange(120)).y)[:, 0]
    np.testing.assert_allclose(y, (targets - fit.mean()) / fit.std(), atol=2e-4)
    assert federation.task.target_mean == pytest.approx(fit.mean(), rel=1e-6, abs=1e-6 * scale)
    assert federation.task.target_scale == pytest.approx(fit.std(), rel=1e-4)


def test_targets_of_images_are_standardised():
    pixels = RNG.integers(0, 255, size=(60, 4, 4), dtype=np.uint8)
    targets = RNG.normal(100, 20, 60)
    federation = arrays(pixels, targets, np.arange(60) % 6)
    y = np.asarray(examples(federation, training_rows(federation)).y)
    assert y.mean() == pytest.approx(0, abs=1e-5)
    assert y.std() == pytest.approx(1, rel=1e-4)


def test_classes_have_no_scale():
    task = table(people(), **COLUMNS).task
    assert (task.target_mean, task.target_scale) == (0.0, 1.0)


def test_metrics_are_in_the_targets_own_units():
    targets = 1e6 + 10 * RNG.normal(size=120)
    federation = table(people(activity=targets), **COLUMNS)
    problem = problem_for(federation.task, hs.MLP(inputs=2, outputs=1, hidden=(4,)), ("rmse", "mae", "r2"))
    params = problem.init(jax.random.key(0))
    batch = examples(federation, np.arange(120))
    task = federation.task
    predicted = task.target_mean + task.target_scale * np.asarray(problem.model.apply(params, batch.x), float)[:, 0]
    errors = predicted - targets
    scores = problem.scores(params, batch)
    assert float(scores["rmse"]) == pytest.approx(np.sqrt((errors**2).mean()), rel=1e-4)
    assert float(scores["mae"]) == pytest.approx(np.abs(errors).mean(), rel=1e-4)
    assert float(scores["r2"]) == pytest.approx(
        1 - (errors**2).sum() / ((targets - targets.mean()) ** 2).sum(), rel=1e-4
    )
    assert float(scores["loss"]) == pytest.approx((errors**2).mean() / task.target_scale**2, rel=1e-4)


def lower_median(values):
    return np.sort(values)[(len(values) - 1) // 2]


def drawn_in(values, fit):
    """The documented transformation, by NumPy."""
    middle = lower_median(fit)
    distances = np.abs(fit - middle)
    # The sign, the exponent and seven binary digits of the median distance.
    distance = np.float32(lower_median(distances[distances > 0])).view(np.uint32) & np.uint32(0xFFFF0000)
    width = float(distance.view(np.float32)) / 0.6745
    bent, bent_fit = np.arcsinh((values - middle) / width), np.arcsinh((fit - middle) / width)
    return np.clip((bent - bent_fit.mean()) / bent_fit.std(), -LIMIT, LIMIT)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e9])
def test_heavy_tails_are_drawn_in(scale):
    values = scale * np.exp(RNG.normal(0, 3, 120))
    federation = table(people(pop=values), **COLUMNS)
    rows = training_rows(federation)
    x = inputs(federation, np.arange(120))[:, 2]
    np.testing.assert_allclose(x, drawn_in(values, values[rows]), atol=1e-4)
    assert x[rows].mean() == pytest.approx(0, abs=1e-4)
    assert x[rows].std() == pytest.approx(1, rel=1e-4)


def test_missing_values_of_heavy_tails_become_the_mean():
    values = np.exp(RNG.normal(0, 3, 120))
    values[::6] = np.nan
    x = inputs(table(people(pop=values), **COLUMNS), np.arange(120))
    np.testing.assert_allclose(x[::6, 2], 0, atol=1e-5)
    np.testing.assert_array_equal(x[:, 3], np.isnan(values))


@pytest.mark.parametrize(
    "values",
    [
        RNG.normal(size=120),
        RNG.uniform(size=120),
        RNG.exponential(size=120),
        RNG.integers(0, 2, 120),
        (np.arange(120) % 40 == 0).astype(float),
    ],
)
def test_usual_columns_are_only_standardised(values):
    federation = table(people(column=values), **COLUMNS)
    fit = values[training_rows(federation)]
    expected = np.clip((values - fit.mean()) / fit.std(), -LIMIT, LIMIT)
    np.testing.assert_allclose(inputs(federation, np.arange(120))[:, 2], expected, atol=1e-4)


@pytest.mark.parametrize("standardize", ["federation", "client"])
def test_nothing_is_further_from_the_mean_than_the_limit(standardize):
    values = RNG.normal(size=600)
    values[7] = 1e9
    rare = np.zeros(600)
    rare[:3] = 1
    federation = table(people(600, wild=values, rare=rare), standardize=standardize, **COLUMNS)
    x = inputs(federation, np.arange(600))
    assert np.abs(x).max() <= LIMIT
    # One wild number does not make all others alike.
    if standardize == "federation":
        assert np.delete(x[:, 2], 7).std() > 0.4


def test_the_limit_is_not_for_numbers_as_they_are():
    values = np.arange(120) * 1e3
    x = inputs(table(people(column=values), standardize="none", **COLUMNS), np.arange(120))
    np.testing.assert_allclose(x[:, 2], values)
