"""Optax in an algorithm's slots: how a client takes its local steps, and how the server moves."""

import inspect
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import optax
from jax import Array

from headstart.core import checks, tree
from headstart.core.batch import Params
from headstart.core.fedopt import fedopt
from headstart.core.schedule import Schedule, StepSize, as_step_size
from headstart.errors import UsageError, did_you_mean

__all__ = [
    "OPTIMIZERS",
    "ClientOptimizer",
    "GivenOptimizer",
    "NamedOptimizer",
    "Optimizer",
    "WithOptimizer",
    "as_optimizer",
    "server_step",
]


class Optimizer(eqx.Module):
    """An Optax optimiser as a part of an algorithm."""

    @abstractmethod
    def transformation(self) -> optax.GradientTransformation:
        """The optimiser as Optax has it."""

    def init(self, params: Params) -> Any:
        """Its state before the first step."""
        return self.transformation().init(params)

    def step(self, params: Params, gradient: Params, state: Any) -> tuple[Params, Any]:
        """The parameters and the state after one step along a gradient, or along what stands for one."""
        updates, state = self.transformation().update(gradient, state, params)
        return optax.apply_updates(params, updates), state


class GivenOptimizer(Optimizer):
    """One that was built with Optax: ``optax.chain(...)``, say."""

    given: optax.GradientTransformation = eqx.field(static=True)

    def transformation(self) -> optax.GradientTransformation:
        return self.given


class NamedOptimizer(Optimizer):
    """One that is asked for by name. Its numbers are leaves, so that a sweep may vary them."""

    name: str = eqx.field(static=True)
    numbers: dict[str, StepSize]
    flags: tuple[tuple[str, bool], ...] = eqx.field(static=True, default=())

    def transformation(self) -> optax.GradientTransformation:
        return _BUILDERS[self.name](**self.numbers, **dict(self.flags))


_BUILDERS: dict[str, Callable[..., optax.GradientTransformation]] = {
    "sgd": optax.sgd,
    "adam": optax.adam,
    "adamw": optax.adamw,
    "adagrad": optax.adagrad,
    "adabelief": optax.adabelief,
    "amsgrad": optax.amsgrad,
    "lamb": optax.lamb,
    "lion": optax.lion,
    "nadam": optax.nadam,
    "radam": optax.radam,
    "rmsprop": optax.rmsprop,
    "yogi": optax.yogi,
    "fedadagrad": fedopt("adagrad"),
    "fedadam": fedopt("adam"),
    "fedyogi": fedopt("yogi"),
}


def _named(name: str) -> Callable[..., NamedOptimizer]:
    """A builder whose signature is that of Optax's function, with those arguments that a file can say."""
    given = inspect.signature(_BUILDERS[name]).parameters.values()
    parameters = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=_annotation(parameter))
        for parameter in given
        if parameter.name == "learning_rate" or isinstance(parameter.default, (bool, int, float, type(None)))
    ]
    parameters = [parameter for parameter in parameters if not parameter.name.endswith(("mask", "dtype"))]

    def build(**settings: Any) -> NamedOptimizer:
        numbers = {key: as_step_size(value) for key, value in settings.items() if not isinstance(value, bool)}
        for key, value in numbers.items():
            if not isinstance(value, Schedule):
                checks.number(f"{name}.{key}", value)
        flags = tuple(sorted((key, value) for key, value in settings.items() if isinstance(value, bool)))
        return NamedOptimizer(name, numbers, flags)

    build.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    build.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    build.__doc__ = inspect.getdoc(_BUILDERS[name])
    return build


def _annotation(parameter: inspect.Parameter) -> Any:
    if parameter.name == "learning_rate":
        return StepSize
    return bool if isinstance(parameter.default, bool) else float


OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {name: _named(name) for name in _BUILDERS}
"""Every optimiser by the name a configuration uses."""


def as_optimizer(choice: Any) -> Optimizer | None:
    """An optimiser from an Optax object, a name, or a table with a name; ``None`` is the paper's plain step."""
    if choice is None or isinstance(choice, Optimizer):
        return choice
    if isinstance(choice, optax.GradientTransformation):
        return GivenOptimizer(choice)
    table = {"name": choice} if isinstance(choice, str) else dict(choice) if isinstance(choice, Mapping) else {}
    name = table.pop("name", None)
    if name not in OPTIMIZERS:
        raise UsageError(
            f"{choice!r} is no optimiser.",
            f"Give one of Optax's, or a table with a name. {did_you_mean(str(name), OPTIMIZERS)}",
        )
    known = inspect.signature(OPTIMIZERS[name]).parameters
    for key in table:
        if key not in known:
            raise UsageError(f"The optimiser {name} has no setting {key!r}.", did_you_mean(key, known))
    if "learning_rate" not in table:
        raise UsageError(
            f"The optimiser {name} has no learning_rate.", f'Write {{ name = "{name}", learning_rate = 0.01 }}.'
        )
    return OPTIMIZERS[name](**table)


def server_step(
    optimizer: Optimizer | None, params: Params, gradient: Params, lr: Array | float, state: Any
) -> tuple[Params, Any]:
    """The server's move: ``w - lr * gradient``, or what its optimiser makes of the gradient.

    Where clients send how far they came, the gradient is minus the mean of that and ``lr`` is 1, so that the plain
    move is the mean of their models: Reddi et al. 2021, Algorithm 1, with the optimiser as SERVEROPT.
    """
    if optimizer is None:
        return tree.add_scaled(params, -lr, gradient), state
    return optimizer.step(params, gradient, state)


class WithOptimizer(NamedTuple):
    """A client's own state beside its optimiser's, where that outlives the round."""

    own: Any
    optimizer: Any


class ClientOptimizer(NamedTuple):
    """How a client takes its local steps: plainly, or with an optimiser whose state is kept or begins anew."""

    optimizer: Optimizer | None
    keep: bool
    """Whether the optimiser's state outlives the round; it is then a part of the client's state."""

    def check(self) -> None:
        """Refuse to keep the state of no optimiser."""
        if self.keep and self.optimizer is None:
            raise UsageError(
                "keep_client_optimizer is set, but there is no client_optimizer.", "Give one, or leave both out."
            )

    def init_client(self, params: Params, own: Any) -> Any:
        """A client's state before its first round, whose ``own`` part is the method's."""
        return WithOptimizer(own, self.optimizer.init(params)) if self.keep and self.optimizer else own

    def begin(self, params: Params, state: Any) -> tuple[Any, Any]:
        """The method's own part of a client's state, and the optimiser's at the beginning of a round."""
        if self.optimizer is None:
            return state, ()
        if self.keep:
            return state.own, state.optimizer
        return state, self.optimizer.init(params)

    def step(self, params: Params, direction: Params, lr: Array | float, state: Any) -> tuple[Params, Any]:
        """One local step: ``w - lr * direction``, or the optimiser's."""
        return server_step(self.optimizer, params, direction, lr, state)

    def end(self, own: Any, optimizer: Any) -> Any:
        """A client's state after the round."""
        return WithOptimizer(own, optimizer) if self.keep else own
