"""Where settings are searched: ranges that fit the scale of the loss, and points spread evenly over them."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from headstart.core import checks
from headstart.errors import UsageError

__all__ = ["Range", "around", "grid", "ranges_of", "searched_settings", "spread", "trains_without_adapting"]


@dataclass(frozen=True)
class Range:
    """An interval of numbers, searched by their logarithm or as they are."""

    low: float
    high: float
    log: bool = True
    whole: bool = False

    def __post_init__(self) -> None:
        checks.number("the lower end of a range", self.low)
        checks.number("the upper end of a range", self.high)
        if self.low > self.high or (self.log and self.low <= 0):
            raise UsageError(
                f"{self.low:g} to {self.high:g} is no range" + (" of logarithms." if self.log else "."),
                "Give a lower end, above 0 for logarithms, and a higher one.",
            )

    def at(self, share: float) -> float | int:
        """The number so far on the way from the lower end (0) to the upper one (1)."""
        if self.log:
            value = math.exp(math.log(self.low) + share * (math.log(self.high) - math.log(self.low)))
        else:
            value = self.low + share * (self.high - self.low)
        value = min(max(value, self.low), self.high)
        return round(value) if self.whole else float(f"{value:.4g}")

    def share(self, value: float) -> float:
        """How far a number is on the way from the lower end to the upper one: the inverse of ``at``."""
        low, high, place = (math.log(x) if self.log else x for x in (self.low, self.high, value))
        return (place - low) / (high - low) if high > low else 0.0


STEP = Range(0.01, 10.0)
"""A step size, as a multiple of 1 / smoothness. Gradient descent on a quadratic is stable up to 2; networks whose
curvature falls as they learn take more, and those whose curvature grows less."""
PULL = Range(0.001, 1.0)
"""The weight of a quadratic that pulls to the shared model, as a multiple of the smoothness."""
WEIGHT = Range(0.05, 1.0)
"""The weight of what is new in a running average."""
MIXING = Range(0.05, 1.0)
"""How far a server goes towards the mean of its clients."""

_STEPS = {"inner_lr": STEP, "outer_lr": STEP, "learning_rate": STEP, "initial_lr": STEP}
_PULLS = {"mu": PULL, "penalty": Range(0.1, 100.0)}
_PLAIN = {"averaging": WEIGHT, "momentum": WEIGHT}
_SPECIAL: Mapping[str, Mapping[str, Range]] = {
    "reptile": {"outer_lr": MIXING},
    "fedavgm": {"server_lr": Range(0.1, 3.0), "momentum": Range(0.3, 0.97, log=False)},
    "fedadagrad": {"server_lr": Range(1e-3, 0.3), "momentum": Range(0.0, 0.9, log=False)},
    "fedadam": {"server_lr": Range(1e-3, 0.3), "momentum": Range(0.0, 0.9, log=False)},
    "fedyogi": {"server_lr": Range(1e-3, 0.3), "momentum": Range(0.0, 0.9, log=False)},
    "local-only": {"own_steps": Range(10, 300, whole=True)},
}
"""Settings of one method that mean something else than others' of the name; server steps of adaptive methods are about
as long as a parameter may move in a round."""

_PLAIN_TRAINING = ("fedavg", "fedavgm", "fedadagrad", "fedadam", "fedyogi", "fedprox")
"""Methods that train without a step size of adaptation."""


def searched_settings(method: str, accepted: Iterable[str]) -> tuple[str, ...]:
    """The settings of a method that a search finds where nobody gives them."""
    known = {**_STEPS, **_PULLS, **_PLAIN, **_SPECIAL.get(method, {})}
    return tuple(name for name in accepted if name in known)


def trains_without_adapting(method: str) -> bool:
    """Whether ``inner_lr`` is a step size of adaptation only, which training does not look at."""
    return method in _PLAIN_TRAINING


def ranges_of(method: str, names: Iterable[str], smoothness: float) -> dict[str, Range]:
    """Where settings of a method are searched, on losses of a given smoothness."""
    steps = {name: Range(size.low / smoothness, size.high / smoothness) for name, size in _STEPS.items()}
    pulls = {name: Range(size.low * smoothness, size.high * smoothness) for name, size in _PULLS.items()}
    known = {**steps, **pulls, **_PLAIN, **_SPECIAL.get(method, {})}
    return {name: known[name] for name in names}


def spread(ranges: Mapping[str, Range], number: int) -> list[dict[str, float | int]]:
    """Points that cover a box evenly, however many there are: the additive recurrence of the generalised golden ratio.

    >>> spread({"outer_lr": Range(0.01, 1.0)}, 3)
    [{'outer_lr': 0.1}, {'outer_lr': 0.01722}, {'outer_lr': 0.2966}]
    """
    ratio = 2.0
    for _ in range(50):  # the root of x^(d + 1) = x + 1
        ratio = (1 + ratio) ** (1 / (len(ranges) + 1))
    strides = np.array([ratio ** -(axis + 1) for axis in range(len(ranges))])
    shares = (0.5 + np.outer(np.arange(number), strides)) % 1.0
    return [
        {name: size.at(float(share)) for (name, size), share in zip(ranges.items(), row, strict=True)} for row in shares
    ]


def around(
    ranges: Mapping[str, Range], point: Mapping[str, float | int], number: int, spread_over: int
) -> list[dict[str, float | int]]:
    """At most so many points beside one of ``spread_over`` that cover a box, halfway to where its neighbours are.

    >>> around({"outer_lr": Range(0.01, 1.0)}, {"outer_lr": 0.1}, 2, spread_over=10)
    [{'outer_lr': 0.07943}, {'outer_lr': 0.1259}]
    """
    way = spread_over ** (-1 / max(len(ranges), 1)) / 2
    found: list[dict[str, float | int]] = []
    for name, size in ranges.items():
        for share in (size.share(point[name]) - way, size.share(point[name]) + way):
            beside = {**point, name: size.at(min(max(share, 0.0), 1.0))}
            if beside != dict(point):
                found.append(beside)
    return found[:number]


def grid(ranges: Mapping[str, Range], number: int) -> list[dict[str, float | int]]:
    """A grid of about so many points, equally many along each side; both ends are among them.

    >>> [point["outer_lr"] for point in grid({"outer_lr": Range(0.01, 1.0)}, 3)]
    [0.01, 0.1, 1.0]
    """
    each = max(2, round(number ** (1 / max(len(ranges), 1))))
    axes = [sorted({size.at(i / (each - 1)) for i in range(each)}) for size in ranges.values()]
    places = np.stack(np.meshgrid(*[np.arange(len(axis)) for axis in axes], indexing="ij"), -1).reshape(-1, len(axes))
    return [{name: axis[place] for name, axis, place in zip(ranges, axes, row, strict=True)} for row in places.tolist()]
