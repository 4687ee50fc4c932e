"""Step sizes that change with the communication round."""

from abc import abstractmethod

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from headstart.core import checks
from headstart.errors import UsageError

__all__ = ["SCHEDULES", "Diminishing", "Schedule", "StepDecay", "StepSize", "check_step_size", "step_size_at"]


class Schedule(eqx.Module):
    """A step size as a function of the round, counted from 0."""

    @abstractmethod
    def __call__(self, round_: Array | int) -> Array | float:
        """The step size of a round."""


StepSize = float | Array | Schedule
"""A constant or a schedule."""


class StepDecay(Schedule):
    """``initial * factor ** (number of milestones passed)``."""

    initial: Array | float
    milestones: tuple[int, ...] = eqx.field(static=True)
    factor: Array | float = 0.1

    def __check_init__(self) -> None:
        checks.positive("initial", self.initial)
        checks.positive("factor", self.factor)
        if list(self.milestones) != sorted(set(self.milestones)) or min(self.milestones, default=0) < 0:
            raise UsageError(
                f"milestones = {list(self.milestones)} do not increase.", "List rounds in increasing order."
            )

    def __call__(self, round_: Array | int) -> Array | float:
        passed = jnp.sum(jnp.asarray(self.milestones, dtype=jnp.int32) <= round_)
        return self.initial * self.factor**passed


class Diminishing(Schedule):
    """``initial / sqrt(tau (k + 1))`` in round k: fallah Remark G.1's ``beta_k = O(1 / sqrt(tau k))``.

    The paper leaves the constant and ``k = 0`` open; ``initial`` is the constant and rounds count from 1.
    """

    initial: Array | float
    local_steps: int = eqx.field(static=True)

    def __check_init__(self) -> None:
        checks.positive("initial", self.initial)
        checks.whole("local_steps", self.local_steps, 1)

    def __call__(self, round_: Array | int) -> Array | float:
        return self.initial / jnp.sqrt(self.local_steps * (round_ + 1.0))


def step_size_at(size: StepSize, round_: Array | int) -> Array | float:
    """The step size of a round, constant or not."""
    return size(round_) if isinstance(size, Schedule) else size


def check_step_size(name: str, size: StepSize) -> None:
    """Reject a constant that is negative; a schedule has checked itself."""
    if not isinstance(size, Schedule):
        checks.at_least(name, size, 0)


SCHEDULES: dict[str, type[Schedule]] = {"step-decay": StepDecay, "diminishing": Diminishing}
"""Every schedule by the name a configuration uses."""
