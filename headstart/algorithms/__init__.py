"""The methods, one file each, and the names by which a configuration asks for them."""

from collections.abc import Callable
from typing import NamedTuple

from headstart.algorithms.aruba import Aruba
from headstart.algorithms.bspiderboost import BSpiderBoost
from headstart.algorithms.fedavg import fedavg
from headstart.algorithms.fedopt import fedadagrad, fedadam, fedavgm, fedyogi
from headstart.algorithms.fedprox import FedProx
from headstart.algorithms.local_bsgd import local_bsgd
from headstart.algorithms.local_moml import LocalMOML
from headstart.algorithms.local_only import LocalOnly
from headstart.algorithms.local_scgd import local_scgd
from headstart.algorithms.local_scgdm import LocalSCGDM
from headstart.algorithms.maml import maml
from headstart.algorithms.meta_fl import MetaFL
from headstart.algorithms.moml import MOML
from headstart.algorithms.moml_v2 import MOMLv2
from headstart.algorithms.nasa import NASA
from headstart.algorithms.per_fedavg import per_fedavg
from headstart.algorithms.pfedme import PFedMe
from headstart.algorithms.protonet import ProtoNet
from headstart.algorithms.reptile import Reptile
from headstart.algorithms.scgd import scgd
from headstart.core import Algorithm

__all__ = [
    "ALGORITHMS",
    "MOML",
    "NASA",
    "Aruba",
    "BSpiderBoost",
    "Entry",
    "FedProx",
    "LocalMOML",
    "LocalOnly",
    "LocalSCGDM",
    "MOMLv2",
    "MetaFL",
    "PFedMe",
    "ProtoNet",
    "Reptile",
    "fedadagrad",
    "fedadam",
    "fedavg",
    "fedavgm",
    "fedyogi",
    "local_bsgd",
    "local_scgd",
    "maml",
    "per_fedavg",
    "scgd",
]


class Entry(NamedTuple):
    """A method in the catalogue: what builds it, and where it was published."""

    build: Callable[..., Algorithm]
    paper: str


ALGORITHMS: dict[str, Entry] = {
    "fedavg": Entry(fedavg, "McMahan et al. 2017"),
    "fedavgm": Entry(fedavgm, "Hsu et al. 2019"),
    "fedadagrad": Entry(fedadagrad, "Reddi et al. 2021"),
    "fedadam": Entry(fedadam, "Reddi et al. 2021"),
    "fedyogi": Entry(fedyogi, "Reddi et al. 2021"),
    "fedprox": Entry(FedProx, "Li et al. 2020"),
    "per-fedavg": Entry(per_fedavg, "Fallah et al. 2020"),
    "meta-fl": Entry(MetaFL, "Jamali et al. 2025"),
    "pfedme": Entry(PFedMe, "T. Dinh et al. 2020"),
    "aruba": Entry(Aruba, "Khodak et al. 2019"),
    "reptile": Entry(Reptile, "Nichol et al. 2018"),
    "maml": Entry(maml, "Finn et al. 2017"),
    "bspiderboost": Entry(BSpiderBoost, "Hu et al. 2020"),
    "scgd": Entry(scgd, "Wang et al. 2017"),
    "nasa": Entry(NASA, "Ghadimi et al. 2020"),
    "moml": Entry(MOML, "Wang et al. 2023"),
    "moml-v2": Entry(MOMLv2, "Wang et al. 2023"),
    "local-moml": Entry(LocalMOML, "Wang et al. 2023"),
    "local-scgdm": Entry(LocalSCGDM, "Gao et al. 2022"),
    "local-scgd": Entry(local_scgd, "Wang et al. 2017"),
    "local-bsgd": Entry(local_bsgd, "Huang et al. 2021"),
    "protonet": Entry(ProtoNet, "Snell et al. 2017"),
    "local-only": Entry(LocalOnly, "baseline"),
}
"""Every method by name."""
