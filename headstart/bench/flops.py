"""How many multiplications and additions a program's matrix products and convolutions have, from its trace."""

from collections.abc import Callable
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Jaxpr, JaxprEqn, jaxprs_in_params
from jax.interpreters import partial_eval

from headstart.core import Phase
from headstart.simulate import Simulation

__all__ = ["flops", "round_flops"]


def flops(function: Callable[..., Any], *args: Any) -> float:
    """Of one call; what is computed in vain is not counted, and an unbounded loop counts as one turn of it."""
    traced = jax.make_jaxpr(function)(*args)
    return _of(traced.jaxpr)


def round_flops(simulation: Simulation) -> float:
    """Of one round: the work of every member of its cohort, in each phase; a full batch is as large as client 0's."""
    samples = simulation.problem.view(simulation.federation.clients.view("train", jnp.zeros((), jnp.int32)))
    one_round = simulation.one_round

    def work(phase: Phase, server: Any, own: Any) -> Any:
        now = one_round.at(0)
        return now.work(phase, now.open(server), own, samples, 0)

    server, own = simulation.start.server, simulation.start.client
    each = [flops(lambda s, o, phase=phase: work(phase, s, o), server, own) for phase in one_round.phases]
    return simulation.plan.cohort * sum(each)


def _of(jaxpr: Jaxpr) -> float:
    live, _ = partial_eval.dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))
    return sum(map(_of_equation, live.eqns))


def _of_equation(equation: JaxprEqn) -> float:
    name, params = equation.primitive.name, equation.params
    if name in PRODUCTS:
        return 2.0 * PRODUCTS[name](equation)
    if name == "cond":
        return max(_of(branch.jaxpr) for branch in params["branches"])
    if name == "while":
        return _of(params["body_jaxpr"].jaxpr)
    inner = sum(_of(getattr(found, "jaxpr", found)) for found in jaxprs_in_params(params))
    if name == "scan":
        return inner * params["length"]
    return inner * (prod(params["mesh"].shape.values()) if name == "shard_map" else 1)


def _shape(variable: Any) -> tuple[int, ...]:
    shape: tuple[int, ...] = variable.aval.shape
    return shape


def _product(equation: JaxprEqn) -> float:
    (contracted, _), _ = equation.params["dimension_numbers"]
    left = _shape(equation.invars[0])
    return prod(_shape(equation.outvars[0])) * prod(left[axis] for axis in contracted)


def _native_convolution(equation: JaxprEqn) -> float:
    """XLA's own: every entry of the result sees a kernel's worth of one group's channels."""
    kernel, spec = _shape(equation.invars[1]), equation.params["dimension_numbers"].rhs_spec
    seen = prod(kernel[axis] for axis in spec[1:])
    return prod(_shape(equation.outvars[0])) * seen / prod(equation.params["lhs_dilation"])


def _convolution(equation: JaxprEqn) -> float:
    """That of `headstart.core.convolution`; the zeros between the pixels of a dilated image are not counted."""
    kernel = _shape(equation.invars[1])
    dilation = prod(equation.params["window"].image_dilation)
    return prod(_shape(equation.outvars[0])) * prod(kernel[1:-1]) / dilation


def _correlation(equation: JaxprEqn) -> float:
    """Its transpose by the kernel: every entry of the result meets a kernel's worth of channels."""
    image, result = map(_shape, equation.invars)
    dilation = prod(equation.params["window"].image_dilation)
    return prod(result) * prod(equation.params["kernel_shape"]) * image[-1] / dilation


PRODUCTS: dict[str, Callable[[JaxprEqn], float]] = {
    "dot_general": _product,
    "conv_general_dilated": _native_convolution,
    "headstart_convolve": _convolution,
    "headstart_correlate": _correlation,
}
