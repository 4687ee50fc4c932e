"""Metrics of classifiers, from logits and class numbers."""

import jax
import jax.numpy as jnp
from jax import Array

from headstart.errors import UsageError
from headstart.metrics.metric import Metric, average

__all__ = [
    "ACCURACY",
    "AUC",
    "BALANCED_ACCURACY",
    "CALIBRATION_ERROR",
    "CLASSIFICATION",
    "LOG_LOSS",
    "MACRO_F1",
]

BINS = 15
"""Equal intervals of confidence, as in Guo et al. 2017."""


def _accuracy(outputs: Array, targets: Array, weight: Array) -> Array:
    """The share of samples whose largest logit is their class's."""
    logits, labels = _classified(outputs, targets)
    return average((jnp.argmax(logits, axis=-1) == labels).astype(weight.dtype), weight)


def _balanced_accuracy(outputs: Array, targets: Array, weight: Array) -> Array:
    """The mean over classes that occur of the share of their samples that is recognised."""
    actual, _, right = _tables(outputs, targets, weight)
    return _mean_where(actual > 0, right / jnp.where(actual > 0, actual, 1))


def _macro_f1(outputs: Array, targets: Array, weight: Array) -> Array:
    """The mean over classes that occur or are predicted of ``2 right / (actual + predicted)``."""
    actual, predicted, right = _tables(outputs, targets, weight)
    both = actual + predicted
    return _mean_where(both > 0, 2 * right / jnp.where(both > 0, both, 1))


def _auc(outputs: Array, targets: Array, weight: Array) -> Array:
    """The probability that a sample of a class has a larger share of it than one of another class; ties count half.

    With more than two classes it is the mean over the classes of each against all others, of which those count that
    have samples on both sides. With one class only it is NaN.
    """
    logits, labels = _classified(outputs, targets)
    classes = logits.shape[-1]
    if classes == 2:
        return _area(logits[:, 1] - logits[:, 0], labels == 1, weight)
    shares = jax.nn.softmax(logits)
    areas = jax.vmap(lambda share, number: _area(share, labels == number, weight))(shares.T, jnp.arange(classes))
    return _mean_where(~jnp.isnan(areas), areas)


def _area(scores: Array, positive: Array, weight: Array) -> Array:
    """By ranks: the weight of negatives below every positive, and half of that beside it."""
    above, below = jnp.where(positive, weight, 0), jnp.where(positive, 0, weight)
    order = jnp.argsort(scores)
    sums = jnp.concatenate([jnp.zeros(1, weight.dtype), jnp.cumsum(below[order])])
    left, right = (sums[jnp.searchsorted(scores[order], scores, side=side)] for side in ("left", "right"))
    pairs = jnp.sum(above) * jnp.sum(below)
    return jnp.where(pairs > 0, jnp.sum(above * (left + right)) / (2 * jnp.where(pairs > 0, pairs, 1)), jnp.nan)


def _log_loss(outputs: Array, targets: Array, weight: Array) -> Array:
    """Minus the mean logarithm of the share that a sample's class is given."""
    logits, labels = _classified(outputs, targets)
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=-1)[:, 0]
    return -average(chosen, weight)


def _calibration_error(outputs: Array, targets: Array, weight: Array) -> Array:
    """The expected calibration error: how far confidence and accuracy are apart, over intervals of confidence."""
    logits, labels = _classified(outputs, targets)
    confidence = jnp.max(jax.nn.softmax(logits), axis=-1)
    hits = jnp.argmax(logits, axis=-1) == labels
    place = jnp.clip(jnp.ceil(confidence * BINS).astype(jnp.int32) - 1, 0, BINS - 1)
    gaps = (weight * (hits - confidence)) @ jax.nn.one_hot(place, BINS, dtype=weight.dtype)
    return jnp.sum(jnp.abs(gaps)) / jnp.sum(weight)


def _tables(outputs: Array, targets: Array, weight: Array) -> tuple[Array, Array, Array]:
    """For every class the weight of its samples, of samples taken for it, and of those that are both."""
    logits, labels = _classified(outputs, targets)
    classes = logits.shape[-1]
    actual = jax.nn.one_hot(labels, classes, dtype=weight.dtype)
    predicted = jax.nn.one_hot(jnp.argmax(logits, axis=-1), classes, dtype=weight.dtype)
    return weight @ actual, weight @ predicted, weight @ (actual * predicted)


def _mean_where(counts: Array, values: Array) -> Array:
    """The mean of those that count, NaN if none does."""
    return jnp.sum(jnp.where(counts, values, 0)) / jnp.sum(counts)


def _classified(outputs: Array, targets: Array) -> tuple[Array, Array]:
    """Logits, one per class, and class numbers; a single logit is that of class 1 against class 0."""
    if not jnp.issubdtype(targets.dtype, jnp.integer) or targets.size != outputs.shape[0]:
        raise UsageError(
            f"A metric of classifiers got targets of type {targets.dtype} and shape {list(targets.shape)}.",
            "Give every sample the number of its class, or choose a metric of regressions such as 'rmse'.",
        )
    logits = outputs.reshape(outputs.shape[0], -1)
    if logits.shape[1] == 1:
        logits = jnp.concatenate([jnp.zeros_like(logits), logits], axis=1)
    return logits, targets.reshape(-1)


ACCURACY = Metric("accuracy", _accuracy, higher_is_better=True, unit="%")
BALANCED_ACCURACY = Metric("balanced-accuracy", _balanced_accuracy, higher_is_better=True, unit="%")
MACRO_F1 = Metric("macro-f1", _macro_f1, higher_is_better=True, unit="%")
AUC = Metric("auc", _auc, higher_is_better=True, decimals=3)
LOG_LOSS = Metric("log-loss", _log_loss)
CALIBRATION_ERROR = Metric("calibration-error", _calibration_error, unit="%")

CLASSIFICATION: tuple[Metric, ...] = (ACCURACY, BALANCED_ACCURACY, MACRO_F1, AUC, LOG_LOSS, CALIBRATION_ERROR)
"""Those that a configuration can ask for."""
