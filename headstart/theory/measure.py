"""What the theorems bound, measured: the meta-loss of a federation and its exact gradient, along a run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from headstart.core import Adaptation, Exact, Params, Size, checks, client_key, tree
from headstart.data import Clients, Federation
from headstart.errors import UsageError
from headstart.problems import Problem
from headstart.simulate import Simulation
from headstart.theory.sampling import choose_clients, choose_size

__all__ = ["Look", "MetaLoss", "Trace", "trace"]


class Look(NamedTuple):
    """The meta-loss at one model."""

    value: float
    """``F(w)``."""
    squared_gradient: float
    """``||grad F(w)||^2``."""


class MetaLoss:
    """``F(w) = (1/n) sum_i f_i(w_nu^i)`` after ``nu`` exact steps on each client's training samples, all of them.

    ``inner_steps = 0`` is the mean loss itself. Where clients generate samples, ``batch_size`` draws (1024), always the
    same, stand for each. ``clients`` are numbers of clients, or how many to draw; left out, all that train.

    >>> import headstart as hs
    >>> problem = hs.Regression(hs.MLP(inputs=1, outputs=1, hidden=(4,), activation="tanh"))
    >>> meta_loss = MetaLoss(problem, hs.data.sine(clients=3), inner_lr=0.1)
    >>> look = meta_loss.at(problem.init(jax.random.key(0)))
    >>> look.value > 0 and look.squared_gradient > 0
    True
    """

    def __init__(
        self,
        problem: Problem,
        federation: Federation,
        inner_lr: float,
        inner_steps: int = 1,
        *,
        clients: int | Sequence[int] | None = None,
        batch_size: Size | None = None,
        seed: int = 0,
    ):
        if not callable(problem.objective()):
            raise UsageError(
                f"{type(problem).__name__} has no plain loss, which the meta-loss is made of.",
                "Give a problem with a loss(params, batch).",
            )
        self._problem = problem
        self._adaptation = Adaptation(inner_steps, inner_lr)
        self._size = choose_size(federation, batch_size)
        ids, _ = choose_clients(federation, clients, seed)
        self._clients, places = federation.clients.gather(("train",), ids, len(ids))
        self._ids, self._places = jnp.asarray(ids, jnp.int32), jnp.asarray(places, jnp.int32)
        self._key = jax.random.key(seed)

    def at(self, params: Params) -> Look:
        """The value and the squared norm of the gradient."""
        value, gradient = _mean_over_clients(
            self._problem, self._size, self._adaptation, self._clients, params, self._key, self._ids, self._places
        )
        return Look(float(value), float(np.sum(_flat(gradient) ** 2)))


@partial(jax.jit, static_argnames=("problem", "size"))
def _mean_over_clients(
    problem: Problem,
    size: Size,
    adaptation: Adaptation,
    clients: Clients,
    params: Params,
    key: Array,
    ids: Array,
    places: Array,
) -> tuple[Array, Params]:
    """``F(w)`` and its gradient, client after client."""
    loss = problem.objective()
    assert callable(loss)

    def add(total: tuple[Array, Params], member: tuple[Array, Array]) -> tuple[tuple[Array, Params], None]:
        client, place = member
        batch = clients.view("train", place).sample(client_key(key, client), size)
        # The same samples in every inner step and in every factor of the way back: this is the exact gradient.
        batches = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (adaptation.steps, *leaf.shape)), batch)
        adapted = adaptation.run(loss, params, batches)
        value, v = jax.value_and_grad(loss)(adapted.params, batch)
        gradient = adaptation.pullback(loss, Exact(), adapted.trajectory, batches, v)
        return (total[0] + value, tree.add(total[1], gradient)), None

    value = jax.eval_shape(lambda: loss(params, clients.view("train", places[0]).sample(key, size)))
    nothing = (jnp.zeros((), value.dtype), tree.zeros_like(params))
    (value, gradient), _ = jax.lax.scan(add, nothing, (ids, places))
    return jax.tree.map(lambda leaf: leaf / len(ids), (value, gradient))


@dataclass(frozen=True, eq=False)
class Trace:
    """``||grad F||^2`` at the beginning of some rounds of a run."""

    rounds: np.ndarray
    """How many rounds had been run."""
    squared_gradients: np.ndarray
    distances: np.ndarray
    """How far the model was from where it began."""

    @property
    def running_average(self) -> np.ndarray:
        """The average over all rounds so far: what the theorems bound, at the models that rounds begin with.

        Between looks the squared norm is taken to change evenly.
        """
        last = self.rounds[-1]
        everywhere = np.interp(np.arange(last + 1), self.rounds, self.squared_gradients)
        averages: np.ndarray = (np.cumsum(everywhere) / np.arange(1, last + 2))[self.rounds]
        return averages


def trace(
    simulation: Simulation,
    meta_loss: MetaLoss,
    rounds: int,
    looks: int = 100,
    observer: Callable[[int], None] = lambda done: None,
) -> Trace:
    """Advance a simulation by so many rounds and look at its model about ``looks`` times, first of all at the start.

    Half of the looks are evenly spaced, half on a logarithmic scale.
    """
    checks.whole("rounds", rounds, 1)
    checks.whole("looks", looks, 2)
    half = looks // 2 + 1
    spaced = np.concatenate([np.linspace(0, rounds - 1, half), np.geomspace(1, rounds, half) - 1])
    seen = np.unique(spaced.round().astype(int))
    gaps = np.diff([*seen, rounds])
    start = _flat(simulation.state.server.params)
    squares, distances = [], []
    for done, gap in zip(seen, gaps, strict=True):
        params = simulation.state.server.params
        squares.append(meta_loss.at(params).squared_gradient)
        distances.append(float(np.linalg.norm(_flat(params) - start)))
        simulation.advance(int(gap), int(gaps.max()))
        observer(int(done + gap))
    return Trace(seen, np.array(squares), np.array(distances))


def _flat(params: Params) -> np.ndarray:
    """A copy as one vector, in double precision; advancing gives a state's own memory away."""
    return np.asarray(ravel_pytree(params)[0], np.float64)
