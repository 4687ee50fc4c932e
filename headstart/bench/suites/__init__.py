"""The workloads, a module each; `SUITES` names them."""

from importlib import import_module
from typing import cast

from headstart.bench.cases import Suite
from headstart.errors import UsageError, did_you_mean

__all__ = ["SUITES", "suite"]

SUITES = (
    "sine", "mnist", "cifar10", "omniglot", "sweep", "evaluation", "clients", "memories", "shakespeare", "startup",
    "networks",
)  # fmt: skip


def suite(name: str) -> Suite:
    """The module of a suite."""
    if name not in SUITES:
        raise UsageError(f"There is no suite {name!r}.", did_you_mean(name, SUITES))
    return cast(Suite, import_module(f"headstart.bench.suites.{name}"))
