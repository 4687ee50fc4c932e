"""Metrics of regressions, from predicted numbers and true ones."""

import jax.numpy as jnp
from jax import Array

from headstart.errors import UsageError
from headstart.metrics.metric import Metric, average

__all__ = ["MAE", "R2", "REGRESSION", "RMSE", "aligned", "per_sample"]


def aligned(outputs: Array, targets: Array) -> Array:
    """The targets in the shape of the outputs: a column of numbers is a vector of them, and nothing is broadcast."""
    if outputs.size != targets.size or outputs.shape[0] != targets.shape[0]:
        raise UsageError(
            f"The model's outputs have the shape {list(outputs.shape)}, their targets {list(targets.shape)}.",
            "Give the model as many outputs as a target has numbers.",
        )
    return targets if targets.shape == outputs.shape else targets.reshape(outputs.shape)


def _rmse(outputs: Array, targets: Array, weight: Array) -> Array:
    """The root of the mean squared error."""
    return jnp.sqrt(average(per_sample((outputs - aligned(outputs, targets)) ** 2), weight))


def _mae(outputs: Array, targets: Array, weight: Array) -> Array:
    """The mean absolute error."""
    return average(per_sample(jnp.abs(outputs - aligned(outputs, targets))), weight)


def _r2(outputs: Array, targets: Array, weight: Array) -> Array:
    """The share of the targets' variance that the outputs explain; the mean of several outputs' shares.

    Constant targets are explained wholly or not at all; a single sample has no variance, and the metric is NaN.
    """
    targets = aligned(outputs, targets).reshape(outputs.shape[0], -1)
    errors = weight @ (outputs.reshape(targets.shape) - targets) ** 2
    # From a sample's own target on, so that equal ones differ by zero and not by what a mean is rounded by.
    shifted = targets - targets[jnp.argmax(weight > 0)]
    spread = weight @ (shifted - weight @ shifted / jnp.sum(weight)) ** 2
    constant = (errors == 0).astype(errors.dtype)
    shares = jnp.where(spread > 0, 1 - errors / jnp.where(spread > 0, spread, 1), constant)
    return jnp.where(jnp.sum(weight > 0) > 1, jnp.mean(shares), jnp.nan)


def per_sample(errors: Array) -> Array:
    """The mean over all outputs of each sample."""
    if errors.size == errors.shape[0]:
        return errors.reshape(-1)
    return jnp.mean(errors.reshape(errors.shape[0], -1), axis=1)


RMSE = Metric("rmse", _rmse)
MAE = Metric("mae", _mae)
R2 = Metric("r2", _r2, higher_is_better=True, decimals=3)

REGRESSION: tuple[Metric, ...] = (RMSE, MAE, R2)
"""Those that a configuration can ask for."""
