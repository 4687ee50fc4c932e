"""Step sizes that change with the communication round."""

import inspect
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import optax
from jax import Array

from headstart.core import checks
from headstart.errors import UsageError

__all__ = [
    "SCHEDULES",
    "Diminishing",
    "OptaxSchedule",
    "Schedule",
    "StepDecay",
    "StepSize",
    "as_step_size",
    "check_step_size",
    "step_size_at",
]


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


class OptaxSchedule(Schedule):
    """Any function of the round: Optax's schedules are such."""

    function: Callable[[Any], Any] = eqx.field(static=True)

    def __call__(self, round_: Array | int) -> Array | float:
        return self.function(round_)


def as_step_size(size: Any) -> Any:
    """A step size as algorithms keep it; a plain function, such as an Optax schedule, becomes a `Schedule`."""
    return OptaxSchedule(size) if callable(size) and not isinstance(size, Schedule) else size


def step_size_at(size: StepSize, round_: Array | int) -> Array | float:
    """The step size of a round, constant or not."""
    return size(round_) if isinstance(size, Schedule) else size


def check_step_size(name: str, size: StepSize) -> None:
    """Reject a constant that is negative; a schedule has checked itself."""
    if not isinstance(size, Schedule):
        checks.at_least(name, size, 0)


def _named(function: Callable[..., optax.Schedule]) -> Callable[..., OptaxSchedule]:
    """A builder whose signature is Optax's, with whole numbers for what counts rounds and numbers for the rest."""
    given = [p for p in inspect.signature(function).parameters.values() if not isinstance(p.default, bool)]
    parameters = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=int if parameter.annotation is int else float)
        for parameter in given
    ]

    def build(**settings: float) -> OptaxSchedule:
        try:
            return OptaxSchedule(function(**settings))
        except ValueError as error:
            raise UsageError(f"A step size of {settings}: {error}", "Mend the schedule's settings.") from error

    build.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    build.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    build.__doc__ = inspect.getdoc(function)
    return build


SCHEDULES: dict[str, Callable[..., Schedule]] = {
    "step-decay": StepDecay,
    "diminishing": Diminishing,
    "cosine-decay": _named(optax.cosine_decay_schedule),
    "exponential-decay": _named(optax.exponential_decay),
    "linear": _named(optax.linear_schedule),
    "polynomial": _named(optax.polynomial_schedule),
    "warmup-cosine-decay": _named(optax.warmup_cosine_decay_schedule),
}
"""Every schedule by the name a configuration uses; the last five are Optax's."""
