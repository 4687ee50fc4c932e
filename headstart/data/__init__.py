"""Federations: where clients' samples come from and how they are drawn."""

from collections.abc import Callable

from headstart.data.clients import (
    Clients,
    ClientView,
    GeneratedClients,
    GroupedClients,
    IndexedClients,
    OnlineClients,
    Part,
)
from headstart.data.embedded import mnist_small, sine
from headstart.data.federation import Federation
from headstart.data.partition import Rows, two_groups

DATASETS: dict[str, Callable[..., Federation]] = {"mnist-small": mnist_small, "sine": sine}
"""Every federation a configuration can ask for, by name."""

__all__ = [
    "DATASETS",
    "ClientView",
    "Clients",
    "Federation",
    "GeneratedClients",
    "GroupedClients",
    "IndexedClients",
    "OnlineClients",
    "Part",
    "Rows",
    "mnist_small",
    "sine",
    "two_groups",
]
