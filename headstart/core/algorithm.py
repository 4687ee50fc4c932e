"""The contract that every method keeps, and through which simulator and deployment alike drive it."""

from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple, Self

import equinox as eqx
from jax import Array

from headstart.core.batch import FULL, ClientSamples, Params, Size
from headstart.core.composition import Objective

__all__ = ["Algorithm", "ClientResult", "Cost", "Down", "RefreshingAlgorithm", "Server"]

ClientState = Any
Up = Any


class Server(NamedTuple):
    """What most servers keep. A method that keeps more has a state of its own with these two fields."""

    params: Params
    round: Array


class Down(NamedTuple):
    """What most servers send: the shared model, and this round's step size."""

    params: Params
    lr: Array | float


class ClientResult(NamedTuple):
    """What a client's round leaves: its own state, what it sends, and scalars to look at."""

    state: ClientState | None
    """``None`` where it stays as it was."""
    up: Up
    metrics: dict[str, Array]


class Cost(NamedTuple):
    """What one client's round costs, so that methods compare at equal budgets; a mean where rounds differ."""

    gradients: float
    """Stochastic gradient evaluations (a central difference counts two)."""
    products: float
    """Hessian-vector products."""
    batches: dict[Size, float]
    """How many batches of each size are drawn."""

    def samples(self, client_samples: int) -> float:
        """Samples drawn by a client that has ``client_samples`` of them."""
        return sum(n * (client_samples if size == FULL else int(size)) for size, n in self.batches.items())

    def largest_batch(self) -> int:
        """The largest numbered batch; a client with fewer samples cannot fill it."""
        return max((int(size) for size in self.batches if size != FULL), default=1)


class Algorithm(eqx.Module):
    """A federated method: frozen hyperparameters that are pytree leaves, and pure methods.

    One round is ``down = broadcast(server)``; every client of the cohort ``client_update(down)``;
    ``server_update(mean of the ups)``. ``up`` is a pytree whose weighted mean is all the server needs, so a
    sum over devices, a real federation's aggregation and secure aggregation are the same path.
    Fields that shapes depend on are static; all others may be traced, so ``vmap`` runs a grid of them.
    """

    objectives: ClassVar[tuple[type, ...]] = ()
    """Kinds of objective other than a plain loss that the method can work on."""
    needs_everyone: ClassVar[bool] = False
    """Whether the method is defined only for cohorts of all clients."""

    def prepare(self, objective: Objective, params: Params, client: ClientSamples) -> Self:
        """The method as it works on this objective, called once before the states are made.

        Only a method whose states have a shape that the objective decides has anything to do here. The client is
        any one of them, to look at the shape of its samples.
        """
        return self

    @abstractmethod
    def init_server(self, params: Params) -> Any:
        """The server's state before round 0; it has fields ``params`` and ``round``."""

    @abstractmethod
    def init_client(self, params: Params) -> ClientState:
        """A client's own state before its first round; ``()`` where clients keep nothing."""

    @abstractmethod
    def broadcast(self, server: Any, key: Array) -> Any:
        """What the server sends to the cohort; it has a field ``params``."""

    @abstractmethod
    def client_update(
        self, objective: Objective, down: Any, state: ClientState, client: ClientSamples, key: Array
    ) -> ClientResult:
        """A client's local work in one round. The objective is the problem's loss, unless ``objectives`` says other."""

    @abstractmethod
    def server_update(self, server: Any, mean_up: Up) -> Any:
        """The server's move, from the weighted mean of what the cohort sent."""

    @abstractmethod
    def personalize(
        self,
        objective: Objective,
        down: Any,
        state: ClientState,
        support: ClientSamples,
        key: Array,
        steps: int,
        size: Size,
    ) -> Params:
        """The client's own model after ``steps`` steps on batches of ``size`` of its support data."""

    @abstractmethod
    def cost(self) -> Cost:
        """What one client's round costs."""


class RefreshingAlgorithm(Algorithm):
    """A method in which a second cohort, independent of the first, refreshes its memories before the round's work.

    ``server_update`` is then given two means: what the refreshed clients sent, and what the cohort sent.
    """

    @abstractmethod
    def refresh(
        self,
        objective: Objective,
        down: Any,
        state: ClientState,
        client: ClientSamples,
        key: Array,
        participation: float,
    ) -> ClientResult:
        """A refreshed client's work; ``participation`` is the probability with which it was drawn."""
