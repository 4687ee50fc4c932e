"""Clipping: no client moves the shared model by more than a given norm."""

import math
from abc import abstractmethod
from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array

from headstart.core import checks
from headstart.errors import UsageError
from headstart.wire.part import Sent, WirePart
from headstart.wire.vector import clipped, is_number

__all__ = ["AdaptiveClip", "Clip", "Clipping"]


class Clipping(WirePart):
    """A bound on the L2 norm of a client's whole update."""

    kind: ClassVar[str] = "clip"

    @abstractmethod
    def bound(self, announced: Any) -> Array | float:
        """The norm of this round."""

    @abstractmethod
    def share_noise(self, multiplier: Array | float) -> tuple[Array | float, Array | float]:
        """Noise multipliers of the update and of the note that together cost what ``multiplier`` costs alone."""


class Clip(Clipping):
    """``up * min(1, norm / ||up||)``, with one L2 norm for all leaves together. ``norm`` may be infinite."""

    norm: Array | float

    name: ClassVar[str] = "fixed"

    def __check_init__(self) -> None:
        if not (isinstance(self.norm, float) and math.isinf(self.norm) and self.norm > 0):
            checks.positive("clip", self.norm)

    def may_lengthen(self) -> None:
        return None

    def bound(self, announced: Any) -> Array | float:
        return self.norm

    def share_noise(self, multiplier: Array | float) -> tuple[Array | float, Array | float]:
        return multiplier, 0.0

    def send(self, up: Any, announced: Any, own: Any, key: Array) -> Sent:
        return Sent(clipped(up, self.norm)[0], own)


BIT_SHARE = 0.1
"""The part of the privacy budget (of ``multiplier ** -2``) that the bits take unless ``bit_noise`` says otherwise."""


class AdaptiveClip(Clipping):
    r"""Clipping at a quantile of the clients' norms, which the server tracks.

    .. math:: C \leftarrow C \exp(-\eta (\bar b - \gamma)), \qquad b_i = 1[\lVert up_i \rVert \le C]

    Symbols: ``initial`` C before the first round, ``quantile`` gamma, ``rate`` eta, ``bit_noise`` sigma_b, the standard
    deviation of the noise on the sum of the bits. Each client sends its bit beside its update.

    With noise of multiplier z on the wire the bits are noised too, and the update's multiplier is raised to
    ``(z^-2 - (2 sigma_b)^-2)^(-1/2)``, so that both together cost what z costs alone. Left out, ``bit_noise`` is
    chosen such that the bits take a tenth of the budget. Without noise on the wire it has no effect.

    Andrew et al. 2021, Algorithm 1 and Theorem 1.
    """

    initial: Array | float
    quantile: Array | float = 0.5
    rate: Array | float = 0.2
    bit_noise: Array | float | None = None

    name: ClassVar[str] = "adaptive"

    def __check_init__(self) -> None:
        checks.positive("initial", self.initial)
        checks.in_unit_interval("quantile", self.quantile)
        checks.positive("rate", self.rate)
        if self.bit_noise is not None:
            checks.positive("bit_noise", self.bit_noise)

    def may_lengthen(self) -> None:
        return None

    def bound(self, announced: Array) -> Array:
        return announced

    def share_noise(self, multiplier: Array | float) -> tuple[Array | float, Array | float]:
        if self.bit_noise is None:
            return multiplier / math.sqrt(1 - BIT_SHARE), multiplier / (2 * math.sqrt(BIT_SHARE))
        if is_number(multiplier) and is_number(self.bit_noise) and multiplier >= 2 * self.bit_noise:
            raise UsageError(
                f"clip.bit_noise = {self.bit_noise:g} is too little for noise of multiplier {multiplier:g}: "
                "the clients' bits alone would cost more privacy than that.",
                f"Give bit_noise more than {multiplier / 2:g}, or leave it out.",
            )
        return multiplier / (1 - (multiplier / (2 * self.bit_noise)) ** 2) ** 0.5, self.bit_noise

    def init_server(self, like: Any) -> Array:
        return jnp.asarray(self.initial, jnp.float32)

    def announce(self, server_state: Array) -> Array:
        return server_state

    def send(self, up: Any, announced: Array, own: Any, key: Array) -> Sent:
        shortened, within = clipped(up, announced)
        return Sent(shortened, own, within.astype(jnp.float32))

    def receive(
        self, server_state: Array, mean: Any, note: Array, members: Array | int, key: Array
    ) -> tuple[Any, Array]:
        return mean, server_state * jnp.exp(-self.rate * (note - self.quantile)).astype(server_state.dtype)

    def payload_bytes(self, like: Any, before: int) -> int:
        return before + 4
