"""The methods, one file each, and the names by which a configuration asks for them."""

from collections.abc import Callable
from typing import NamedTuple

from headstart.algorithms.aruba import Aruba
from headstart.algorithms.fedavg import fedavg
from headstart.algorithms.fedprox import FedProx
from headstart.algorithms.meta_fl import MetaFL
from headstart.algorithms.per_fedavg import per_fedavg
from headstart.algorithms.pfedme import PFedMe
from headstart.algorithms.reptile import Reptile
from headstart.core import Algorithm

__all__ = ["ALGORITHMS", "Aruba", "Entry", "FedProx", "MetaFL", "PFedMe", "Reptile", "fedavg", "per_fedavg"]


class Entry(NamedTuple):
    """A method in the catalogue: what builds it, and where it was published."""

    build: Callable[..., Algorithm]
    paper: str


ALGORITHMS: dict[str, Entry] = {
    "fedavg": Entry(fedavg, "McMahan et al. 2017"),
    "fedprox": Entry(FedProx, "Li et al. 2020"),
    "per-fedavg": Entry(per_fedavg, "Fallah et al. 2020"),
    "meta-fl": Entry(MetaFL, "Jamali et al. 2025"),
    "pfedme": Entry(PFedMe, "T. Dinh et al. 2020"),
    "aruba": Entry(Aruba, "Khodak et al. 2019"),
    "reptile": Entry(Reptile, "Nichol et al. 2018"),
}
"""Every method by name."""
