"""One communication round, stated once for whoever drives it: a compiled program, a loop, or real sites.

A driver has a server's state and clients' states, and moves what crosses between them. It does, for round ``k``,

    now = round.at(k)
    down = now.open(server)
    for phase in round.phases:                      # one; two for a method that refreshes memories first
        results = [now.work(phase, down, state, samples, client) for client in its cohort]
        mean of the phase = now.combine(stacked ups, weights)
    server = now.close(server, means, members)

and keeps each result's state with its client. All randomness is derived inside, from the run's keys, the round and the
client's number, so that it makes no difference where a client's work is done.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import Array

from headstart.core import tree
from headstart.core.algorithm import Algorithm, ClientResult, RefreshingAlgorithm
from headstart.core.batch import ClientSamples, Params
from headstart.core.cohort import draw_cohort
from headstart.core.composition import Objective
from headstart.core.keys import Keys, client_key, round_key

__all__ = ["Channel", "Phase", "Round", "RoundAt", "Start", "Wired"]


class Phase(Enum):
    """What a client is asked for in a round."""

    REFRESH = "refresh"
    """To refresh its memory, by a method that has a second cohort do so first."""
    WORK = "work"


class Channel(Protocol):
    """What updates go through on their way; ``headstart.wire.Wire`` is one."""

    @property
    def aggregator(self) -> Any:
        """What makes one update of many; ``None`` for the weighted mean."""
        ...

    def init_client(self, like: Any) -> Any: ...
    def init_server(self, like: Any) -> Any: ...
    def announce(self, server_state: Any) -> Any: ...
    def send(self, up: Any, announced: Any, own: Any, key: Array) -> Any: ...
    def receive(self, server_state: Any, mean: Any, note: Any, members: Array | int, key: Array) -> tuple[Any, Any]: ...
    def payload_bytes(self, like: Any) -> int: ...
    def encode(self, up: Any, announced: Any, own: Any, key: Array) -> tuple[Any, Any]: ...
    def decode(self, payload: Any, like: Any) -> tuple[Any, Any]: ...


class Wired(NamedTuple):
    """Something of the method's beside what the wire has to say: a state, a message down, or an update."""

    method: Any
    wire: Any

    @property
    def params(self) -> Params:
        """The shared model, of a server's state or a message down."""
        return self.method.params

    @property
    def round(self) -> Array:
        """The round, of a server's state."""
        return self.method.round


class Start(NamedTuple):
    """What a server knows before the first round, without any client's data."""

    server: Any
    """The server's state."""
    client: Any
    """The state of a client that has never taken part."""
    down: Any
    """The shapes of what is sent down."""
    ups: tuple[Any, ...]
    """The shapes of what each phase sends up."""


@dataclass(frozen=True)
class Round:
    """A method on an objective, with the keys of a run and what its updates go through."""

    algorithm: Algorithm
    objective: Objective
    keys: Keys
    wire: Channel | None = None
    participation: float = 1.0
    """The share of clients in a cohort."""

    @property
    def phases(self) -> tuple[Phase, ...]:
        """What happens between opening and closing, in this order and each with a cohort of its own."""
        return (Phase.REFRESH, Phase.WORK) if isinstance(self.algorithm, RefreshingAlgorithm) else (Phase.WORK,)

    def at(self, k: Array | int) -> "RoundAt":
        """Round ``k``."""
        return RoundAt(self, RoundKeys.of(self.keys, k))

    def start(self, params: Params, samples: ClientSamples) -> Start:
        """States and shapes from initial parameters and from samples of the shape that clients have."""
        server, client = self.algorithm.init_server(params), self.algorithm.init_client(params)
        bare = Round(self.algorithm, self.objective, self.keys, None, self.participation)
        _, ups = bare.shapes(server, client, samples)
        if self.wire is not None:
            server = Wired(server, self.wire.init_server(ups[-1]))
            client = Wired(client, self.wire.init_client(ups[-1]))
        down, ups = self.shapes(server, client, samples)
        return Start(server, client, down, ups)

    def shapes(self, server: Any, client: Any, samples: ClientSamples) -> tuple[Any, tuple[Any, ...]]:
        """The shapes of what is sent down, and of what each phase sends up."""

        def one_round(server: Any, client: Any) -> tuple[Any, tuple[Any, ...]]:
            now, number = self.at(jnp.zeros((), jnp.int32)), jnp.zeros((), jnp.int32)
            down = now.open(server)
            return down, tuple(now.work(phase, down, client, samples, number).up for phase in self.phases)

        down, ups = jax.eval_shape(one_round, server, client)
        return down, ups

    def of_method(self, value: Any) -> Any:
        """The method's own part of a server's or a client's state, or of a message down."""
        return value if self.wire is None else value.method

    def down_bytes(self, start: Start) -> int:
        """What one client is sent in a round."""
        return tree.nbytes(start.down)

    def up_bytes(self, start: Start) -> int:
        """What one client sends when it works, as the wire packs it."""
        up = start.ups[-1]
        return tree.nbytes(up) if self.wire is None else self.wire.payload_bytes(up.method)


class RoundKeys(NamedTuple):
    """The keys of one round."""

    server: Array
    work: Array
    refresh: Array
    work_cohort: Array
    refresh_cohort: Array
    sending: Array
    receiving: Array

    @classmethod
    def of(cls, keys: Keys, k: Array | int) -> "RoundKeys":
        """The keys of round ``k``; those that nothing asks for are not computed in a compiled program."""
        sending, receiving = (jax.random.fold_in(keys.wire, end) for end in range(2))
        return cls(
            server=round_key(keys.server, k),
            work=round_key(keys.client, k),
            refresh=round_key(keys.refresh, k),
            work_cohort=round_key(keys.cohort, k),
            refresh_cohort=round_key(keys.refresh_cohort, k),
            sending=round_key(sending, k),
            receiving=round_key(receiving, k),
        )


class RoundAt(NamedTuple):
    """One round."""

    round: Round
    keys: RoundKeys

    def open(self, server: Any) -> Any:
        """What the server sends to everyone who takes part."""
        wire = self.round.wire
        down = self.round.algorithm.broadcast(self.round.of_method(server), self.keys.server)
        return down if wire is None else Wired(down, wire.announce(server.wire))

    def cohort(self, phase: Phase, clients: int, size: int) -> Array:
        """Who takes part in a phase: ``size`` of ``clients``."""
        key = self.keys.work_cohort if phase is Phase.WORK else self.keys.refresh_cohort
        return draw_cohort(key, clients, size)

    def work(
        self,
        phase: Phase,
        down: Any,
        state: Any,
        samples: ClientSamples,
        client: Array | int,
        secret: Array | None = None,
    ) -> ClientResult:
        """What a client does, from what it was sent, its own state and samples, and its number alone.

        ``secret`` is a key that nobody else knows, for noise that is to hide a client from the server too.
        """
        wire, result = self.round.wire, self._local(phase, down, state, samples, client)
        if wire is None or phase is Phase.REFRESH:
            return result
        assert result.state is not None
        sent = wire.send(result.up, down.wire, state.wire, self._sending_key(client, secret))
        return result._replace(state=result.state._replace(wire=sent.own), up=Wired(sent.up, sent.note))

    def pack(
        self,
        phase: Phase,
        down: Any,
        state: Any,
        samples: ClientSamples,
        client: Array | int,
        secret: Array | None = None,
    ) -> ClientResult:
        """As ``work``, but what goes up is as it truly travels: packed, where the wire packs it."""
        wire, result = self.round.wire, self._local(phase, down, state, samples, client)
        if wire is None or phase is Phase.REFRESH:
            return result
        assert result.state is not None
        payload, sent = wire.encode(result.up, down.wire, state.wire, self._sending_key(client, secret))
        return result._replace(state=result.state._replace(wire=sent.own), up=payload)

    def unpack(self, phase: Phase, payload: Any, up: Any) -> Any:
        """What ``work`` sends up, from what ``pack`` does; ``up`` has its shapes."""
        wire = self.round.wire
        if wire is None or phase is Phase.REFRESH:
            return payload
        return Wired(*wire.decode(payload, up.method))

    def _local(self, phase: Phase, down: Any, state: Any, samples: ClientSamples, client: Array | int) -> ClientResult:
        """A client's work before anything happens to its update; where there is a wire, the state is with its part."""
        algorithm, objective, own = self.round.algorithm, self.round.objective, self.round.of_method(state)
        down = self.round.of_method(down)
        if phase is Phase.REFRESH:
            assert isinstance(algorithm, RefreshingAlgorithm)
            key = client_key(self.keys.refresh, client)
            result = algorithm.refresh(objective, down, own, samples, key, self.round.participation)
        else:
            result = algorithm.client_update(objective, down, own, samples, client_key(self.keys.work, client))
        if self.round.wire is None:
            return result
        return result._replace(state=Wired(own if result.state is None else result.state, state.wire))

    def _sending_key(self, client: Array | int, secret: Array | None) -> Array:
        return client_key(self.keys.sending, client) if secret is None else secret

    def combine(self, ups: Any, weights: Array) -> Any:
        """One update of many (leading axis); members of weight zero do not count, whatever they hold."""
        wire = self.round.wire
        share = weights / jnp.sum(weights)
        if wire is None or wire.aggregator is None or not isinstance(ups, Wired):
            return weighted(share, ups)
        return Wired(wire.aggregator.combine(ups.method, weights), weighted(share, ups.wire))

    def close(self, server: Any, means: tuple[Any, ...], members: Array | int) -> Any:
        """The server's next state, from what ``combine`` made of each phase's updates, ``members`` in each."""
        wire, algorithm = self.round.wire, self.round.algorithm
        mean, before = means[-1], self.round.of_method(server)
        if wire is None:
            return algorithm.server_update(before, mean if len(means) == 1 else means)
        mean, kept = wire.receive(server.wire, mean.method, mean.wire, members, self.keys.receiving)
        return Wired(algorithm.server_update(before, mean if len(means) == 1 else (*means[:-1], mean)), kept)


def weighted(share: Array, stacked: Any) -> Any:
    """``sum_i share[i] stacked[i]``, where zero times anything is zero: NaN, too."""
    return tree.weighted_sum(share, tree.where(share > 0, stacked, 0))
