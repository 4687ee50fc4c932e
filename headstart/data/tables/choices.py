"""What can be asked for when data is brought along."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

from headstart.data.tables.fitting import Standardize
from headstart.data.tables.labels import Kind
from headstart.errors import UsageError, did_you_mean

__all__ = ["Choices", "Options"]


class Options(TypedDict, total=False):
    """What every way to bring data takes; `Choices` says what each is."""

    features: Sequence[str] | None
    kind: Kind
    group: str | None
    order: str | None
    test_share: float
    held_out: int | float | None
    validation: int | float | None
    standardize: Standardize
    min_samples: int | None
    shots: int | None
    drop_missing: bool
    seed: int


@dataclass(frozen=True)
class Choices:
    """How one's own data is read, split and scaled."""

    features: Sequence[str] | None = None
    """The columns to predict from; left out, all that are nothing else."""
    kind: Kind = "auto"
    """Texts, booleans and few whole numbers are classes; other numbers are targets of a regression."""
    group: str | None = None
    """A column whose groups of rows stay together, either for training or for tests."""
    order: str | None = None
    """A column of times or numbers: each client's last rows are for tests."""
    test_share: float = 0.2
    """The share of each client's rows that its adapted model is scored on."""
    held_out: int | float | None = None
    """How many clients, or which share of them, never train: 0.3 unless given, and 0.2 of fewer than 10 clients."""
    validation: int | float | None = None
    """How many of these, or which share of all clients, are for choosing settings: a third of those held out unless
    given, and none of fewer than 10 clients. The others that never train are new, and are what is reported."""
    standardize: Standardize = "federation"
    """Numbers to mean 0 and deviation 1, with those of all training rows or of the client's own."""
    min_samples: int | None = None
    """Clients with fewer rows are left out; ``None`` refuses clients that cannot be split instead."""
    shots: int | None = None
    """Clients that are scored adapt on so many training rows of each class; ``None`` for all."""
    drop_missing: bool = False
    """Leave rows without client or label out, rather than refuse them."""
    seed: int = 0
    """Which rows are for tests and who is held out."""

    def __post_init__(self) -> None:
        for name, options in {"kind": Kind, "standardize": Standardize}.items():
            value, known = getattr(self, name), options.__args__  # type: ignore[attr-defined]
            if value not in known:
                raise UsageError(f"{name} = {value!r} is not known.", did_you_mean(str(value), known))
