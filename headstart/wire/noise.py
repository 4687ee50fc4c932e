"""Gaussian noise on clipped updates, at the server or at each client."""

import math
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from headstart.core import checks
from headstart.errors import UsageError
from headstart.wire.clip import Clip, Clipping
from headstart.wire.part import Sent, WirePart
from headstart.wire.vector import add_noise, is_number

__all__ = ["GaussianMechanism", "Noise", "Where"]

Where = Literal["server", "client"]


class Noise(eqx.Module):
    """How much Gaussian noise, and who adds it.

    ``multiplier`` is its standard deviation in units of the clipping norm: on the sum of a cohort's updates, added once
    by a trusted server (central differential privacy), or on every client's own update, added by the client (local).
    """

    multiplier: Array | float
    at: Where = eqx.field(static=True, default="server")

    kind: ClassVar[str] = "noise"
    name: ClassVar[str] = "gaussian"

    def __check_init__(self) -> None:
        checks.at_least("noise.multiplier", self.multiplier, 0)
        if self.at not in ("server", "client"):
            raise UsageError(f"noise.at = {self.at!r} is not known.", "Choose 'server' or 'client'.")


class GaussianMechanism(WirePart):
    """Clipping with noise to match: one part, because noise protects only what has been bounded."""

    clip: Clipping
    noise: Noise

    kind: ClassVar[str] = "noise"
    name: ClassVar[str] = "gaussian"

    def __check_init__(self) -> None:
        self.clip.share_noise(self.noise.multiplier)
        norm = self.clip.norm if isinstance(self.clip, Clip) else 1.0
        if is_number(norm) and is_number(self.noise.multiplier) and math.isinf(norm) and self.noise.multiplier > 0:
            raise UsageError(
                "noise needs a finite clip: its deviation is a multiple of the clipping norm.",
                "Give clip a number, such as the median norm of an update, or leave noise out.",
            )

    def labels(self) -> tuple[tuple[str, str], ...]:
        return (*self.clip.labels(), (self.kind, self.name))

    def init_client(self, like: Any) -> Any:
        return self.clip.init_client(like)

    def init_server(self, like: Any) -> Any:
        return self.clip.init_server(like)

    def announce(self, server_state: Any) -> Any:
        return self.clip.announce(server_state)

    def send(self, up: Any, announced: Any, own: Any, key: Array) -> Sent:
        clip_key, noise_key = jax.random.split(key)
        sent = self.clip.send(up, announced, own, clip_key)
        if self.noise.at == "server":
            return sent
        up, note = self._noisy(sent.up, sent.note, self.clip.bound(announced), 1, noise_key)
        return Sent(up, sent.own, note)

    def receive(self, server_state: Any, mean: Any, note: Any, members: Array | int, key: Array) -> tuple[Any, Any]:
        clip_key, noise_key = jax.random.split(key)
        if self.noise.at == "server":
            norm = self.clip.bound(self.clip.announce(server_state))
            mean, note = self._noisy(mean, note, norm, members, noise_key)
        return self.clip.receive(server_state, mean, note, members, clip_key)

    def payload_bytes(self, like: Any, before: int) -> int:
        return self.clip.payload_bytes(like, before)

    def _noisy(self, up: Any, note: Any, norm: Array | float, members: Array | int, key: Array) -> tuple[Any, Any]:
        """The mean over ``members`` of updates and of notes whose sums carry the mechanism's noise."""
        up_key, note_key = jax.random.split(key)
        on_up, on_note = self.clip.share_noise(self.noise.multiplier)
        # Without noise the norm may be infinite, and 0 * inf is NaN.
        deviation = on_up * jnp.where(jnp.asarray(on_up) == 0, 1.0, norm)
        return add_noise(up, deviation / members, up_key), add_noise(note, on_note / members, note_key)
