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

__all__ = ["Partition", "Partitioner"]


@dataclass(frozen=True, eq=False)
class Partition:
    """Each client's rows of some samples. The last ``held_out`` clients never train."""

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

    def __len__(self) -> int:
        return len(self.train)

    def holding_out(self, held_out: int | float, seed: int) -> "Partition":
        """The same with a number or share of the clients held out, chosen by the seed and moved to the end."""
        total = len(self)
        if isinstance(held_out, float):
            if not 0 <= held_out < 1:
                raise UsageError(f"held_out = {held_out} is not a share.", "Give a share in [0, 1) or a whole number.")
            held_out = round(held_out * total)
        checks.whole("held_out", held_out, 0)
        if held_out >= total:
            raise UsageError(f"held_out = {held_out} of {total} clients leaves none to train.", "Hold out fewer.")
        # Whoever is held out, the others keep their order.
        away = np.sort(np.random.default_rng(seed).permutation(total)[:held_out])
        order = np.concatenate([np.setdiff1d(np.arange(total), away), away])
        return replace(
            self,
            train=self.train.moved_last(away),
            query=self.query.moved_last(away),
            support=None if self.support is None else self.support.moved_last(away),
            names=None if self.names is None else [self.names[i] for i in order],
            held_out=held_out,
        )

    def federation(self) -> Federation:
        """The clients, ready for training."""
        options: dict[str, Any] = {"held_out": self.held_out, "names": self.names}
        if self.episodes is not None:
            federation = Federation.from_episodes(self.samples, self.train, self.episodes, **options)
        else:
            federation = Federation.from_samples(self.samples, self.train, self.query, self.support, **options)
        return replace(federation, partition=self)


class Partitioner(ABC):
    """A way to deal samples out to clients. Subclasses are frozen dataclasses, so that files can ask for them.

    The same samples and seed give every client the same samples, in whatever order the rows came.
    """

    @abstractmethod
    def __call__(self, samples: Samples, seed: int) -> Partition:
        """Deal the samples out."""
