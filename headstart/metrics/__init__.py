"""What is measured of a client's model, and which way is better."""

from collections.abc import Iterable

from headstart.errors import UsageError, did_you_mean
from headstart.metrics.classification import (
    ACCURACY,
    AUC,
    BALANCED_ACCURACY,
    CALIBRATION_ERROR,
    CLASSIFICATION,
    LOG_LOSS,
    MACRO_F1,
)
from headstart.metrics.metric import Metric, average, measure, without_filling
from headstart.metrics.regression import MAE, R2, REGRESSION, RMSE, aligned, per_sample

__all__ = [
    "ACCURACY",
    "AUC",
    "BALANCED_ACCURACY",
    "CALIBRATION_ERROR",
    "LOG_LOSS",
    "LOSS",
    "MACRO_F1",
    "MAE",
    "METRICS",
    "R2",
    "RMSE",
    "Metric",
    "aligned",
    "as_metrics",
    "average",
    "measure",
    "per_sample",
    "without_filling",
]

LOSS = Metric("loss")
"""What training minimises; every problem computes its own."""

METRICS: dict[str, Metric] = {metric.name: metric for metric in (LOSS, *CLASSIFICATION, *REGRESSION)}
"""Every metric a configuration can ask for, by name."""


def as_metrics(choices: Iterable[Metric | str]) -> tuple[Metric, ...]:
    """Metrics from their names; a `Metric` passes through. The loss is always among them.

    >>> [metric.name for metric in as_metrics(["accuracy", "macro-f1"])]
    ['loss', 'accuracy', 'macro-f1']
    """
    if isinstance(choices, (str, Metric)):
        choices = (choices,)
    found = {LOSS.name: LOSS}
    for choice in choices:
        metric = _named(choice) if isinstance(choice, str) else choice
        if not isinstance(metric, Metric):
            raise UsageError(f"{metric!r} is not a metric.", "Give a name, or make one with Metric.from_function.")
        if found.get(metric.name, metric) != metric:
            raise UsageError(f"Two metrics are called {metric.name!r}.", "Call one of them something else.")
        found[metric.name] = metric
    return tuple(found.values())


def _named(name: str) -> Metric:
    if name not in METRICS:
        raise UsageError(f"There is no metric {name!r}.", did_you_mean(name, METRICS))
    return METRICS[name]
