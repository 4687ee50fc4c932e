"""Federations: where clients' samples come from and how they are drawn."""

from headstart.data.embedded import mnist_small, sine
from headstart.data.federation import Clients, ClientView, Federation, GeneratedClients, IndexedClients, Part
from headstart.data.partition import Rows, two_groups

__all__ = [
    "ClientView",
    "Clients",
    "Federation",
    "GeneratedClients",
    "IndexedClients",
    "Part",
    "Rows",
    "mnist_small",
    "sine",
    "two_groups",
]
