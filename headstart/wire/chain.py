"""All parts of a wire in their order, as one."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import equinox as eqx
import jax
from jax import Array

from headstart.core import Weighting, tree
from headstart.errors import UsageError
from headstart.wire.compress import Compress
from headstart.wire.noise import GaussianMechanism
from headstart.wire.part import Aggregator, Sent, WirePart
from headstart.wire.payload import Payload, from_payload, to_payload
from headstart.wire.robust import Krum

__all__ = ["Wire", "check_wire"]


class Wire(eqx.Module):
    """What happens to updates on their way: parts from client to server, and how the server combines.

    Clients apply ``send`` of the parts in order. The server combines the cohort with ``aggregator`` (``None`` is the
    weighted mean, which drivers compute as they like) and applies ``receive`` in reverse order. Without parts nothing
    happens and nothing is computed.
    """

    parts: tuple[WirePart, ...] = ()
    aggregator: Aggregator | None = None
    delta: float | None = eqx.field(static=True, default=None)
    """The delta at which the privacy of noise is stated; ``None`` for ``default_delta`` of the number of clients."""

    def __check_init__(self) -> None:
        _check_delta(self.delta, self.mechanism())
        _check_compression_last(self.parts)
        _check_after_noise(self.parts)
        if self.aggregator is not None:
            _check_aggregator(self.aggregator, self.parts)

    def labels(self) -> tuple[tuple[str, str], ...]:
        """``(kind, name)`` of all that is on the wire."""
        found = tuple(label for part in self.parts for label in part.labels())
        return found if self.aggregator is None else (*found, (self.aggregator.kind, self.aggregator.name))

    def mechanism(self) -> GaussianMechanism | None:
        """The part that adds noise."""
        return next((part for part in self.parts if isinstance(part, GaussianMechanism)), None)

    def init_client(self, like: Any) -> tuple[Any, ...]:
        """What a client keeps before its first round."""
        return tuple(part.init_client(like) for part in self.parts)

    def init_server(self, like: Any) -> tuple[Any, ...]:
        """What the server keeps before the first round."""
        return tuple(part.init_server(like) for part in self.parts)

    def announce(self, server_state: tuple[Any, ...]) -> tuple[Any, ...]:
        """What goes down to the clients beside the model."""
        return tuple(part.announce(state) for part, state in zip(self.parts, server_state, strict=True))

    def send(self, up: Any, announced: tuple[Any, ...], own: tuple[Any, ...], key: Array) -> Sent:
        """At the client."""
        if not self.parts:
            return Sent(up, own)
        return _send(self.parts, up, announced, own, self._keys(key))

    def receive(
        self, server_state: tuple[Any, ...], mean: Any, note: tuple[Any, ...], members: Array | int, key: Array
    ) -> tuple[Any, tuple[Any, ...]]:
        """At the server, on the aggregate of ``members`` clients and the mean of their notes."""
        if not self.parts:
            return mean, server_state
        states = []
        steps = zip(self.parts, server_state, note, self._keys(key), strict=True)
        for part, state, note_, part_key in reversed(list(steps)):
            mean, state = part.receive(state, mean, note_, members, part_key)
            states.append(state)
        return mean, tuple(reversed(states))

    def payload_bytes(self, like: Any) -> int:
        """Bytes that one client sends."""
        total = tree.nbytes(like)
        for part in self.parts:
            total = part.payload_bytes(like, total)
        return total

    def encode(self, up: Any, announced: tuple[Any, ...], own: tuple[Any, ...], key: Array) -> tuple[Payload, Sent]:
        """What ``send`` gives, and the same as arrays by name for a driver that truly sends them, notes among them.

        The arrays take ``payload_bytes``.
        """
        last = self.parts[-1] if self.parts else None
        if not isinstance(last, Compress):
            sent = self.send(up, announced, own, key)
            return to_payload(sent.up, "up") | to_payload(sent.note, "note"), sent
        keys = self._keys(key)
        ahead = _send(self.parts[:-1], up, announced[:-1], own[:-1], keys[:-1])
        packed, sent = last.encode(ahead.up, own[-1], keys[-1])
        sent = Sent(sent.up, (*ahead.own, sent.own), (*ahead.note, sent.note))
        return packed | to_payload(sent.note, "note"), sent

    def decode(self, payload: Payload, like: Any) -> tuple[Any, Any]:
        """The update and the notes that ``encode`` was given; ``like`` is a template of the update."""
        told = self.announce(self.init_server(like))
        notes = jax.eval_shape(self.send, like, told, self.init_client(like), jax.random.key(0)).note
        last = self.parts[-1] if self.parts else None
        up = last.decode(payload, like) if isinstance(last, Compress) else from_payload(payload, like, "up")
        return up, from_payload(payload, notes, "note")

    def _keys(self, key: Array) -> list[Array]:
        return list(jax.random.split(key, len(self.parts)))


def _send(parts: Sequence[WirePart], up: Any, announced: Sequence[Any], own: Sequence[Any], keys: list[Array]) -> Sent:
    kept, notes = [], []
    for part, told, state, key in zip(parts, announced, own, keys, strict=True):
        up, state, note = part.send(up, told, state, key)
        kept.append(state)
        notes.append(note)
    return Sent(up, tuple(kept), tuple(notes))


AT_CLIENTS = 'add the noise at the clients (noise = { multiplier = ..., at = "client" })'


def _check_delta(delta: float | None, mechanism: GaussianMechanism | None) -> None:
    if delta is not None and mechanism is None:
        raise UsageError("delta says how the privacy of noise is stated, and there is no noise.", "Set noise too.")
    if delta is not None and not 0 < delta < 1:
        raise UsageError(f"delta = {delta} lies outside (0, 1).", "Give a small number, well below 1 / clients.")


def _check_compression_last(parts: tuple[WirePart, ...]) -> None:
    for part, after in pairwise(parts):
        if isinstance(part, Compress):
            raise UsageError(
                f"{_words(after)} cannot follow {_words(part)}: it would change numbers that are packed already.",
                "Put compression last.",
            )


def _check_after_noise(parts: tuple[WirePart, ...]) -> None:
    noised = [i for i, part in enumerate(parts) if isinstance(part, GaussianMechanism)]
    if len(noised) > 1:
        raise UsageError("The wire has noise twice; its privacy is accounted for once.", "Keep one of them.")
    for i in noised:
        part = parts[i]
        assert isinstance(part, GaussianMechanism)
        if part.noise.at == "client" and any(("compress", "top-k") in after.labels() for after in parts[i + 1 :]):
            raise UsageError(
                "compress = 'top-k' does not go with noise at the clients: the largest values of a noised update are "
                "the largest noise.",
                "Compress with quantize, or add the noise at the server and turn feedback off.",
            )
        for after in parts[i + 1 :] if part.noise.at == "server" else ():
            if (reason := after.may_lengthen()) is not None:
                raise UsageError(
                    f"{_words(after)} does not go with noise at the server: {reason}, "
                    "and the noise is measured by that norm.",
                    f"Leave one of them out, or {AT_CLIENTS}.",
                )


def _check_aggregator(aggregator: Aggregator, parts: tuple[WirePart, ...]) -> None:
    for part in parts:
        if isinstance(part, GaussianMechanism) and part.noise.at == "server":
            raise UsageError(
                f"aggregate = {aggregator.name!r} does not go with noise at the server: one client can move it by more "
                "than the clipping norm over the number of clients, so the noise would not hide a client.",
                f"Use the plain mean, or {AT_CLIENTS}.",
            )
        if ("compress", "top-k") in part.labels() and not isinstance(aggregator, Krum):
            raise UsageError(
                f"aggregate = {aggregator.name!r} does not go with top-k: where most clients send no value for a "
                "coordinate, its middle values are zeros and nothing is learnt.",
                "Compress with quantize, or aggregate with krum.",
            )


def _words(part: WirePart) -> str:
    return " and ".join(f"{kind} = {name!r}" for kind, name in part.labels())


def check_wire(wire: Wire, algorithm: str, refused: Mapping[str, str], weighting: Weighting, members: int) -> None:
    """Refuse what a method, a weighting or a cohort of ``members`` clients does not go with.

    ``refused`` are a method's refusals: reasons by the kind of a part (``"clip"``, ``"noise"``,
    ``"compress"``, ``"aggregate"``) or by its name (``"adaptive"``, ``"top-k"``, ``"krum"``, ...).
    """
    for kind, name in wire.labels():
        for label in (kind, name):
            if label in refused:
                raise UsageError(
                    f"{algorithm} does not go with {kind} = {name!r} on the wire: {refused[label]}",
                    f"Leave {kind} out of [wire], or choose another algorithm.",
                )
    if wire.mechanism() is not None and weighting != "uniform":
        raise UsageError(
            f"noise does not go with weighting = {weighting!r}: the number of a client's samples is private too, and "
            "a client with many of them moves the mean by more than the noise is made for.",
            'Set weighting = "uniform".',
        )
    if wire.aggregator is not None:
        wire.aggregator.check(weighting, members)
