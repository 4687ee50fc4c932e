"""A family of federated problems all of whose constants, meta-gradients and estimators' moments are known exactly.

In the coordinates ``u = rotation.T @ w`` every sample's loss is a sum over coordinates of a wave and a slope,

    l(w; z) = sum_j  p_zj cos(omega_j u_j) + q_zj sin(omega_j u_j) + b_zj u_j,

so gradients, Hessians and their Lipschitz constants are bounded on the *whole* space, as the theorems assume (a
polynomial's are not). The loss is linear in the sample's features ``(p, q, b)``: a client's loss ``f_i`` is the loss
of its mean sample. Each client has three samples, equally likely, whose noise is

- in coordinate 0: a wave of amplitude ``s_i`` with phases 0, 120, 240 degrees: the only noise of the Hessian;
- in coordinates 1 and 2: a slope of norm ``b_i`` with directions 0, 120, 240 degrees: noise of the gradient alone.

Clients differ in coordinate 0 by their waves and elsewhere by slopes, which add up to zero over clients. That
makes every constant of the losses a closed formula, and attained (see ``KnownProblem.constants``). Hessians are full
matrices that change with ``w``; their Lipschitz constant, noise and dissimilarity are the same in the spectral and in
the Frobenius norm.

Batches are drawn with replacement, as the papers assume. A batch of ``D`` samples matters by its mean features only,
so it has ``(D+1)(D+2)/2`` outcomes with multinomial weights: bias and variance of a stochastic meta-gradient are
finite sums (``KnownProblem.estimate``), not Monte Carlo.

For JAX: ``problem.loss(params, batch)`` is the mean over a batch of ``Features`` with a leading axis, and
``problem.samples(i)`` are client ``i``'s three samples.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from headstart.theory.constants import Constants

SAMPLES = 3
_ANGLES = 2 * np.pi * np.arange(SAMPLES) / SAMPLES


class Features(NamedTuple):
    """What a sample (or the mean of some) is: amplitudes of its cosines and sines, and slopes, each ``(..., d)``."""

    cosine: Any
    sine: Any
    slope: Any

    def at(self, index: Any) -> "Features":
        """Each part indexed."""
        return Features(*(part[index] for part in (self.cosine, self.sine, self.slope)))

    def mean(self, weights: np.ndarray) -> "Features":
        """Weighted sums over the axis before the last; ``weights`` is ``(..., samples)``."""
        return Features(*(weights @ part for part in (self.cosine, self.sine, self.slope)))


class Moments(NamedTuple):
    """Exact moments of an estimator of client ``i``'s meta-gradient."""

    truth: np.ndarray
    bias: np.ndarray
    squared_error: float


@cache
def batch_outcomes(size: int) -> tuple[np.ndarray, np.ndarray]:
    """How often each sample occurs in a batch as a share, ``(outcomes, samples)``, and the outcomes' probabilities."""
    counts = np.array([c for c in itertools.product(range(size + 1), repeat=SAMPLES) if sum(c) == size])
    ways = [math.factorial(size) / math.prod(math.factorial(int(k)) for k in row) for row in counts]
    return counts / size, np.array(ways) / SAMPLES**size


@dataclass(frozen=True, eq=False)
class KnownProblem:
    """One federated problem: clients' mean waves and slopes, and the amplitudes ``s_i`` and ``b_i`` of their noise."""

    frequency: np.ndarray  # omega (d,)
    rotation: np.ndarray  # orthogonal (d, d)
    wave: np.ndarray  # complex p + iq (n, d), the same for all clients but in coordinate 0
    slope: np.ndarray  # b (n, d), zero in coordinate 0 and adding up to zero over clients
    wave_noise: np.ndarray  # s (n,)
    slope_noise: np.ndarray  # (n,)

    @property
    def clients(self) -> int:
        return len(self.wave)

    @property
    def dimension(self) -> int:
        return len(self.frequency)

    # The clients' samples and losses.

    @cached_property
    def features(self) -> Features:
        """Every client's samples, ``(clients, samples, d)`` each."""
        wave = np.repeat(self.wave[:, None], SAMPLES, axis=1)
        wave[:, :, 0] += self.wave_noise[:, None] * np.exp(1j * _ANGLES)
        slope = np.repeat(self.slope[:, None], SAMPLES, axis=1)
        slope[:, :, 1] += self.slope_noise[:, None] * np.cos(_ANGLES)
        slope[:, :, 2] += self.slope_noise[:, None] * np.sin(_ANGLES)
        return Features(wave.real, wave.imag, slope)

    @cached_property
    def means(self) -> Features:
        """Every client's mean sample, ``(clients, d)`` each: the features of ``f_i``."""
        return Features(self.wave.real, self.wave.imag, self.slope)

    def samples(self, client: int) -> Features:
        """The three samples of a client, with a leading axis: a batch for ``loss``."""
        return self.features.at(client)

    def loss(self, params: Any, batch: Features) -> Any:
        """The mean loss of a batch at parameters ``w`` of shape ``(d,)``, in JAX."""
        at = jnp.asarray(self.rotation).T @ params
        phase = jnp.asarray(self.frequency) * at
        waves = batch.cosine * jnp.cos(phase) + batch.sine * jnp.sin(phase)
        return jnp.mean(jnp.sum(waves + batch.slope * at, axis=-1))

    @cached_property
    def constants(self) -> Constants:
        """All constants; every one of them is attained at some model, or approached by it, for some client.

        With ``A = |p + iq|``: ``B`` joins the coordinates' largest slopes, which can be had at once; ``L`` and
        ``rho`` are the largest entries of diagonal matrices. ``E_z sin^2(x - phi_z) = 1/2`` and ``E_z sin^4 = 3/8``
        for every ``x``, so the noise moments do not depend on ``w``. The variance over clients of ``Re(conj(A_i)
        e^{ix})`` is at most the larger eigenvalue of the covariance of ``(p, q)``.
        """
        omega, amplitude = self.frequency, np.abs(self.wave)
        fluctuation = (omega[0] * self.wave_noise) ** 2
        steady = self.slope_noise**2
        spread = np.cov(np.stack([self.wave[:, 0].real, self.wave[:, 0].imag]), bias=True)
        spread = float(np.linalg.eigvalsh(spread)[-1])
        slopes = float(np.mean(np.sum((self.slope - self.slope.mean(0)) ** 2, axis=-1)))
        return Constants(
            smoothness=float(np.max(amplitude * omega**2)),
            hessian_lipschitz=float(np.max(amplitude * omega**3)),
            gradient_bound=float(np.max(np.linalg.norm(amplitude * omega + np.abs(self.slope), axis=-1))),
            gradient_noise=float(np.sqrt(np.max(fluctuation / 2 + steady))),
            hessian_noise=float(np.sqrt(np.max(omega[0] ** 2 * fluctuation / 2))),
            gradient_dissimilarity=math.sqrt(omega[0] ** 2 * spread + slopes),
            hessian_dissimilarity=math.sqrt(omega[0] ** 4 * spread),
            gradient_fourth_moment=float(np.max(3 / 8 * fluctuation**2 + fluctuation * steady + steady**2)),
            hessian_fourth_moment=float(np.max(3 / 8 * omega[0] ** 4 * fluctuation**2)),
        )

    # Derivatives in the coordinates u, where Hessians are diagonal; features broadcast against u.

    def value_at(self, u: np.ndarray, of: Features) -> np.ndarray:
        """The coordinates' shares of the loss."""
        return of.cosine * np.cos(self.frequency * u) + of.sine * np.sin(self.frequency * u) + of.slope * u

    def gradient_at(self, u: np.ndarray, of: Features) -> np.ndarray:
        phase = self.frequency * u
        return self.frequency * (of.sine * np.cos(phase) - of.cosine * np.sin(phase)) + of.slope

    def curvature_at(self, u: np.ndarray, of: Features) -> np.ndarray:
        """The diagonal of the Hessian."""
        phase = self.frequency * u
        return -(self.frequency**2) * (of.cosine * np.cos(phase) + of.sine * np.sin(phase))

    def trajectory_at(self, u: np.ndarray, of: Features, inner_lr: float, steps: int) -> list[np.ndarray]:
        """The models ``w_0 .. w_steps`` of exact adaptation."""
        path = [u]
        for _ in range(steps):
            path.append(path[-1] - inner_lr * self.gradient_at(path[-1], of))
        return path

    def meta_gradient_at(self, u: np.ndarray, of: Features, inner_lr: float, steps: int) -> np.ndarray:
        *path, adapted = self.trajectory_at(u, of, inner_lr, steps)
        gradient = self.gradient_at(adapted, of)
        for point in reversed(path):
            gradient = gradient * (1 - inner_lr * self.curvature_at(point, of))
        return gradient

    # The same in the parameters w, of shape (..., d); client i's by index, or all clients' with a leading axis.

    def gradient(self, client: int, w: np.ndarray) -> np.ndarray:
        """``grad f_i(w)``."""
        return self.gradient_at(w @ self.rotation, self.means.at(client)) @ self.rotation.T

    def hessian(self, client: int, w: np.ndarray) -> np.ndarray:
        """``hess f_i(w)``, ``(..., d, d)``."""
        diagonal = self.curvature_at(w @ self.rotation, self.means.at(client))
        return (self.rotation * diagonal[..., None, :]) @ self.rotation.T

    def sample_gradients(self, client: int, w: np.ndarray) -> np.ndarray:
        """``grad l(w; z)`` of each sample, ``(..., samples, d)``."""
        return self.gradient_at((w @ self.rotation)[..., None, :], self.features.at(client)) @ self.rotation.T

    def sample_hessians(self, client: int, w: np.ndarray) -> np.ndarray:
        """``hess l(w; z)`` of each sample, ``(..., samples, d, d)``."""
        diagonal = self.curvature_at((w @ self.rotation)[..., None, :], self.features.at(client))
        return (self.rotation * diagonal[..., None, :]) @ self.rotation.T

    def meta_loss(self, client: int, w: np.ndarray, inner_lr: float, steps: int = 1) -> np.ndarray:
        """``F_i(w) = f_i(w_steps)``, (7) of the paper on nu steps."""
        of = self.means.at(client)
        adapted = self.trajectory_at(w @ self.rotation, of, inner_lr, steps)[-1]
        return self.value_at(adapted, of).sum(-1)

    def meta_gradient(self, client: int, w: np.ndarray, inner_lr: float, steps: int = 1) -> np.ndarray:
        """``grad F_i(w)``, (8) of the paper on nu steps."""
        return self.meta_gradient_at(w @ self.rotation, self.means.at(client), inner_lr, steps) @ self.rotation.T

    def meta_gradients(self, w: np.ndarray, inner_lr: float, steps: int = 1) -> np.ndarray:
        """All clients' meta-gradients at ``w`` of shape ``(..., d)``: ``(clients, ..., d)``."""
        return np.stack([self.meta_gradient(i, w, inner_lr, steps) for i in range(self.clients)])

    def objective(self, w: np.ndarray, inner_lr: float, steps: int = 1) -> np.ndarray:
        """``F(w)``, the mean of the clients' meta losses."""
        return np.mean([self.meta_loss(i, w, inner_lr, steps) for i in range(self.clients)], axis=0)

    def minimum(self, inner_lr: float, steps: int = 1) -> tuple[np.ndarray, float]:
        """A model that minimises ``F``, and ``F*``.

        ``F`` is a sum over coordinates, each periodic because the slopes cancel, so one period of each is searched.
        """
        of = self.means.at((slice(None), None))
        grid = np.linspace(0, 1, 1001)[:, None] * (2 * np.pi / self.frequency)
        step = grid[1]
        for _ in range(3):  # each pass looks a hundred times closer
            shares = self.value_at(self.trajectory_at(grid, of, inner_lr, steps)[-1], of).mean(0)
            best = np.take_along_axis(grid, np.argmin(shares, axis=0)[None], axis=0)[0]
            grid = best + np.linspace(-1, 1, 201)[:, None] * step
            step = step / 100
        return best @ self.rotation.T, float(shares.min(0).sum())

    # Estimators.

    def estimate(
        self,
        client: int,
        w: np.ndarray,
        inner_lr: float,
        inner: Sequence[int] = (1,),
        curvature: Sequence[int] = (1,),
        outer: int = 1,
        kind: str = "exact",
        radius: float = 0.0,
    ) -> Moments:
        """Exact bias and mean squared error, against ``grad F_i(w)``, of the estimate from independent batches.

        ``inner`` are the sizes D_0 .. D_{nu-1}, ``curvature`` the sizes D'_0 .. D'_{nu-1} and ``outer`` is D_nu;
        ``kind`` is ``exact``, ``first-order`` or ``hessian-free`` (with ``radius``).
        """
        samples, mean = self.features.at(client), self.means.at(client)
        truth = self.meta_gradient_at(w @ self.rotation, mean, inner_lr, len(inner))
        path, weight = self._paths(samples, w @ self.rotation, inner_lr, inner)
        if kind == "hessian-free":
            first, second = self._hessian_free_moments(samples, path, weight, inner_lr, curvature, outer, radius)
        else:
            first, second = self._moments(
                samples, mean, path, weight, inner_lr, curvature if kind == "exact" else (), outer
            )
        squared_error = float(second - 2 * first @ truth + truth @ truth)
        return Moments(truth @ self.rotation.T, (first - truth) @ self.rotation.T, squared_error)

    def drift(self, client: int, w: np.ndarray, inner_lr: float, inner: Sequence[int]) -> tuple[float, float, float]:
        """``E ||w~_l - w_l||^k`` for k = 1, 2, 4: how far noisy adaptation ends from exact adaptation."""
        adapted = self.trajectory_at(w @ self.rotation, self.means.at(client), inner_lr, len(inner))[-1]
        path, weight = self._paths(self.features.at(client), w @ self.rotation, inner_lr, inner)
        distance = np.linalg.norm(path[-1] - adapted, axis=-1)
        return tuple(float(weight @ distance**k) for k in (1, 2, 4))  # type: ignore[return-value]

    def _paths(
        self, samples: Features, u: np.ndarray, inner_lr: float, inner: Sequence[int]
    ) -> tuple[list[np.ndarray], np.ndarray]:
        """Every outcome of noisy adaptation: the models ``(outcomes, d)`` at each step, and the outcomes' chances."""
        path, weight = [u[None]], np.ones(1)
        for size in inner:
            shares, chance = batch_outcomes(size)
            moved = path[-1][:, None] - inner_lr * self.gradient_at(path[-1][:, None], samples.mean(shares))
            path = [np.repeat(point, len(chance), axis=0) for point in path] + [moved.reshape(-1, self.dimension)]
            weight = np.outer(weight, chance).ravel()
        return path, weight

    def _moments(
        self,
        samples: Features,
        mean: Features,
        path: list[np.ndarray],
        weight: np.ndarray,
        inner_lr: float,
        curvature: Sequence[int],
        outer: int,
    ) -> tuple[np.ndarray, float]:
        """Mean and second moment; given the path the factors are independent, so their moments multiply."""

        def moments(derivative: Callable[..., np.ndarray], u: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
            at_mean = derivative(u, mean)
            deviation = derivative(u[:, None], samples) - at_mean[:, None]
            return at_mean, np.mean(deviation**2, axis=1) / size

        first, variance = moments(self.gradient_at, path[-1], outer)
        second = first**2 + variance
        for point, size in zip(path, curvature, strict=False):
            bend, variance = moments(self.curvature_at, point, size)
            first = first * (1 - inner_lr * bend)
            second = second * ((1 - inner_lr * bend) ** 2 + inner_lr**2 * variance)
        return weight @ first, float(weight @ second.sum(-1))

    def _hessian_free_moments(
        self,
        samples: Features,
        path: list[np.ndarray],
        weight: np.ndarray,
        inner_lr: float,
        curvature: Sequence[int],
        outer: int,
        radius: float,
    ) -> tuple[np.ndarray, float]:
        """Mean and second moment by enumeration of the outer and curvature batches as well."""
        shares, chance = batch_outcomes(outer)
        vector = self.gradient_at(path[-1][:, None], samples.mean(shares)).reshape(-1, self.dimension)
        weight = np.outer(weight, chance).ravel()
        for point, size in reversed(list(zip(path, curvature, strict=False))):
            shares, chance = batch_outcomes(size)
            features = samples.mean(shares)
            point = np.repeat(point, len(vector) // len(point), axis=0)[:, None]
            shift = radius * vector[:, None]
            difference = self.gradient_at(point + shift, features) - self.gradient_at(point - shift, features)
            vector = (vector[:, None] - inner_lr * difference / (2 * radius)).reshape(-1, self.dimension)
            weight = np.outer(weight, chance).ravel()
        return weight @ vector, float(weight @ np.sum(vector**2, axis=-1))


@cache
def random_problem(seed: int, clients: int = 4, dimension: int = 3) -> KnownProblem:
    """A problem whose scales (curvature, noise, heterogeneity) vary over orders of magnitude with the seed."""
    rng = np.random.default_rng(seed)
    frequency = rng.uniform(0.5, 2.0, dimension)
    rotation, _ = np.linalg.qr(rng.normal(size=(dimension, dimension)))
    scale, heterogeneity, waves, slopes = 10.0 ** rng.uniform([-1, -2, -2, -2], [1, 0.3, 0.3, 0.3])
    shared = rng.normal(size=(2, dimension))
    own = heterogeneity * rng.normal(size=(2, clients))
    wave = np.tile(shared[0] + 1j * shared[1], (clients, 1))
    wave[:, 0] += own[0] + 1j * own[1]
    slope = heterogeneity * rng.normal(size=(clients, dimension))
    slope[:, 0] = 0.0
    return KnownProblem(
        frequency=frequency,
        rotation=rotation,
        wave=scale * wave,
        slope=scale * (slope - slope.mean(0)),
        wave_noise=scale * waves * rng.uniform(0.5, 1, clients),
        slope_noise=scale * slopes * rng.uniform(0.5, 1, clients),
    )
