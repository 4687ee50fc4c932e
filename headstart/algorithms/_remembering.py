"""What the methods share that differentiate a loss at a remembered model: their fields, batches and gradient."""

from types import MappingProxyType
from typing import ClassVar

import equinox as eqx
import jax
from jax import Array

from headstart.algorithms._personal import fine_tune
from headstart.core import (
    Adaptation,
    Adapted,
    Algorithm,
    BatchSizes,
    ClientSamples,
    Cost,
    Curvature,
    Down,
    Episode,
    Exact,
    Loss,
    Optimizer,
    Params,
    Size,
    StepSize,
    as_curvature,
    as_optimizer,
    as_step_size,
    check_curvature_size,
    check_step_size,
    checks,
)

__all__ = ["NO_LOCAL_STEPS", "RememberingAlgorithm"]

NO_LOCAL_STEPS = MappingProxyType(
    {"client_optimizer": "its clients send a gradient and take no steps; give a server_optimizer"}
)
"""What methods whose rounds are single steps refuse."""


class RememberingAlgorithm(Algorithm):
    """A method with one memory a task: a running average of the model after one inner step."""

    inner_lr: Array | float = 0.01
    outer_lr: StepSize = eqx.field(converter=as_step_size, default=0.001)
    averaging: Array | float = 0.5
    curvature: Curvature = eqx.field(converter=as_curvature, default_factory=Exact)
    batch_size: Size = eqx.field(static=True, default=10)
    inner_batch_size: Size | None = eqx.field(static=True, default=None)
    curvature_batch_size: Size | None = eqx.field(static=True, default=None)
    shared_batch: bool = eqx.field(static=True, default=False)
    server_optimizer: Optimizer | None = eqx.field(converter=as_optimizer, default=None)

    traces_steps: ClassVar[bool] = True

    def __check_init__(self) -> None:
        check_step_size("outer_lr", self.outer_lr)
        checks.in_unit_interval("averaging", self.averaging)
        check_curvature_size(self.curvature, self.curvature_batch_size)
        _ = self.adaptation, self.batches

    @property
    def adaptation(self) -> Adaptation:
        """The inner step."""
        return Adaptation(1, self.inner_lr)

    @property
    def batches(self) -> BatchSizes:
        """The batches of a step."""
        return BatchSizes(self.batch_size, self.inner_batch_size, self.curvature_batch_size, self.shared_batch)

    def draw(self, client: ClientSamples, key: Array) -> Episode:
        """The batches S_1 (inner), S_2 (curvature) and S_3 (outer)."""
        return self.batches.draw(client, key, 1, self.curvature.looks_at)

    def meta_gradient(self, loss: Loss, adapted: Adapted, u: Params, episode: Episode) -> tuple[Array, Params]:
        """The loss at ``u``, and ``(I - alpha H(w, S_2)) grad L(u, S_3)``: wang (3), (7)."""
        value, v = jax.value_and_grad(loss)(u, episode.outer)
        return value, self.adaptation.pullback(loss, self.curvature, adapted.trajectory, episode.curvature, v)

    def personalize(
        self, loss: Loss, down: Down, state: object, support: ClientSamples, key: Array, steps: int, size: Size
    ) -> Params:
        return fine_tune(loss, down.params, support, key, steps, self.inner_lr, size)

    @property
    def step_cost(self) -> Cost:
        """What one task costs in one step."""
        return Cost(
            gradients=2 + self.curvature.gradients,
            products=self.curvature.products,
            batches=dict(self.batches.count(1, self.curvature.looks_at)),
        )
