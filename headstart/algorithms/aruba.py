"""FedAvg + ARUBA: a step size for every coordinate, learned from how far and how steeply clients move."""

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from headstart.core import (
    Algorithm,
    ClientResult,
    ClientSamples,
    Cost,
    Loss,
    Optimizer,
    Params,
    Server,
    Size,
    as_optimizer,
    check_size,
    checks,
    tree,
)

__all__ = ["Aruba", "ArubaDown", "ArubaServer", "ArubaUp"]


class ArubaServer(NamedTuple):
    """The shared model and, coordinate by coordinate, squared distances (b) and squared gradients (g)."""

    params: Params
    round: Array
    distance: Params
    gradient: Params
    optimizer: Any


class ArubaDown(NamedTuple):
    """The shared model and the two accumulators whose ratio is the squared step size."""

    params: Params
    distance: Params
    gradient: Params


class ArubaUp(NamedTuple):
    """How far the local model came, half the square of that, and the summed squared gradients on the way."""

    moved: Params
    distance: Params
    gradient: Params


class Aruba(Algorithm):
    r"""FedAvg with a learned step size a coordinate, refined on each client when it personalizes.

    .. math::
        \eta_k = \sqrt{b_k / g_k}, \quad
        w^i_{t} = w^i_{t-1} - \eta_k \odot \nabla f_i(w^i_{t-1}, D), \quad w_{k+1} = \text{mean}_i\, w^i_\tau

    .. math::
        b_{k+1} = b_k + \tfrac{\epsilon^2}{(k+2)^p} + \text{mean}_i \tfrac12 (w^i_\tau - w_k)^2, \quad
        g_{k+1} = g_k + \tfrac{\zeta^2}{(k+2)^p} + \text{mean}_i \sum_t \nabla f_i(w^i_{t-1}, D)^2

    from :math:`b_0 = \epsilon^2, g_0 = \zeta^2`. When a client personalizes, each step adds ``refinement`` times
    its squared gradient to g (the authors' ARUBA++); ``refinement = 0`` keeps the learned step sizes.

    Symbols: ``initial_lr`` epsilon / zeta, ``zeta`` zeta, ``power`` p, ``local_steps`` tau, ``batch_size`` D.

    Khodak, Balcan and Talwalkar 2019, Algorithm 2 and section 5 (federated learning); fallah Appendix I
    compares with it.

    >>> Aruba(local_steps=4).cost()
    Cost(gradients=4, products=0, batches={40: 4})

    Deviations: a round's clients enter b and g by their mean, so that the server needs a mean only; the
    authors add each client as a task. That divides both sums by the cohort's size and leaves eta as it is but
    for the weight of epsilon and zeta. A ``server_optimizer``, as in `MetaFL`, is not theirs.
    """

    initial_lr: Array | float = 0.01
    zeta: Array | float = 1.0
    power: Array | float = 1.0
    refinement: Array | float = 1.0
    local_steps: int = eqx.field(static=True, default=4)
    batch_size: Size = eqx.field(static=True, default=40)
    server_optimizer: Optimizer | None = eqx.field(converter=as_optimizer, default=None)

    adapts_by: ClassVar[str | None] = None
    adapts_with: ClassVar[tuple[str, ...]] = ("distance", "gradient")

    def __check_init__(self) -> None:
        checks.positive("initial_lr", self.initial_lr)
        checks.positive("zeta", self.zeta)
        checks.at_least("power", self.power, 0)
        checks.at_least("refinement", self.refinement, 0)
        checks.whole("local_steps", self.local_steps, 1)
        check_size("batch_size", self.batch_size)

    @property
    def refuses(self) -> Mapping[str, str]:
        return {
            "client_optimizer": "its step sizes are learned, one per coordinate",
            "noise": "its step sizes are roots of sums of squares, which noise makes negative",
        }

    def init_server(self, params: Params) -> ArubaServer:
        def filled(value: Array | float) -> Params:
            return jax.tree.map(lambda leaf: jnp.full_like(leaf, value), params)

        _, round_, optimizer = Server.start(params, self.server_optimizer)
        return ArubaServer(params, round_, filled((self.initial_lr * self.zeta) ** 2), filled(self.zeta**2), optimizer)

    def init_client(self, params: Params) -> tuple[()]:
        return ()

    def broadcast(self, server: ArubaServer, key: Array) -> ArubaDown:
        return ArubaDown(server.params, server.distance, server.gradient)

    def client_update(self, loss: Loss, down: ArubaDown, state: Any, client: ClientSamples, key: Array) -> ClientResult:
        eta = _step_sizes(down.distance, down.gradient)

        def step(carry: tuple[Params, Params], t: Array) -> tuple[tuple[Params, Params], Array]:
            w, squares = carry
            batch = client.sample(jax.random.fold_in(key, t), self.batch_size)
            value, gradient = jax.value_and_grad(loss)(w, batch)
            return (_step(w, eta, gradient), _add_square(squares, 1.0, gradient)), value

        start = (down.params, tree.zeros_like(down.params))
        (w, squares), values = jax.lax.scan(step, start, jnp.arange(self.local_steps))
        moved = tree.sub(w, down.params)
        distance = _add_square(tree.zeros_like(w), 0.5, moved)
        return ClientResult(state, ArubaUp(moved, distance, squares), {"loss": jnp.mean(values)})

    def server_update(self, server: ArubaServer, mean_up: ArubaUp) -> ArubaServer:
        fade = (server.round + 2.0) ** self.power

        def grow(total: Params, added: Params, floor: Array | float) -> Params:
            return jax.tree.map(lambda a, b: (a + b + floor**2 / fade).astype(a.dtype), total, added)

        moved = Server(server.params, server.round, server.optimizer).moved(
            self.server_optimizer, tree.scale(-1, mean_up.moved)
        )
        return ArubaServer(
            moved.params,
            moved.round,
            grow(server.distance, mean_up.distance, self.initial_lr * self.zeta),
            grow(server.gradient, mean_up.gradient, self.zeta),
            moved.optimizer,
        )

    def personalize(
        self, loss: Loss, down: ArubaDown, state: Any, support: ClientSamples, key: Array, steps: int, size: Size
    ) -> Params:
        def step(carry: tuple[Params, Params], t: Array) -> tuple[tuple[Params, Params], None]:
            w, squares = carry
            gradient = jax.grad(loss)(w, support.sample(jax.random.fold_in(key, t), size))
            w = _step(w, _step_sizes(down.distance, squares), gradient)
            return (w, _add_square(squares, self.refinement, gradient)), None

        (w, _), _ = jax.lax.scan(step, (down.params, down.gradient), jnp.arange(steps))
        return w

    def cost(self) -> Cost:
        return Cost(gradients=self.local_steps, products=0, batches={self.batch_size: self.local_steps})


def _step_sizes(distance: Params, gradient: Params) -> Params:
    return jax.tree.map(lambda b, g: jnp.sqrt(b / g), distance, gradient)


def _step(w: Params, eta: Params, gradient: Params) -> Params:
    return jax.tree.map(lambda p, e, g: (p - e * g).astype(p.dtype), w, eta, gradient)


def _add_square(total: Params, factor: Array | float, x: Params) -> Params:
    return jax.tree.map(lambda a, b: (a + factor * b**2).astype(a.dtype), total, x)
