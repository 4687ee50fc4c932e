"""Every bundled metric against its definition in numpy, and against scikit-learn's published examples."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from headstart import metrics
from headstart.errors import UsageError
from headstart.metrics import METRICS, Metric, as_metrics, measure
from tests.metrics import reference

CLASSIFYING = ("accuracy", "balanced-accuracy", "macro-f1", "auc", "log-loss", "calibration-error")
REGRESSING = ("rmse", "mae", "r2")


def expected(name, *arguments):
    return getattr(reference, name.replace("-", "_"))(*arguments)


def computed(names, outputs, targets, weight=None):
    @jax.jit
    def all_of_them(outputs, targets, weight):
        return measure(tuple(METRICS[name] for name in names), outputs, targets, weight)

    return all_of_them(jnp.asarray(outputs), jnp.asarray(targets), None if weight is None else jnp.asarray(weight))


def classified(seed, samples, classes, present):
    """Logits, some of them equal, and labels of some of the classes only."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(present, samples)
    logits = np.round(2 * rng.normal(size=(samples, classes)) + 1.5 * np.eye(classes)[labels], 1)
    return logits, labels, rng.uniform(0.2, 2.0, samples)


CASES = {
    "binary": (40, 2, (0, 1)),
    "five classes": (60, 5, (0, 1, 2, 3, 4)),
    "classes that do not occur": (30, 6, (1, 4)),
    "one class of two": (9, 2, (1,)),
    "one class of four": (7, 4, (2,)),
    "one sample": (1, 3, (0,)),
}


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("weighted", [False, True])
def test_metrics_of_classifiers(case, weighted):
    logits, labels, weight = classified(len(case), *CASES[case])
    got = computed(CLASSIFYING, logits, labels, weight if weighted else None)
    for name in CLASSIFYING:
        want = expected(name, logits, labels, weight if weighted else np.ones(len(labels)))
        np.testing.assert_allclose(got[name], want, rtol=1e-12, atol=1e-14, err_msg=name)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("samples", "outputs"), [(30, 1), (12, 3), (1, 1), (2, 1)])
@pytest.mark.parametrize("weighted", [False, True])
def test_metrics_of_regressions(samples, outputs, weighted):
    rng = np.random.default_rng(samples)
    targets = rng.normal(5, 3, (samples, outputs))
    predicted, weight = targets + rng.normal(size=targets.shape), rng.uniform(0.2, 2.0, samples)
    got = computed(REGRESSING, predicted, targets, weight if weighted else None)
    for name in REGRESSING:
        want = expected(name, predicted, targets, weight if weighted else np.ones(samples))
        np.testing.assert_allclose(got[name], want, rtol=1e-12, err_msg=name)


@pytest.mark.parametrize("size", [0.1, 1e-6, 3e5])
def test_constant_targets_are_explained_wholly_or_not_at_all(size):
    """In single precision the mean of three equal numbers is not one of them."""
    targets = np.full((7, 1), size, np.float32)
    assert computed(["r2"], targets, targets)["r2"] == 1
    assert computed(["r2"], targets * 1.5, targets)["r2"] == 0


def test_published_examples():
    """From scikit-learn's reference pages: roc_auc_score, balanced_accuracy_score, f1_score, r2_score."""
    y, scores = np.array([0, 0, 1, 1]), np.array([0.1, 0.4, 0.35, 0.8])
    np.testing.assert_allclose(computed(["auc"], scores, y)["auc"], 0.75)
    y, guess = np.array([0, 1, 0, 0, 1, 0]), np.array([0, 1, 0, 0, 0, 1])
    np.testing.assert_allclose(computed(["balanced-accuracy"], np.eye(2)[guess], y)["balanced-accuracy"], 0.625)
    y, guess = np.array([0, 1, 2, 0, 1, 2]), np.array([0, 2, 1, 0, 0, 1])
    np.testing.assert_allclose(computed(["macro-f1"], np.eye(3)[guess], y)["macro-f1"], 0.26666667, rtol=1e-6)
    y, guess = np.array([3, -0.5, 2, 7]), np.array([2.5, 0.0, 2, 8])
    got = computed(REGRESSING, guess, y)
    np.testing.assert_allclose(got["r2"], 0.9486081370449679, rtol=1e-6)
    np.testing.assert_allclose([got["mae"], got["rmse"]], [0.5, 0.6123724356957945], rtol=1e-6)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("rubbish", [np.nan, np.inf, 1e300, 0.0])
def test_what_fills_a_batch_up_counts_in_no_metric(rubbish):
    logits, labels, weight = classified(3, 20, 4, (0, 1, 3))
    filled = np.concatenate([np.full((2, 4), rubbish), logits, np.full((5, 4), rubbish)])
    got = computed(CLASSIFYING, filled, np.pad(labels, (2, 5), constant_values=2), np.pad(weight, (2, 5)))
    for name, value in computed(CLASSIFYING, logits, labels, weight).items():
        np.testing.assert_allclose(got[name], value, rtol=1e-12, err_msg=name)
    targets = np.random.default_rng(0).normal(size=(20, 1))
    filled, full = (np.pad(a, ((2, 5), (0, 0)), constant_values=rubbish) for a in (logits[:, :1], targets))
    got = computed(REGRESSING, filled, full, np.pad(weight, (2, 5)))
    for name, value in computed(REGRESSING, logits[:, :1], targets, weight).items():
        np.testing.assert_allclose(got[name], value, rtol=1e-12, err_msg=name)


def test_many_samples_in_single_precision():
    """Areas are sums over pairs; of 20,000 samples they are 10^8."""
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 2, 20_000)
    scores = (rng.normal(size=20_000) + labels).astype(np.float32)
    order = scores.argsort()
    ranks = np.empty(20_000)
    ranks[order] = np.arange(1, 20_001)
    positive = labels.sum()
    want = (ranks[labels == 1].sum() - positive * (positive + 1) / 2) / positive / (20_000 - positive)
    np.testing.assert_allclose(computed(["auc"], scores, labels)["auc"], want, rtol=2e-5)


def test_outputs_that_are_not_numbers_have_no_score():
    logits, labels, _ = classified(0, 8, 3, (0, 1, 2))
    logits[2, 1] = np.nan
    assert np.isnan([*computed(CLASSIFYING, logits, labels).values()]).all()


@pytest.mark.parametrize("kind", [jnp.bfloat16, jnp.float16])
def test_half_precision_is_summed_up_in_single(kind):
    logits = jnp.asarray(np.eye(2)[np.zeros(1000, int)], kind)
    got = computed(["accuracy", "rmse"][:1], logits, (np.arange(1000) % 3 == 0).astype(int))
    assert got["accuracy"].dtype == jnp.float32
    np.testing.assert_allclose(got["accuracy"], 0.666, rtol=1e-6)


def test_a_function_of_each_sample_is_averaged():
    within = Metric.from_function("within", lambda outputs, targets: abs(outputs - targets) < 1)
    count = Metric.from_function("count", lambda outputs, targets: jnp.arange(len(targets)))
    outputs, targets = jnp.asarray([0.0, 1.0, 2.0, 9.0]), jnp.asarray([0.5, 3.0, 2.5, 9.0])
    got = measure((within, count), outputs, targets, jnp.asarray([1.0, 1.0, 1.0, 0.0]))
    np.testing.assert_allclose([got["within"], got["count"]], [2 / 3, 1.0], rtol=1e-6)
    assert measure((within,), outputs, targets, None)["within"] == 0.75


def test_a_function_of_the_whole_set_is_given_the_weights():
    largest = Metric.from_function(
        "largest", lambda outputs, targets, weight: jnp.max(jnp.where(weight > 0, abs(outputs - targets), 0))
    )
    outputs, targets = jnp.asarray([0.0, 1.0, 50.0]), jnp.asarray([0.5, 3.0, 2.5])
    assert measure((largest,), outputs, targets, jnp.asarray([1.0, 1.0, 0.0]))["largest"] == 2
    with_options = Metric.from_function("scaled", lambda outputs, targets, scale=2.0: scale * outputs)
    assert measure((with_options,), outputs[:2], targets[:2], None)["scaled"] == 1


def test_shapes_that_do_not_fit_are_refused_by_name():
    outputs, targets = jnp.ones((3, 2)), jnp.ones(3, int)
    for function, words in (
        (lambda outputs, targets: outputs, r"'odd' gives values of shape \[3, 2\] for 3 samples.*one value per sample"),
        (lambda outputs, targets, weight: weight, r"'odd' takes weights and gives values of shape \[3\].*one number"),
    ):
        with pytest.raises(UsageError, match=f"(?s){words}"):
            measure((Metric.from_function("odd", function),), outputs, targets, None)
    with pytest.raises(UsageError, match=r"(?s)outputs have the shape \[3, 2\], their targets \[3\]"):
        measure((metrics.RMSE,), outputs, targets, None)
    with pytest.raises(UsageError, match=r"(?s)metric of classifiers got targets of type float32.*'rmse'"):
        measure((metrics.ACCURACY,), outputs, jnp.ones(3), None)


def test_by_name_or_by_object_and_always_with_the_loss():
    own = Metric.from_function("own", lambda outputs, targets: outputs)
    assert as_metrics(["r2", own, "r2"]) == (metrics.LOSS, metrics.R2, own)
    assert as_metrics("mae") == (metrics.LOSS, metrics.MAE)
    for choices, words in (
        (["acuracy"], "no metric 'acuracy'.*Did you mean 'accuracy'"),
        ([own, Metric("own")], "Two metrics are called 'own'"),
        ([len], "is not a metric.*from_function"),
    ):
        with pytest.raises(UsageError, match=f"(?s){words}"):
            as_metrics(choices)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: Metric(""), "cannot be called ''"),
        (lambda: Metric("round"), "cannot be called 'round'.*column of that name"),
        (lambda: Metric("x", decimals=-1), "decimals = -1"),
    ],
)
def test_refusals(build, words):
    with pytest.raises(UsageError, match=f"(?s){words}"):
        build()


def test_values_are_shown_in_their_unit():
    assert (metrics.ACCURACY.title, metrics.ACCURACY.show(0.83449)) == ("accuracy, %", "83.4")
    assert (metrics.AUC.title, metrics.AUC.show(0.83449)) == ("auc", "0.834")
    loss = metrics.LOSS
    shown = {0.0: "0.000", 0.51234: "0.512", 12.3456: "12.35", 1234.5: "1234", 45678.9: "45679", 1834567.8: "1834568"}
    shown |= {1.23456e7: "1.23e+07", 0.0012346: "0.00123", 1.2345e-6: "1.23e-06", -2.0: "-2.000"}
    assert {value: loss.show(value) for value in shown} == shown
    assert [loss.show(value) for value in (np.nan, np.inf, -np.inf)] == ["none", "∞", "-∞"]
    assert loss.show(0.123456, beside=12.3) == "0.12"


def test_better_knows_the_direction_and_nothing_beats_a_number():
    assert metrics.ACCURACY.better(0.9, than=0.8)
    assert metrics.LOSS.better(0.8, than=0.9)
    for metric in (metrics.ACCURACY, metrics.LOSS):
        assert metric.better(0.5, than=np.nan)
        assert not metric.better(np.nan, than=0.5)
