"""MOML v2: every task's memory moves in every iteration, and only the drawn ones are touched."""

from collections import Counter
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from headstart.algorithms._personal import fine_tune
from headstart.algorithms._remembering import NO_LOCAL_STEPS
from headstart.core import (
    ClientResult,
    ClientSamples,
    Cost,
    Curvature,
    Decay,
    Exact,
    LazyMemory,
    Loss,
    Optimizer,
    Params,
    RefreshingAlgorithm,
    Schedule,
    Size,
    StepSize,
    Trail,
    as_curvature,
    as_optimizer,
    as_step_size,
    check_size,
    check_step_size,
    checks,
    recall,
    refreshed,
    server_step,
    step_size_at,
    tree,
)
from headstart.errors import UsageError

__all__ = ["MOMLv2", "MOMLv2Down", "MOMLv2Server", "gradient_lipschitz"]


def gradient_lipschitz(
    smoothness: Array | float, hessian_lipschitz: Array | float, inner_lr: Array | float, mean_norm: Array | float
) -> Array | float:
    """``4 L + 2 rho alpha mean_i ||grad L_i(w)||``: L(w) of wang's Lemma 10, L-hat(w) where the norms are estimates."""
    return 4 * smoothness + 2 * hessian_lipschitz * inner_lr * mean_norm


class MOMLv2Server(NamedTuple):
    """The shared model, how far the memories' average lags behind it, their decay, and a varying step size."""

    params: Params
    round: Array
    trail: Trail
    decay: Decay
    lr: Array | None
    optimizer: Any


class MOMLv2Down(NamedTuple):
    """The shared model, this iteration's beta_t, and what all memories share after it."""

    params: Params
    averaging: Array | float
    average: Params
    decay: Decay


class MOMLv2(RefreshingAlgorithm):
    r"""MOML whose memories all move in every iteration, corrected for how seldom each task is drawn.

    .. math::
        u^i_{t+1} = (1 - \beta_t) u^i_t + \beta_t w_t
        + \tfrac{\beta_t}{p_i} \bigl(\hat v^i_t - w_t\bigr)\, [i \in B'_t], \qquad
        \hat v^i_t = w_t - \alpha \nabla \mathcal L_i(w_t, S_1)

    .. math::
        w_{t+1} = w_t - \eta_t\, \text{mean}_{i \in B_t}
        \bigl(I - \alpha \nabla^2 \mathcal L_i(w_t, S_2)\bigr) \nabla \mathcal L_i(u^i_{t+1}, S_3)

    from :math:`u^i_0 = w_0`, with :math:`B_t` and :math:`B'_t` independent. The memories are kept as
    :math:`u^i_t = a_t + d^i_t`, where :math:`a_{t+1} = (1 - \beta_t) a_t + \beta_t w_t` is one average that the server
    keeps and :math:`d^i_{t+1} = (1 - \beta_t) d^i_t + \tfrac{\beta_t}{p_i}(\hat v^i_t - w_t)\, [i \in B'_t]`: the
    memories of all other tasks only shrink by a common factor, so nobody visits them, and an iteration costs what one
    of MOML v1 costs however many tasks there are.

    With ``smoothness`` and ``hessian_lipschitz`` the steps follow an estimate of the gradient's Lipschitz constant:

    .. math::
        \hat L(w_t) = 4 L + 2 \rho \alpha\, \text{mean}_{i \in B'_t} \|\nabla \mathcal L_i(w_t, S_L)\|, \qquad
        \eta_t = \eta_0 / \hat L(w_t), \qquad \beta_t = \min\{1, 6 L^2 \eta_0^{-1/3} \eta_{t-1}\}

    where ``outer_lr`` is eta_0 and ``averaging`` is not used. Otherwise ``outer_lr`` is eta_t itself.

    Symbols: ``inner_lr`` alpha, ``outer_lr`` eta, ``averaging`` beta, ``smoothness`` L, ``hessian_lipschitz`` rho,
    ``inner_batch_size`` S_1 and S_L, ``curvature_batch_size`` S_2, ``batch_size`` S_3 (each of K samples), the cohort
    B_t, the second cohort B'_t. p_i is the share of tasks in a cohort.

    Wang, Yuan, Ying and Yang 2023, Algorithm 2, (v2), (3); the steps of section 4.3, L-hat of section 3.3.

    >>> MOMLv2(averaging=0.1, batch_size=1).cost()
    Cost(gradients=2, products=1, batches={1: 3})
    >>> MOMLv2(batch_size=1, smoothness=1.0, hessian_lipschitz=1.0).cost()
    Cost(gradients=3, products=1, batches={1: 4})

    Deviations: an offset d that has shrunk by more than 2^-40 since it was stored may be taken for 0. L-hat is
    estimated on B'_t, with samples of its own; the paper draws tasks of its own as well. The paper leaves eta_(-1)
    open: it is eta_0 / (4 L), the largest step there can be. The minimum in beta_t is idle where eta_0 is as small as
    the paper's Lemma 4 asks. The server sends a as well as w. A ``server_optimizer``, given the mean gradient, takes
    the place of eta.
    """

    inner_lr: Array | float = 0.01
    outer_lr: StepSize = eqx.field(converter=as_step_size, default=0.001)
    averaging: Array | float = 0.5
    smoothness: Array | float | None = None
    hessian_lipschitz: Array | float | None = None
    curvature: Curvature = eqx.field(converter=as_curvature, default_factory=Exact)
    batch_size: Size = eqx.field(static=True, default=10)
    inner_batch_size: Size | None = eqx.field(static=True, default=None)
    curvature_batch_size: Size | None = eqx.field(static=True, default=None)
    server_optimizer: Optimizer | None = eqx.field(converter=as_optimizer, default=None)

    traces_steps: ClassVar[bool] = True

    def __check_init__(self) -> None:
        check_step_size("outer_lr", self.outer_lr)
        checks.in_unit_interval("averaging", self.averaging)
        checks.at_least("inner_lr", self.inner_lr, 0)
        check_size("batch_size", self.batch_size)
        check_size("inner_batch_size", self.inner_size)
        check_size("curvature_batch_size", self.curvature_size)
        if self.curvature.looks_at == "inner":
            raise UsageError(
                "MOML v2 has no inner step on the tasks of its gradients: it refreshes memories of other tasks.",
                "Set curvature = 'exact', or use moml (v1), whose gradients and memories see the same tasks.",
            )
        if (self.smoothness is None) != (self.hessian_lipschitz is None):
            raise UsageError(
                "Of smoothness and hessian_lipschitz only one is set.",
                "Give both for steps that follow the Lipschitz constant, or neither for constant ones.",
            )
        if self.smoothness is not None:
            checks.positive("smoothness", self.smoothness)
            checks.at_least("hessian_lipschitz", self.hessian_lipschitz, 0)
            if not isinstance(self.outer_lr, Schedule):
                checks.positive("outer_lr", self.outer_lr)

    @property
    def refuses(self) -> Mapping[str, str]:
        if self.smoothness is None:
            return NO_LOCAL_STEPS
        return NO_LOCAL_STEPS | {"noise": "its refreshed clients send gradient norms as well, which no noise hides"}

    @property
    def inner_size(self) -> Size:
        """The samples of S_1 and of S_L."""
        return self.batch_size if self.inner_batch_size is None else self.inner_batch_size

    @property
    def curvature_size(self) -> Size:
        """The samples of S_2."""
        return self.batch_size if self.curvature_batch_size is None else self.curvature_batch_size

    def init_server(self, params: Params) -> MOMLv2Server:
        round_ = jnp.zeros((), jnp.int32)
        lr = None if self.smoothness is None else self._lipschitz_lr(round_, jnp.zeros(()))
        optimizer = () if self.server_optimizer is None else self.server_optimizer.init(params)
        return MOMLv2Server(params, round_, Trail.start(params), Decay.none(), lr, optimizer)

    def init_client(self, params: Params) -> LazyMemory:
        return LazyMemory.none(params)

    def broadcast(self, server: MOMLv2Server, key: Array) -> MOMLv2Down:
        beta = self._averaging_at(server)
        average = server.trail.average(server.params, beta)
        return MOMLv2Down(server.params, beta, average, server.decay.by(beta))

    def refresh(
        self,
        loss: Loss,
        down: MOMLv2Down,
        state: LazyMemory,
        client: ClientSamples,
        key: Array,
        participation: float,
    ) -> ClientResult:
        norm = None
        if self.smoothness is not None:
            key, norm_key = jax.random.split(key)
            norm = tree.norm(jax.grad(loss)(down.params, client.sample(norm_key, self.inner_size)))
        gradient = jax.grad(loss)(down.params, client.sample(key, self.inner_size))
        towards = tree.scale(-self.inner_lr, gradient)  # line 5: v-hat - w
        memory = refreshed(state, down.decay, tree.scale(down.averaging / participation, towards))  # line 7, (v2)
        return ClientResult(memory, norm, {})

    def client_update(
        self, loss: Loss, down: MOMLv2Down, state: LazyMemory, client: ClientSamples, key: Array
    ) -> ClientResult:
        outer_key, curvature_key = jax.random.split(key)
        u = recall(state, down.average, down.decay)
        value, gradient = jax.value_and_grad(loss)(u, client.sample(outer_key, self.batch_size))
        if self.curvature.looks_at == "own":  # line 8, (3)
            batch = client.sample(curvature_key, self.curvature_size)
            gradient = self.curvature.pull(lambda w: jax.grad(loss)(w, batch), down.params, self.inner_lr, gradient)
        return ClientResult(None, gradient, {"loss": value})

    def server_update(self, server: MOMLv2Server, mean_up: tuple[Array | None, Params]) -> MOMLv2Server:
        norm, gradient = mean_up
        beta = self._averaging_at(server)
        lr = None if norm is None else self._lipschitz_lr(server.round, norm)
        eta = step_size_at(self.outer_lr, server.round) if lr is None else lr
        params, optimizer = server_step(self.server_optimizer, server.params, gradient, eta, server.optimizer)  # line 9
        trail = server.trail.moved(server.params, params, beta)
        return MOMLv2Server(params, server.round + 1, trail, server.decay.by(beta), lr, optimizer)

    def personalize(
        self,
        loss: Loss,
        down: MOMLv2Down,
        state: LazyMemory,
        support: ClientSamples,
        key: Array,
        steps: int,
        size: Size,
    ) -> Params:
        return fine_tune(loss, down.params, support, key, steps, self.inner_lr, size)

    def cost(self) -> Cost:
        adaptive = self.smoothness is not None
        sizes = [self.inner_size, self.batch_size] + [self.inner_size] * adaptive
        sizes += [self.curvature_size] * (self.curvature.looks_at == "own")
        return Cost(2 + adaptive + self.curvature.gradients, self.curvature.products, dict(Counter(sizes)))

    def refresh_cost(self) -> Cost:
        draws = 1 + (self.smoothness is not None)
        return Cost(gradients=draws, products=0, batches={self.inner_size: draws})

    def _averaging_at(self, server: MOMLv2Server) -> Array | float:
        """beta_t."""
        if self.smoothness is None:
            return self.averaging
        assert server.lr is not None
        eta = step_size_at(self.outer_lr, server.round)
        return jnp.minimum(1.0, 6 * self.smoothness**2 * eta ** (-1 / 3) * server.lr)

    def _lipschitz_lr(self, round_: Array, norm: Array) -> Array:
        """``eta_0 / L-hat`` where the refreshed tasks' gradients have this mean norm."""
        assert self.smoothness is not None
        assert self.hessian_lipschitz is not None
        lipschitz = gradient_lipschitz(self.smoothness, self.hessian_lipschitz, self.inner_lr, norm)
        return jnp.asarray(step_size_at(self.outer_lr, round_) / lipschitz)
