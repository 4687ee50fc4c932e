"""Bring your own network: Equinox and Flax NNX modules as models."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import equinox as eqx
import jax
from jax import Array

from headstart.core import Params
from headstart.errors import UsageError
from headstart.models.model import Model

__all__ = ["EquinoxModel", "NNXModel"]


@dataclass(frozen=True)
class EquinoxModel(Model):
    """An Equinox module, from a function that builds it with a key.

    Its floating-point arrays are the parameters. Equinox modules take one sample at a time, so the model
    maps them over the batch; say ``batched=True`` for one that takes a batch.

    >>> import equinox as eqx
    >>> model = EquinoxModel(lambda key: eqx.nn.MLP(4, 2, width_size=8, depth=1, key=key))
    >>> model.apply(model.init(jax.random.key(0)), jax.numpy.zeros((5, 4))).shape
    (5, 2)
    """

    build: Callable[[Array], Any]
    batched: bool = False

    @cached_property
    def _rest(self) -> Any:
        # Built once, outside any trace: what is not trained must not depend on a run's key.
        with jax.ensure_compile_time_eval():
            return eqx.partition(self.build(jax.random.key(0)), eqx.is_inexact_array)[1]

    def init(self, key: Array) -> Params:
        return eqx.partition(self.build(key), eqx.is_inexact_array)[0]

    def apply(self, params: Params, x: Array) -> Array:
        module = eqx.combine(params, self._rest)
        return module(x) if self.batched else jax.vmap(module)(x)


@dataclass(frozen=True)
class NNXModel(Model):
    """A Flax NNX module, from a function that builds it with ``nnx.Rngs``.

    Its ``nnx.Param`` variables are the parameters and dropout is off. Layers that change while they run
    (batch normalisation) are refused: they have no place in a gradient step.

    >>> from flax import nnx
    >>> model = NNXModel(lambda rngs: nnx.Linear(4, 2, rngs=rngs))
    >>> model.apply(model.init(jax.random.key(0)), jax.numpy.zeros((5, 4))).shape
    (5, 2)
    """

    build: Callable[[Any], Any]

    def _split(self, key: Array) -> tuple[Any, Any, Any]:
        try:
            from flax import nnx
        except ImportError as error:
            raise UsageError("Flax is not installed.", "Install it: pip install 'headstart[flax]'.") from error
        module = self.build(nnx.Rngs(key))
        module.eval()
        graph, params, statistics, rest = nnx.split(module, nnx.Param, nnx.BatchStat, ...)  # type: ignore[misc]
        if jax.tree.leaves(statistics):
            raise UsageError(
                "The NNX module keeps batch statistics, which a local gradient step cannot update.",
                "Use a normalisation without running statistics, such as nnx.LayerNorm or nnx.GroupNorm.",
            )
        return graph, params, rest

    @cached_property
    def _skeleton(self) -> tuple[Any, Any]:
        with jax.ensure_compile_time_eval():
            graph, _, rest = self._split(jax.random.key(0))
        return graph, rest

    def init(self, key: Array) -> Params:
        return self._split(key)[1]

    def apply(self, params: Params, x: Array) -> Array:
        from flax import nnx

        graph, rest = self._skeleton
        return nnx.merge(graph, params, rest)(x)
