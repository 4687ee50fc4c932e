"""The sections [adapt] and [tune]: how each method's clients adapt, and what is left to a search."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from headstart.config import plan
from headstart.core import checks
from headstart.errors import UsageError, did_you_mean
from headstart.simulate import Evaluation

__all__ = ["Adapting", "Searching", "adapt_section", "tune_section"]


@dataclass(frozen=True)
class Adapting:
    """One method's part of ``[adapt]``: by how many steps of which size clients make the shared model their own."""

    steps: int = 1
    inner_lr: float | None = None
    """The method's own unless given."""

    def __post_init__(self) -> None:
        checks.whole("adapt.steps", self.steps, 0)
        if self.inner_lr is not None:
            checks.at_least("adapt.inner_lr", self.inner_lr, 0)


@dataclass(frozen=True)
class Searching:
    """The section ``[tune]``: which settings of which method are found by a search before the run."""

    over: Mapping[str, tuple[str, ...]]
    """Names of settings, by the methods' names; of a method without any, only how to adapt is chosen."""
    steps: tuple[int, ...] | None = None
    """Numbers of adaptation steps to choose from; left out, none to 300."""

    @property
    def table(self) -> dict[str, Any]:
        """As a file has it."""
        steps = {} if self.steps is None else {"steps": list(self.steps)}
        return {"over": {label: list(names) for label, names in self.over.items()}, **steps}


def adapt_section(tables: Mapping[str, Any], methods: Iterable[str]) -> dict[str, Adapting]:
    """Check ``[adapt]``."""
    known, found = list(methods), {}
    for label, table in tables.get("adapt", {}).items():
        if label not in known:
            raise UsageError(f"adapt.{label}: there is no such method.", did_you_mean(label, known))
        if not isinstance(table, Mapping):
            raise UsageError(f"adapt.{label} = {table!r} is not a section.", f"Write it as [adapt.{label}].")
        found[label] = plan(Adapting, table, f"adapt.{label}").build()
    return found


def tune_section(tables: Mapping[str, Any], methods: Mapping[str, Iterable[str]]) -> Searching | None:
    """Check ``[tune]``; ``methods`` are all of them with the settings that each one has."""
    if "tune" not in tables:
        return None
    table = dict(tables["tune"])
    over, steps = table.pop("over", {}), table.pop("steps", None)
    if table:
        raise UsageError(
            f"tune.{next(iter(table))} is not a setting.", did_you_mean(next(iter(table)), ["over", "steps"])
        )
    if not isinstance(over, Mapping):
        raise UsageError(f"tune.over = {over!r} is not a section.", "Write tune.over.METHOD = [names of settings].")
    for label, names in over.items():
        if label not in methods:
            raise UsageError(f"tune.over.{label}: there is no such method.", did_you_mean(label, methods))
        if not isinstance(names, (list, tuple)):
            raise UsageError(f"tune.over.{label} = {names!r} is no list.", "List names of settings.")
        for name in names:
            if name not in methods[label]:
                raise UsageError(
                    f"tune.over.{label}: {name} is not a setting.", did_you_mean(str(name), methods[label])
                )
    if steps is not None:
        steps = plan(Evaluation, {"steps": steps}, "tune").build().steps
    return Searching({label: tuple(names) for label, names in over.items()}, steps)
