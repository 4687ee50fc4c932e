"""By whom settings are chosen, what they are compared by, and where they are looked for."""

import math
from itertools import pairwise

import jax.numpy as jnp
import numpy as np
import pytest

import headstart as hs
from headstart.data import Federation
from headstart.errors import UsageError
from headstart.metrics import LOSS, Metric
from headstart.problems import Examples
from headstart.tuning import (
    Range,
    choosers,
    grid,
    ranges_of,
    rungs,
    score_of_table,
    searched_settings,
    smoothness,
    spread,
)
from headstart.tuning.budget import RUNS, cost_of
from headstart.tuning.choosing import Choosers, Score, score_of, steady

ACCURACY = Metric("accuracy", higher_is_better=True)


def _federation(clients, held_out, validation, x=None):
    rows = 6
    x = np.zeros((clients * rows, 2), np.float32) if x is None else x
    lists = np.arange(clients * rows).reshape(clients, rows)
    pool = Examples(x, np.zeros(len(x), np.float32))
    federation = Federation.from_arrays(pool, list(lists[:, :4]), list(lists[:, 4:]), held_out=held_out)
    return Federation(
        federation.clients, None, federation.total, federation.trained, federation.counts, validation=validation
    )


@pytest.mark.parametrize(("clients", "validation"), [(60, 15), (30, 4), (8, 0), (200, 60)])
def test_new_clients_never_choose(clients, validation):
    federation = _federation(clients, validation + 3, validation)
    by = choosers(federation)
    assert by.ids.max() < federation.trained + validation
    assert by.weights.sum() == pytest.approx(1)
    of_validation = by.weights[by.ids >= federation.trained].sum()
    assert of_validation == pytest.approx(min(validation, 10) / 10)


def test_training_clients_have_no_vote_but_a_veto():
    by = choosers(_federation(200, 63, 60))
    watching = by.weights == 0
    assert watching.sum() == 50
    assert (by.ids[watching] < 137).all()
    assert by.rows == 60 * 2, "only those who vote tell what a difference is worth"
    losses = np.where(watching, np.nan, 1.0)
    assert np.isinf(score_of({"loss": losses, "accuracy": losses}, by.weights, ACCURACY).value)
    accuracy = np.where(watching, 0.0, 0.7)
    found = score_of({"loss": np.ones(len(losses)), "accuracy": accuracy}, by.weights, ACCURACY)
    assert float(found.value) == pytest.approx(-0.7)


def test_scores_by_hand():
    values = {
        "loss": np.array([[1.0, 3.0], [np.nan, 1.0], [2.0, 2.0], [0.5, 0.5]]),
        "accuracy": np.array([[0.5, 0.9], [0.9, 0.9], [0.7, np.nan], [0.7, 0.7]]),
    }
    score = score_of(values, np.array([0.25, 0.75]), ACCURACY)
    np.testing.assert_allclose(score.value, [-0.8, np.inf, -0.7, -0.7])
    assert score.loss[0] == pytest.approx(0.25 * 1 + 0.75 * 3)
    assert score.order().tolist() == [0, 3, 2, 1], "of equal values the smaller loss, and what diverged is last"
    assert score.best() == (0,)
    assert score_of(values, np.array([0.25, 0.75]), LOSS).best() == (3,)


def test_the_score_of_a_table_is_that_of_its_groups():
    import pyarrow as pa

    problem = hs.Regression(hs.MLP(inputs=1, outputs=1))
    table = pa.table({
        "steps": [5] * 4 + [0] * 4, "held_out": [False, False, True, True] * 2,
        "validation": [False, False, True, False] * 2, "loss": [1.0] * 8,
        "rmse": [1.0, 2.0, 4.0, 100.0, *[0.0] * 4],
    })  # fmt: skip
    score = score_of_table(table, problem, 5)
    assert float(score.value) == pytest.approx(0.9 * 1.5 + 0.1 * 4.0), "one validation client counts a tenth"


def test_steps_that_go_astray_are_not_steady():
    losses = np.array([[[1.0, 1.0], [0.5, 9.0], [0.1, 0.1]], [[1.0, 1.0], [0.9, 1.5], [0.8, 0.9]]])
    assert steady(losses, (0, 1, 10)).tolist() == [[True, False, False], [True, True, True]]
    assert steady(losses, (1, 2, 10)).all()
    many = np.ones((3, 40))
    many[1, 0] = 9.0
    assert steady(many, (0, 1, 10)).all(), "one of many clients may have a few odd rows"
    many[1, 1] = 31.0
    assert steady(many, (0, 1, 10)).tolist() == [True, False, False]


def test_smoothness_is_the_largest_eigenvalue():
    """Of the mean square of ``x'w - y``, whose Hessian is ``2 X'X / n``."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(5 * 6, 2)).astype(np.float32) * [3.0, 0.2]
    federation = _federation(5, 0, 0, x.astype(np.float32))
    problem = hs.CustomProblem(
        init_fn=lambda key: jnp.zeros(2), loss_fn=lambda w, batch: jnp.mean((batch.x @ w - batch.y) ** 2)
    )
    rows = [x[6 * i : 6 * i + 4] for i in range(5)]
    expected = np.median([np.linalg.eigvalsh(2 * r.T @ r / 4)[-1] for r in rows])
    assert smoothness(problem, federation) == pytest.approx(expected, rel=1e-4)


def test_ranges_follow_the_scale_of_the_loss():
    for scale in (1e-6, 1.0, 1e6):
        found = ranges_of("fedprox", ["outer_lr", "mu"], scale)
        assert found["outer_lr"].low * scale == pytest.approx(0.01)
        assert found["outer_lr"].high * scale == pytest.approx(10)
        assert found["mu"].high == pytest.approx(scale)
    assert ranges_of("reptile", ["outer_lr"], 1e6)["outer_lr"].high == 1.0
    assert searched_settings("local-only", ["learning_rate", "own_steps", "batch_size"]) == (
        "learning_rate",
        "own_steps",
    )


@pytest.mark.parametrize("rounds", [1, 2, 5, 12, 40, 300, 4000])
@pytest.mark.parametrize("settings", [1, 2, 3, 24])
def test_rungs_keep_the_budget(rounds, settings):
    found = rungs(rounds, settings)
    trained, cost = {}, 0
    for rung in found:  # those beside the best begin anew
        old = dict(list(trained.items())[: rung.settings - rung.beside])
        alive = {**old, **{(rung, i): 0 for i in range(rung.settings - len(old))}}
        cost += sum(rung.rounds - done for done in alive.values())
        trained = dict.fromkeys(alive, rung.rounds)
    assert cost <= max(RUNS * rounds, 2)
    assert cost == cost_of(found)
    assert found[-1].rounds == rounds, "some settings diverge late"
    assert found[0].settings <= settings
    assert all(one.settings > two.settings and one.rounds <= two.rounds for one, two in pairwise(found))


def test_points_cover_a_range_evenly():
    points = spread({"a": Range(1e-3, 1.0), "b": Range(0, 1, log=False)}, 64)
    for share in ([(math.log10(p["a"]) + 3) / 3 for p in points], [p["b"] for p in points]):
        counts, _ = np.histogram(share, 8, (0, 1))
        assert counts.min() >= 6
    corners = grid({"a": Range(1e-3, 1.0), "b": Range(2, 5, whole=True, log=False)}, 4)
    assert [tuple(p.values()) for p in corners] == [(0.001, 2), (0.001, 5), (1.0, 2), (1.0, 5)]


def test_a_range_that_is_none():
    with pytest.raises(UsageError, match="no range"):
        Range(0.0, 1.0)


def test_differences_that_few_rows_cannot_show_are_left_to_the_loss():
    few = Choosers(np.arange(4), np.full(4, 0.25), rows=25)
    assert few.resolution(LOSS) == 0
    score = Score(np.array([-0.81, -0.80, -0.60]), np.array([2.0, 1.0, 0.1]), few.resolution(ACCURACY))
    assert score.best() == (1,)
    assert Score(score.value, score.loss, 0.25 / np.sqrt(1e6)).best() == (0,)


def test_only_what_is_allowed_is_chosen():
    score = Score(np.array([1.0, 2.0]), np.array([1.0, 1.0])).only(np.array([False, True]))
    assert score.best() == (1,)
