"""Batch sizes to try, and which of the plans that reach epsilon is taken."""

from collections.abc import Iterable
from typing import Protocol, TypeVar

from headstart.core import FULL, Size
from headstart.theory.planner.plans import Circumstances

__all__ = ["NOISELESS", "batch_sizes", "best", "cost_of", "size_of"]

NOISELESS = 2**60
"""What the formulas are given for a full batch: its noise is as good as zero."""
LARGEST_BATCH = 2**30
"""The largest that is tried where clients have endless samples."""
SPARED = 2
"""How many times the fewest samples a plan may draw to need fewer rounds."""


def batch_sizes(circumstances: Circumstances) -> list[int]:
    """Powers of two, up to those that hold all samples of a client, and then `NOISELESS`."""
    most = circumstances.most_samples
    below = LARGEST_BATCH + 1 if most is None else most
    sizes = [2**power for power in range(LARGEST_BATCH.bit_length()) if 2**power < below]
    return sizes if most is None else [*sizes, NOISELESS]


def size_of(batch: int, circumstances: Circumstances) -> Size:
    """A batch as a setting: as many samples as a client has are ``"full"``."""
    most = circumstances.most_samples
    return FULL if most is not None and batch >= most else batch


def cost_of(batch: int, circumstances: Circumstances) -> int:
    """The samples that a batch costs a client."""
    most = circumstances.most_samples
    return batch if most is None else min(batch, most)


class _Priced(Protocol):
    """Something with a cost in samples and in rounds."""

    @property
    def samples(self) -> int: ...

    @property
    def rounds(self) -> int: ...


Choice = TypeVar("Choice", bound=_Priced)


def best(runs: Iterable[Choice]) -> Choice | None:
    """Of the runs with at most twice the fewest samples the one with the fewest rounds.

    Fewest samples alone would always mean one local step, as more only save communication; fewest rounds alone would
    mean full batches.
    """
    runs = list(runs)
    if not runs:
        return None
    affordable = SPARED * min(run.samples for run in runs)
    return min((run for run in runs if run.samples <= affordable), key=lambda run: (run.rounds, run.samples))
