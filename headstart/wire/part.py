"""The contract of everything that may happen to an update between a client and the server's move."""

from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
from jax import Array

from headstart.core import Weighting

__all__ = ["Aggregator", "Sent", "WirePart"]


class Sent(NamedTuple):
    """What a client's side of a part leaves behind."""

    up: Any
    """What goes on towards the server."""
    own: Any = ()
    """What the client keeps for its next round, such as the residual of error feedback."""
    note: Any = ()
    """Float scalars that go up beside the update and are averaged over the cohort, such as a clipped-or-not bit."""


class WirePart(eqx.Module):
    """One thing done to updates on their way, for the update of any method and in any driver.

    An update ``up`` is a pytree of float arrays that is zero where a client did nothing. Methods are pure and can be
    jitted, and ``send`` can be vmapped over clients. Numbers are leaves and may be swept; what shapes depend on is
    static. ``like`` is a template of the update, arrays or shape structs. A part states what it has a use for.
    """

    kind: ClassVar[str]
    """The key of the ``[wire]`` table that asks for it."""
    name: ClassVar[str]
    """Its own name, by which a method may refuse it."""

    def labels(self) -> tuple[tuple[str, str], ...]:
        """``(kind, name)`` of the part, and of those that it is made of."""
        return ((self.kind, self.name),)

    def may_lengthen(self) -> str | None:
        """Why what leaves may have a larger norm than what came in; ``None`` where it never does."""
        return "it may make an update longer than the clipping norm"

    def init_client(self, like: Any) -> Any:
        """What a client keeps before its first round."""
        return ()

    def init_server(self, like: Any) -> Any:
        """What the server keeps before the first round."""
        return ()

    def announce(self, server_state: Any) -> Any:
        """What goes down to the clients beside the model."""
        return ()

    def send(self, up: Any, announced: Any, own: Any, key: Array) -> Sent:
        """At the client, with a key of this client and round."""
        return Sent(up, own)

    def receive(self, server_state: Any, mean: Any, note: Any, members: Array | int, key: Array) -> tuple[Any, Any]:
        """At the server: the aggregate of ``members`` clients after this part, and the server's next state."""
        return mean, server_state

    def payload_bytes(self, like: Any, before: int) -> int:
        """Bytes that one client sends after this part, given those ``before`` it."""
        return before


class Aggregator(eqx.Module):
    """What the server makes of its cohort's updates in place of their weighted mean."""

    kind: ClassVar[str] = "aggregate"
    name: ClassVar[str]

    @abstractmethod
    def combine(self, stacked: Any, weights: Array) -> Any:
        """One update from those of all members (leading axis).

        Members of weight zero fill a cohort up and have no influence, whatever they hold, NaN included.
        """

    @abstractmethod
    def check(self, weighting: Weighting, members: int) -> None:
        """Refuse a weighting that the aggregate is not defined for, and cohorts that are too small for it."""
