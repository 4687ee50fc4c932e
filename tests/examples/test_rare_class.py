import numpy as np
import pytest

from examples import rare_class


@pytest.fixture(scope="module")
def models():
    return rare_class.main()


def robust(w, data):
    """The objective on all samples and its gradient, by hand; the bias is the last of ``w``."""
    x = np.column_stack([data.x, np.ones(len(data.y))])
    margin = data.y * (x @ w)
    loss, slope = np.log1p(np.exp(-margin)), -data.y / (1 + np.exp(margin))
    classes = [data.y < 0, data.y > 0]
    means = np.array([loss[c].mean() for c in classes])
    tilt = np.exp((means - means.max()) / rare_class.TEMPERATURE)
    value = means.max() + rare_class.TEMPERATURE * np.log(tilt.mean())
    weights = tilt / tilt.sum()
    gradient = sum(a * (x[c].T @ slope[c]) / c.sum() for a, c in zip(weights, classes, strict=True))
    return value, gradient


def flat(params):
    return np.append(params["weight"], params["bias"])


def test_it_minimises_the_loss_of_the_worst_class_over_all_hospitals(models):
    data, _ = rare_class.samples(seed=0)
    w = np.zeros(rare_class.FEATURES + 1)
    for _ in range(3000):
        best, gradient = robust(w, data)
        w = w - 0.2 * gradient
    assert np.linalg.norm(gradient) < 1e-4
    assert best < robust(flat(models["local-scgdm"]), data)[0] < 1.05 * best
    assert robust(flat(models["fedavg"]), data)[0] > 2 * best


def test_the_rare_class_is_recognised(models):
    new, _ = rare_class.samples(seed=1)
    plain, robust_scores = (rare_class.recognised(models[name], new) for name in ("fedavg", "local-scgdm"))
    assert plain["rare"] < 0.6
    assert min(robust_scores.values()) > 0.8
