"""A wire from names and tables, as a configuration's ``[wire]`` section has them, or from objects."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from math import isinf
from typing import Any, TypeVar

from headstart.errors import UsageError, did_you_mean
from headstart.wire.chain import Wire
from headstart.wire.clip import AdaptiveClip, Clip, Clipping
from headstart.wire.compress import Compress, Compression, Quantize, TopK
from headstart.wire.noise import GaussianMechanism, Noise
from headstart.wire.part import Aggregator, WirePart
from headstart.wire.robust import CoordinateMedian, Krum, TrimmedMean
from headstart.wire.vector import is_number

__all__ = ["AGGREGATORS", "CLIPS", "COMPRESSIONS", "NOISES", "wire"]

CLIPS: dict[str, Callable[..., Clipping]] = {"fixed": Clip, "adaptive": AdaptiveClip}
NOISES: dict[str, Callable[..., Noise]] = {"gaussian": Noise}
COMPRESSIONS: dict[str, Callable[..., Compression]] = {"quantize": Quantize, "top-k": TopK}
AGGREGATORS: dict[str, Callable[..., Aggregator]] = {
    "median": CoordinateMedian,
    "trimmed-mean": TrimmedMean,
    "krum": Krum,
}

Part = TypeVar("Part")


def wire(
    clip: float | str | Mapping[str, Any] | Clipping | None = None,
    noise: float | str | Mapping[str, Any] | Noise | None = None,
    compress: str | Mapping[str, Any] | Compression | Sequence[str | Mapping[str, Any] | Compression] | None = None,
    aggregate: str | Mapping[str, Any] | Aggregator | None = None,
    delta: float | None = None,
) -> Wire:
    """A wire, always in this order: clip, noise at the clients, compress, aggregate, noise at the server.

    Every part is an object, a name, or a table with a name and settings. What does nothing, noise of multiplier 0 and
    clipping at infinity, is left out: a run with it is to the bit the run without.

    Args:
        clip: A part, or a number: the largest L2 norm of a client's whole update, ``inf`` for none.
        noise: A part, or a number: the multiplier of Gaussian noise at the server. Its table needs no name.
        compress: One compression, or several of which each works on the values that the one before it left.
        aggregate: What takes the place of the mean.
        delta: The delta at which the privacy of the noise is stated.

    >>> wire(clip=1.0, compress={"name": "quantize", "bits": 4}).labels()
    (('clip', 'fixed'), ('compress', 'quantize'))
    """
    parts: list[WirePart] = []
    clipping = None if clip is None else _part("clip", clip, Clipping, CLIPS, Clip)
    noising = None if noise is None else _part("noise", noise, Noise, NOISES, Noise)
    silent = noising is not None and is_number(noising.multiplier) and noising.multiplier == 0
    if noising is not None and not silent:
        if clipping is None:
            raise UsageError(
                "noise needs a clip: its deviation is a multiple of the clipping norm, and without a bound on what "
                "one client can change no noise hides it.",
                "Set clip, for instance to the median norm of an update, or { name = 'adaptive', initial = 1.0 }.",
            )
        parts.append(GaussianMechanism(clipping, noising))
    elif clipping is not None and not _clips_nothing(clipping):
        parts.append(clipping)
    stages = compress if isinstance(compress, (list, tuple)) else [] if compress is None else [compress]
    if stages:
        parts.append(Compress(tuple(_part("compress", stage, Compression, COMPRESSIONS) for stage in stages)))
    aggregator = None if aggregate is None else _part("aggregate", aggregate, Aggregator, AGGREGATORS)
    return Wire(tuple(parts), aggregator, None if silent else delta)


def _clips_nothing(clipping: Clipping) -> bool:
    return isinstance(clipping, Clip) and is_number(clipping.norm) and isinf(clipping.norm)


def _part(
    key: str,
    choice: Any,
    kind: type,
    registry: Mapping[str, Callable[..., Part]],
    of_number: Callable[[Any], Part] | None = None,
) -> Part:
    """An instance as it is; otherwise what a name, a table or a number stands for."""
    if kind in type(choice).__mro__:
        return choice
    if not isinstance(choice, (str, Mapping)):
        if of_number is None:
            raise UsageError(f"{key} = {choice!r} is not known.", f"Choose one of: {', '.join(registry)}.")
        return of_number(choice)
    table = {"name": choice} if isinstance(choice, str) else dict(choice)
    name = table.pop("name", next(iter(registry)) if len(registry) == 1 else None)
    if not isinstance(name, str) or name not in registry:
        raise UsageError(f"{key} = {name!r} is not known.", did_you_mean(str(name), registry))
    settings = inspect.signature(registry[name]).parameters
    for setting in table:
        if setting not in settings:
            raise UsageError(f"{key}.{setting} is not a setting of {name!r}.", did_you_mean(setting, settings))
    for setting, parameter in settings.items():
        if parameter.default is inspect.Parameter.empty and setting not in table:
            raise UsageError(f"{key}.{setting} is missing.", f"Write {{ name = {name!r}, {setting} = ... }}.")
    return registry[name](**table)
