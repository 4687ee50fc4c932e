"""What a benchmark is: our side and others that do the same work, and the bars that ours is held to."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

__all__ = ["LOOP", "OURS", "VMAP", "Bar", "Case", "Quantity", "Settings", "Side", "Suite"]

OURS, LOOP, VMAP = "headstart", "loop", "vmap"
"""Names of sides: ours, a plain PyTorch loop, and `torch.func.vmap`. Others are named by what they are."""

Quantity = Literal["share", "speedup", "ratio", "seconds", "bytes"]


@dataclass(frozen=True)
class Bar:
    """What a case is to reach."""

    quantity: Quantity
    """The share of the machine's matrix product; how many times faster than another side; our time as a part of
    another side's; seconds of a unit; peak memory."""
    limit: float
    against: str | None = None
    goal: float | None = None
    """What would be good, where the bar asks for less."""

    @property
    def at_least(self) -> bool:
        """Whether more is better."""
        return self.quantity in ("share", "speedup")

    def value(self, seconds: Mapping[str, float], share: float | None, peak_bytes: int | None) -> float | None:
        """What was reached; ``None`` where something was not measured."""
        ours, other = seconds.get(OURS), seconds.get(self.against or OURS)
        if self.quantity == "share":
            return share
        if self.quantity == "bytes":
            return peak_bytes
        if ours is None or other is None:
            return None
        return {"seconds": ours, "speedup": other / ours, "ratio": ours / other}[self.quantity]

    def holds(self, value: float | None) -> bool | None:
        """Whether that is enough."""
        if value is None:
            return None
        return value >= self.limit if self.at_least else value <= self.limit


class Side(NamedTuple):
    """Work that is ready to be measured."""

    run: Callable[[], object]
    units: float = 1
    """How many rounds, iterations or the like one call is."""
    flops: float | None = None
    """Of one unit: multiplications and additions of its matrix products."""


@dataclass(frozen=True)
class Case:
    """One workload: sides that take turns; each is made when the case is measured, ours first."""

    name: str
    unit: str
    """What times are of: a round, an iteration."""
    ours: Callable[[], Side]
    others: Mapping[str, Callable[[], Side]] = field(default_factory=dict)
    bars: tuple[Bar, ...] = ()
    once: bool = False
    """Whether it is measured a single time and cold, as a first round is."""


class Settings(NamedTuple):
    """How a suite is run."""

    quick: bool = False
    """Much smaller work, for trying the suite itself."""
    data: Path | None = None
    """The folder with real data; without it random data of the same shape is used."""
    repeats: int = 5
    patience: float = 30.0
    """How many seconds a case may wait for a quiet machine."""


class Suite(Protocol):
    """A module of `headstart.bench.suites`."""

    TITLE: str

    def cases(self, settings: Settings) -> Iterator[Case]:
        """Its workloads."""
        ...
