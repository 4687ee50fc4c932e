"""headstart: one shared model that gives every client a head start.

Personalized federated learning by meta-learning: the published algorithms, a simulator that runs whole rounds
as one compiled program, and a record that resumes bit for bit.
"""

from importlib.metadata import version

from headstart import data, models
from headstart.algorithms import ALGORITHMS, Aruba, FedProx, MetaFL, PFedMe, Reptile, fedavg, per_fedavg
from headstart.core import Diminishing, Exact, FirstOrder, HessianFree, StepDecay
from headstart.data import Federation
from headstart.errors import HeadstartError, UsageError
from headstart.models import MLP, EquinoxModel, NNXModel
from headstart.problems import Classification, CustomProblem, Examples, Regression
from headstart.simulate import Evaluation, Result, Simulation, load_run, train

__version__ = version("headstart")

__all__ = [
    "ALGORITHMS",
    "MLP",
    "Aruba",
    "Classification",
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
    "MetaFL",
    "NNXModel",
    "PFedMe",
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
    "models",
    "per_fedavg",
    "train",
]
