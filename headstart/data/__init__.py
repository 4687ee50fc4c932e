"""Federations: where clients' samples come from, how they are dealt out, and how they are drawn."""

from headstart.data import partitions, sources
from headstart.data.clients import (
    Clients,
    ClientView,
    GeneratedClients,
    GroupedClients,
    IndexedClients,
    OnlineClients,
    Part,
)
from headstart.data.datasets import DATASETS, cifar10, cifar100, fashion_mnist, har, mnist, omniglot, own, shakespeare
from headstart.data.embedded import mnist_small, sine
from headstart.data.episodes import EpisodeClients, Episodes
from headstart.data.federation import Federation
from headstart.data.mapped import MappedClients
from headstart.data.named import NamedData, list_data, prepare
from headstart.data.rows import RowLists
from headstart.data.samples import Samples
from headstart.data.shared import SharedClients, share_of, shared_clients
from headstart.data.tables import arrays, folder, images, open_data, partitioned, prepared, table
from headstart.data.waves import WaveTasks, waves

__all__ = [
    "DATASETS",
    "ClientView",
    "Clients",
    "EpisodeClients",
    "Episodes",
    "Federation",
    "GeneratedClients",
    "GroupedClients",
    "IndexedClients",
    "MappedClients",
    "NamedData",
    "OnlineClients",
    "Part",
    "RowLists",
    "Samples",
    "SharedClients",
    "WaveTasks",
    "arrays",
    "cifar10",
    "cifar100",
    "fashion_mnist",
    "folder",
    "har",
    "images",
    "list_data",
    "mnist",
    "mnist_small",
    "omniglot",
    "open_data",
    "own",
    "partitioned",
    "partitions",
    "prepare",
    "prepared",
    "shakespeare",
    "share_of",
    "shared_clients",
    "sine",
    "sources",
    "table",
    "waves",
]
