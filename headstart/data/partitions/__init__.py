"""Ways to deal samples out to clients, and what came of it."""

from headstart.config import register
from headstart.data.partitions.dirichlet_mixtures import DirichletMixtures
from headstart.data.partitions.few_shot import Alphabets, DisjointTasks
from headstart.data.partitions.natural import Natural, SmallClients
from headstart.data.partitions.partition import Partition, Partitioner, drawn_away
from headstart.data.partitions.rotations import Rotations
from headstart.data.partitions.shards import Shards
from headstart.data.partitions.sizes import IID, QuantitySkew
from headstart.data.partitions.summary import PartitionSummary, Spread, describe
from headstart.data.partitions.two_groups import TwoGroups

PARTITIONS: dict[str, type[Partitioner]] = {
    "alphabets": Alphabets,
    "dirichlet-mixtures": DirichletMixtures,
    "disjoint-tasks": DisjointTasks,
    "iid": IID,
    "natural": Natural,
    "quantity-skew": QuantitySkew,
    "rotations": Rotations,
    "shards": Shards,
    "two-groups": TwoGroups,
}
"""Every partition a configuration can ask for, by name."""

__all__ = [
    "IID",
    "PARTITIONS",
    "Alphabets",
    "DirichletMixtures",
    "DisjointTasks",
    "Natural",
    "Partition",
    "PartitionSummary",
    "Partitioner",
    "QuantitySkew",
    "Rotations",
    "Shards",
    "SmallClients",
    "Spread",
    "TwoGroups",
    "describe",
    "drawn_away",
]

register(Partitioner, PARTITIONS)
