"""The contract that every method keeps, and through which simulator and deployment alike drive it."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Self

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from headstart.core.batch import FULL, ClientSamples, Params, Size
from headstart.core.composition import Objective
from headstart.core.optimizer import Optimizer, server_step
from headstart.errors import UsageError

__all__ = ["Algorithm", "ClientResult", "Cost", "Down", "RefreshingAlgorithm", "Server", "TaskSlots"]

ClientState = Any
Up = Any


class Server(NamedTuple):
    """What most servers keep. A method that keeps more has a state of its own with fields ``params`` and ``round``."""

    params: Params
    round: Array
    optimizer: Any = ()
    """The state of the server's optimiser, where it has one."""

    @classmethod
    def start(cls, params: Params, optimizer: Optimizer | None) -> "Server":
        """Before round 0."""
        return cls(params, jnp.zeros((), jnp.int32), () if optimizer is None else optimizer.init(params))

    def moved(self, optimizer: Optimizer | None, gradient: Params, lr: Array | float = 1.0) -> "Server":
        """After the server's move along a gradient, or along minus the way that the cohort came."""
        params, state = server_step(optimizer, self.params, gradient, lr, self.optimizer)
        return Server(params, self.round + 1, state)


class Down(NamedTuple):
    """What most servers send: the shared model, and this round's step size."""

    params: Params
    lr: Array | float


class ClientResult(NamedTuple):
    """What a client's round leaves: its own state, what it sends, and scalars to look at."""

    state: ClientState | None
    """``None`` where it stays as it was."""
    up: Up
    """An update: zero where the client did nothing. It is a gradient, or the difference to what was sent down."""
    metrics: dict[str, Array]


class TaskSlots(NamedTuple):
    """How many tasks a client may have, and how many of them a local step looks at."""

    per_client: int = 1
    per_step: int = 1


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

    def without(self, part: "Cost") -> "Cost":
        """The rest, where ``part`` is a part of this cost."""
        batches = {size: n - part.batches.get(size, 0) for size, n in self.batches.items()}
        return Cost(
            self.gradients - part.gradients,
            self.products - part.products,
            {size: n for size, n in batches.items() if n},
        )


class Algorithm(eqx.Module):
    """A federated method: frozen hyperparameters that are pytree leaves, and pure methods.

    One round is ``down = broadcast(server)``; every client of the cohort ``client_update(down)``;
    ``server_update(mean of the ups)``: `Round` states it for every driver. ``up`` is a pytree whose weighted mean is
    all the server needs, so a sum over devices, a real federation's aggregation and secure aggregation are the same
    path. It is an update, zero where a client did nothing, so that what lies between client and server (clipping,
    noise, compression, a robust mean) needs to know nothing of the method.
    Fields that shapes depend on are static; all others may be traced, so ``vmap`` runs a grid of them.
    """

    objectives: ClassVar[tuple[type, ...]] = ()
    """Kinds of objective other than a plain loss that the method can work on."""
    adapts_by: ClassVar[str | None] = "inner_lr"
    """The field with the step size of adaptation; ``None`` for a method that adapts in a way of its own."""
    traces_steps: ClassVar[bool] = False
    """Whether `personalize` also takes a number of steps that is traced."""
    adapts_with: ClassVar[tuple[str, ...]] = ()
    """What `personalize` looks at in what is broadcast, beside ``params``: it is kept with a trained model."""

    @property
    def needs_everyone(self) -> bool:
        """Whether the method is defined only for cohorts of all clients."""
        return False

    @property
    def refuses(self) -> Mapping[str, str]:
        """What has no meaning for the method, and why: names of wire parts, and of settings that other methods have."""
        return {}

    def prepare(self, objective: Objective, params: Params, samples: ClientSamples) -> Self:
        """The method as it works on this objective, called once before the states are made.

        Only a method whose states have a shape that the objective decides has anything to do here. The samples are
        of the shape and type that clients have, and of no client: a server has no data.
        """
        return self

    def adapting(self, inner_lr: Array | float) -> Self:
        """The method with another step size of adaptation."""
        if self.adapts_by is None:
            raise UsageError(
                f"An inner_lr is given for adaptation, but {type(self).__name__} adapts in a way of its own.",
                "Leave evaluate.inner_lr out for this algorithm.",
            )
        field = self.adapts_by
        return eqx.tree_at(lambda method: getattr(method, field), self, inner_lr)

    def task_slots(self) -> TaskSlots:
        """How many tasks of a client the method has room for; one, unless it says otherwise."""
        return TaskSlots()

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

    @abstractmethod
    def refresh_cost(self) -> Cost:
        """The part of ``cost()`` that refreshing is."""
