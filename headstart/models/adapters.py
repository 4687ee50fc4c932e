"""Bring your own network: Equinox, Flax NNX and Flax Linen modules, and any pair of functions, as models."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from headstart.core import Params, takes
from headstart.errors import UsageError
from headstart.models.model import Model

__all__ = ["EquinoxModel", "LinenModel", "NNXModel", "PairModel"]

STATISTICS = "Use a normalisation without running statistics, such as LayerNorm or GroupNorm."


@dataclass(frozen=True)
class PairModel(Model):
    """A pair of functions: ``init(key)`` gives parameters, ``apply(params, x)`` the outputs for a batch.

    ``apply(params, x, key)`` makes it random: it is given a key in training, and ``None`` in evaluation. Where
    ``init`` wants to see an input, as Haiku's does, give an ``example`` of a batch; its shape and type are kept.

    >>> def init(key):
    ...     return {"slope": jax.random.normal(key, (4, 2))}
    >>> model = PairModel(init, lambda params, x: x @ params["slope"])
    >>> model.apply(model.init(jax.random.key(0)), jax.numpy.zeros((5, 4))).shape
    (5, 2)
    """

    init_fn: Callable[..., Params]
    apply_fn: Callable[..., Array]
    example: Any = None
    random: Any = None
    """Whether ``apply`` takes a key; found from its arguments, unless given."""

    def __post_init__(self) -> None:
        if self.example is not None:
            object.__setattr__(self, "example", _shape_of(self.example))
        if self.random is None:
            object.__setattr__(self, "random", takes(self.apply_fn, "key"))

    def init(self, key: Array) -> Params:
        return self.init_fn(key) if self.example is None else self.init_fn(key, _zeros(self.example))

    def apply(self, params: Params, x: Array, key: Array | None = None) -> Array:
        return self.apply_fn(params, x, key) if self.random else self.apply_fn(params, x)


@dataclass(frozen=True)
class EquinoxModel(Model):
    """An Equinox module, from a function that builds it with a key.

    Its floating-point arrays are the parameters. Equinox modules take one sample at a time, so the model
    maps them over the batch; say ``batched=True`` for one that takes a batch. A module with dropout takes a ``key``:
    it is given one in training, and is in inference mode in evaluation.

    >>> import equinox as eqx
    >>> model = EquinoxModel(lambda key: eqx.nn.MLP(4, 2, width_size=8, depth=1, key=key))
    >>> model.apply(model.init(jax.random.key(0)), jax.numpy.zeros((5, 4))).shape
    (5, 2)
    """

    build: Callable[[Array], Any]
    batched: bool = False
    random: Any = None
    """Whether it is given a key in training: if it has dropout or cannot do without, unless said otherwise."""

    def __post_init__(self) -> None:
        if self.random is None:
            object.__setattr__(self, "random", self._is_random())

    @cached_property
    def _rest(self) -> Any:
        # Built once, outside any trace: what is not trained must not depend on a run's key.
        with jax.ensure_compile_time_eval():
            return eqx.partition(self.build(jax.random.key(0)), eqx.is_inexact_array)[1]

    @cached_property
    def _still(self) -> Any:
        """The same in inference mode."""
        return eqx.nn.inference_mode(self._rest)

    def _is_random(self) -> bool:
        parts = jax.tree.leaves(self._rest, is_leaf=lambda part: isinstance(part, eqx.nn.Dropout))
        drops = any(isinstance(part, eqx.nn.Dropout) and part.p > 0 and not part.inference for part in parts)
        key = inspect.signature(self._rest).parameters.get("key")
        if drops and key is None:
            raise UsageError(
                f"{type(self._rest).__name__} has dropout, but calling it takes no key.",
                "Give its __call__ an argument key, and hand it on to the dropout.",
            )
        return drops or (key is not None and key.default is inspect.Parameter.empty)

    def init(self, key: Array) -> Params:
        return eqx.partition(self.build(key), eqx.is_inexact_array)[0]

    def apply(self, params: Params, x: Array, key: Array | None = None) -> Array:
        if not self.random:
            module = eqx.combine(params, self._rest)
            return module(x) if self.batched else jax.vmap(module)(x)
        module = eqx.combine(params, self._still if key is None else self._rest)
        if self.batched or key is None:
            call = partial(module, key=key)
            return call(x) if self.batched else jax.vmap(call)(x)
        return jax.vmap(lambda sample, key: module(sample, key=key))(x, jax.random.split(key, x.shape[0]))


@dataclass(frozen=True)
class NNXModel(Model):
    """A Flax NNX module, from a function that builds it with ``nnx.Rngs``.

    Its ``nnx.Param`` variables are the parameters. Dropout is on in training, its streams of random numbers started
    anew from the key of each batch, and off in evaluation. Layers that change while they run (batch normalisation)
    are refused: they have no place in a gradient step.

    >>> from flax import nnx
    >>> model = NNXModel(lambda rngs: nnx.Linear(4, 2, rngs=rngs))
    >>> model.apply(model.init(jax.random.key(0)), jax.numpy.zeros((5, 4))).shape
    (5, 2)
    """

    build: Callable[[Any], Any]
    random: Any = None
    """Whether it is given a key in training: if it keeps streams of random numbers, unless said otherwise."""

    def __post_init__(self) -> None:
        if self.random is None:
            object.__setattr__(self, "random", bool(jax.tree.leaves(self._skeletons[0].streams)))

    def _split(self, key: Array, training: bool) -> "_Skeleton":
        try:
            from flax import nnx
        except ImportError as error:
            raise UsageError("Flax is not installed.", FLAX) from error
        module = self.build(nnx.Rngs(key))
        (module.train if training else module.eval)()
        graph, params, statistics, streams, rest = nnx.split(  # type: ignore[misc]
            module, nnx.Param, nnx.BatchStat, nnx.RngKey, ...
        )
        if jax.tree.leaves(statistics):
            raise UsageError(
                "The NNX module keeps batch statistics, which a local gradient step cannot update.", STATISTICS
            )
        return _Skeleton(graph, params, streams, rest)

    @cached_property
    def _skeletons(self) -> tuple["_Skeleton", "_Skeleton"]:
        """The module in evaluation and in training, without parameters."""
        with jax.ensure_compile_time_eval():
            still, moving = (self._split(jax.random.key(0), training) for training in (False, True))
        return still._replace(params=None), moving._replace(params=None)

    def init(self, key: Array) -> Params:
        return self._split(key, training=False).params

    def apply(self, params: Params, x: Array, key: Array | None = None) -> Array:
        from flax import nnx

        graph, _, streams, rest = self._skeletons[key is not None]
        if key is not None:
            keys, structure = jax.tree.flatten(streams)
            own = [jax.random.fold_in(key, number) for number in range(len(keys))]
            # A stream of several copies of a layer has a key for each.
            own = [jax.random.split(k, like.shape) if like.shape else k for k, like in zip(own, keys, strict=True)]
            streams = jax.tree.unflatten(structure, own)
            # A stream counts what is drawn from it, which only a variable of this very trace may do.
            rest = jax.tree.map(lambda leaf: leaf, rest)
        return nnx.merge(graph, params, streams, rest)(x)


class _Skeleton(NamedTuple):
    """An NNX module taken apart."""

    graph: Any
    params: Any
    streams: Any
    rest: Any


FLAX = "Install it: pip install 'headstart[flax]'."


@dataclass(frozen=True)
class LinenModel(Model):
    """A Flax Linen module, and an example of a batch that it takes, of which shape and type are kept.

    Where its ``__call__`` has an argument ``train`` or ``training`` (true in training) or ``deterministic`` (false in
    training), it is given that, and in training a key for dropout.

    >>> from flax import linen
    >>> model = LinenModel(linen.Dense(2), example=jax.numpy.zeros((1, 4)))
    >>> model.apply(model.init(jax.random.key(0)), jax.numpy.zeros((5, 4))).shape
    (5, 2)
    """

    module: Any
    example: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "example", _shape_of(self.example))

    @cached_property
    def _mode(self) -> dict[str, bool]:
        """What the module is called with in evaluation, beside the inputs."""
        known = {"train": False, "training": False, "deterministic": True}
        taken = inspect.signature(type(self.module).__call__).parameters
        return {name: value for name, value in known.items() if name in taken}

    @property
    def random(self) -> bool:  # type: ignore[override]
        """Whether the module can tell training from evaluation."""
        return bool(self._mode)

    def init(self, key: Array) -> Params:
        variables = dict(self.module.init(key, _zeros(self.example), **self._mode))
        params = variables.pop("params", {})
        if variables:
            raise UsageError(
                f"The Linen module keeps {', '.join(variables)}, which a local gradient step cannot update.", STATISTICS
            )
        return params

    def apply(self, params: Params, x: Array, key: Array | None = None) -> Array:
        variables = {"params": params}
        if key is None:
            return self.module.apply(variables, x, **self._mode)
        mode = {name: not value for name, value in self._mode.items()}
        return self.module.apply(variables, x, rngs={"dropout": key}, **mode)


def _shape_of(example: Any) -> jax.ShapeDtypeStruct:
    """Shape and type of an example, which unlike an array can be hashed and compared."""
    return jax.ShapeDtypeStruct(jnp.shape(example), jnp.result_type(example))


def _zeros(shape: jax.ShapeDtypeStruct) -> Array:
    return jnp.zeros(shape.shape, shape.dtype)
