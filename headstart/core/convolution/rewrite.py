"""Give any function's convolutions and poolings the forms that a CPU computes fast."""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import jax
from jax import Array
from jax.extend import linear_util
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var, jaxprs_in_params
from jax.extend.core import primitives as p
from jax.extend.source_info_util import current_name_stack, user_context

from headstart.core.convolution.general import convolution
from headstart.core.convolution.pooling import max_pool, sum_pool

__all__ = ["with_canonical_convolutions"]

Inputs = ParamSpec("Inputs")
Output = TypeVar("Output")


def with_canonical_convolutions(function: Callable[Inputs, Output]) -> Callable[Inputs, Output]:
    """The same function, its convolutions and poolings replaced on a CPU by forms that are fast in compiled loops.

    Values and derivatives of every order are the same up to rounding. The function is traced when it is called, so
    its arguments must be pytrees of arrays, as for `jax.make_jaxpr`. One without a convolution is traced as it is, and
    on other platforms, or with compilation turned off, nothing is changed. Rules that `jax.custom_jvp` and
    `jax.custom_vjp` give stay in force; a backward rule that itself convolves does so as it was written.
    """

    @wraps(function)
    def rewritten(*args: Inputs.args, **kwargs: Inputs.kwargs) -> Output:
        if jax.default_backend() != "cpu" or jax.config.jax_disable_jit:  # type: ignore[attr-defined]
            return function(*args, **kwargs)
        traced, shapes = jax.make_jaxpr(function, return_shape=True)(*args, **kwargs)
        results = _Rewriter().evaluate(traced.jaxpr, traced.consts, jax.tree.leaves((args, kwargs)))
        return jax.tree.unflatten(jax.tree.structure(shapes), results)

    return rewritten


REPLACEMENTS: dict[Any, Callable[..., Array | None]] = {
    p.conv_general_dilated_p: convolution,
    p.reduce_window_max_p: max_pool,
    p.reduce_window_sum_p: sum_pool,
}
"""What to compute in place of a primitive; ``None`` where the primitive itself is as good."""

CALLS = frozenset(
    {
        p.jit_p,
        p.closed_call_p,
        p.remat_p,
        p.scan_p,
        p.while_p,
        p.cond_p,
        p.custom_jvp_call_p,
        p.custom_vjp_call_p,
    }
)
"""Primitives whose parameters hold functions that are gone into; those of others stay as they are."""


class _Rewriter:
    """Evaluates a traced function with replacements; every function inside of it is rewritten once."""

    def __init__(self) -> None:
        # By identity; the key's object is kept beside the value so that no other takes its address.
        self._rewritten: dict[int, tuple[Any, ClosedJaxpr]] = {}
        self._concerned: dict[int, tuple[Any, bool]] = {}

    def evaluate(self, jaxpr: Jaxpr, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
        """The results of a traced function."""
        values: dict[Var, Any] = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *args), strict=True))

        def read(atom: Any) -> Any:
            return atom.val if isinstance(atom, Literal) else values[atom]

        for equation in jaxpr.eqns:
            source = equation.source_info
            names = current_name_stack() + source.name_stack
            with user_context(source.traceback, name_stack=names), equation.ctx.manager:
                results = self._apply(equation, [read(atom) for atom in equation.invars])
            values.update(zip(equation.outvars, results, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def _apply(self, equation: JaxprEqn, operands: list[Any]) -> Sequence[Any]:
        primitive, params = equation.primitive, equation.params
        if primitive in REPLACEMENTS:
            replaced = REPLACEMENTS[primitive](*operands, **params)
            if replaced is not None:
                return [replaced]
        if primitive in CALLS and self._concerns(equation):
            params = {name: self._rewrite(value) for name, value in params.items()}
        results = primitive.bind(*operands, **primitive.get_bind_params(params))
        return results if primitive.multiple_results else [results]

    def _concerns(self, equation: JaxprEqn) -> bool:
        """Whether there is something to replace in a call, however deep."""

        def within(jaxpr: Jaxpr) -> bool:
            if id(jaxpr) not in self._concerned:
                self._concerned[id(jaxpr)] = jaxpr, any(map(self._concerns, jaxpr.eqns))
            return self._concerned[id(jaxpr)][1]

        if equation.primitive in REPLACEMENTS:
            return True
        return equation.primitive in CALLS and any(map(within, jaxprs_in_params(equation.params)))

    def _rewrite(self, param: Any) -> Any:
        """A parameter of a call, with functions rewritten."""
        if isinstance(param, ClosedJaxpr):
            return self._closed(param.jaxpr, param.consts)
        if isinstance(param, Jaxpr):
            return self._closed(param, ()).jaxpr
        if isinstance(param, tuple):
            return tuple(map(self._rewrite, param))
        if isinstance(param, linear_util.WrappedFun):
            return self._rule(param)
        return param

    def _closed(self, jaxpr: Jaxpr, consts: Sequence[Any]) -> ClosedJaxpr:
        if id(jaxpr) not in self._rewritten:
            trace = jax.make_jaxpr(lambda *args: self.evaluate(jaxpr, consts, args))
            self._rewritten[id(jaxpr)] = jaxpr, trace(*(var.aval for var in jaxpr.invars))
        return self._rewritten[id(jaxpr)][1]

    def _rule(self, rule: linear_util.WrappedFun) -> linear_util.WrappedFun:
        """A rule of `jax.custom_jvp` or the forward rule of `jax.custom_vjp`, which give a jaxpr when called."""

        def rewritten(*zeros: bool) -> Any:
            results = rule.call_wrapped(*zeros)
            if not (isinstance(results, tuple) and isinstance(results[0], Jaxpr)):
                return results
            closed = self._closed(*results[:2])
            return closed.jaxpr, closed.consts, *results[2:]

        return linear_util.wrap_init(rewritten, debug_info=rule.debug_info)
