"""headstart: one shared model that gives every client a head start.

Personalized federated learning by meta-learning: the published algorithms, a simulator that runs whole rounds
as one compiled program, and a record that resumes bit for bit.
"""

from importlib.metadata import version

from headstart import data, models
from headstart.algorithms import (
    ALGORITHMS,
    MOML,
    NASA,
    SCGD,
    Aruba,
    BSpiderBoost,
    FedProx,
    LocalMOML,
    LocalOnly,
    LocalSCGDM,
    MetaFL,
    MOMLv2,
    PFedMe,
    ProtoNet,
    Reptile,
    fedavg,
    local_bsgd,
    local_scgd,
    maml,
    per_fedavg,
)
from headstart.core import Diminishing, Exact, FirstOrder, HessianFree, StepDecay
from headstart.data import Federation
from headstart.devices import use_cpu_devices
from headstart.errors import HeadstartError, UsageError
from headstart.models import MLP, Conv, EquinoxModel, NNXModel
from headstart.problems import Classification, CompositionalProblem, CustomProblem, Examples, Prototypes, Regression
from headstart.simulate import Evaluation, Result, Simulation, load_run, train

__version__ = version("headstart")

__all__ = [
    "ALGORITHMS",
    "MLP",
    "MOML",
    "NASA",
    "SCGD",
    "Aruba",
    "BSpiderBoost",
    "Classification",
    "CompositionalProblem",
    "Conv",
    "CustomProblem",
    "Diminishing",
    "EquinoxModel",
    "Evaluation",
    "Exact",
    "Examples",
    "FedProx",
    "Federation",
    "FirstOrder",
    "HeadstartError",
    "HessianFree",
    "LocalMOML",
    "LocalOnly",
    "LocalSCGDM",
    "MOMLv2",
    "MetaFL",
    "NNXModel",
    "PFedMe",
    "ProtoNet",
    "Prototypes",
    "Regression",
    "Reptile",
    "Result",
    "Simulation",
    "StepDecay",
    "UsageError",
    "__version__",
    "data",
    "fedavg",
    "load_run",
    "local_bsgd",
    "local_scgd",
    "maml",
    "models",
    "per_fedavg",
    "train",
    "use_cpu_devices",
]
