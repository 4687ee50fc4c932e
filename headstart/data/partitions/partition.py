"""A partition: who has which samples, and how it came about."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from headstart.core import checks
from headstart.data.episodes import Episodes
from headstart.data.federation import Federation
from headstart.data.rows import RowLists
from headstart.data.samples import Samples
from headstart.errors import UsageError

__all__ = ["Partition", "Partitioner", "drawn_away"]


@dataclass(frozen=True, eq=False)
class Partition:
    """Each client's rows of some samples. The last ``held_out`` clients never train.

    The first ``validation`` of these are for choosing settings and rounds; those after them are new to everybody.
    """

    samples: Samples
    train: RowLists
    query: RowLists
    """What a client's adapted model is scored on."""
    support: RowLists | None = None
    """What a client adapts on when it is scored; its training rows unless given."""
    names: Sequence[str] | None = None
    held_out: int = 0
    notes: tuple[str, ...] = ()
    """What the partitioner did that the reader of a table should know."""
    episodes: Episodes | None = None
    """How few-shot tasks are drawn from a client's training rows, where that is what clients have."""
    validation: int = 0

    def __len__(self) -> int:
        return len(self.train)

    def holding_out(self, held_out: int | float, seed: int, validation: int | float = 0) -> "Partition":
        """The same with a number or share of the clients held out, chosen by the seed and moved to the end.

        ``validation`` is the number, or the share of all clients, that are for validation among those held out. Who is
        held out does not depend on it.
        """
        choosing, new = drawn_away(len(self), held_out, seed, validation)
        # Whoever is moved, the others keep their order; with the first ones gone, those behind them have moved up.
        dealt = self
        for last in (choosing, new - np.searchsorted(choosing, new)):
            dealt = dealt._with_last(last) if last.size else dealt
        return replace(dealt, held_out=len(choosing) + len(new), validation=len(choosing))

    def _with_last(self, clients: np.ndarray) -> "Partition":
        """The same with some clients (increasing numbers) behind all others."""
        order = np.concatenate([np.setdiff1d(np.arange(len(self)), clients), clients])
        return replace(
            self,
            train=self.train.moved_last(clients),
            query=self.query.moved_last(clients),
            support=None if self.support is None else self.support.moved_last(clients),
            names=None if self.names is None else [self.names[i] for i in order],
        )

    def federation(self) -> Federation:
        """The clients, ready for training."""
        options: dict[str, Any] = {"held_out": self.held_out, "names": self.names}
        if self.episodes is not None:
            federation = Federation.from_episodes(self.samples, self.train, self.episodes, **options)
        else:
            federation = Federation.from_samples(self.samples, self.train, self.query, self.support, **options)
        return replace(federation, partition=self, validation=self.validation)


def drawn_away(
    total: int, held_out: int | float, seed: int, validation: int | float = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Which of so many clients never train, drawn by the seed: those for validation, and those new to everybody."""
    held_out, validation = _number("held_out", held_out, total), _number("validation", validation, total)
    if held_out >= total:
        raise UsageError(f"held_out = {held_out} of {total} clients leaves none to train.", "Hold out fewer.")
    if validation > held_out:
        raise UsageError(
            f"validation = {validation}, but held_out = {held_out} clients never train.",
            "Hold out more clients, or take fewer of them for validation.",
        )
    drawn = np.random.default_rng(seed).permutation(total)[:held_out]
    return np.sort(drawn[:validation]), np.sort(drawn[validation:])


def _number(name: str, asked: int | float, total: int) -> int:
    """A number of clients, from a number or a share of them all."""
    if isinstance(asked, float):
        if not 0 <= asked < 1:
            raise UsageError(f"{name} = {asked} is not a share.", "Give a share in [0, 1) or a whole number.")
        asked = round(asked * total)
    checks.whole(name, asked, 0)
    return asked


class Partitioner(ABC):
    """A way to deal samples out to clients. Subclasses are frozen dataclasses, so that files can ask for them.

    The same samples and seed give every client the same samples, in whatever order the rows came.
    """

    @abstractmethod
    def __call__(self, samples: Samples, seed: int) -> Partition:
        """Deal the samples out."""
