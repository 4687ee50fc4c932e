"""Every method once in each of its forms: a new method is one row here.

Every row goes through the cost, hyperparameter and backend tests.
"""

from headstart.algorithms import Aruba, FedProx, MetaFL, PFedMe, Reptile, fedavg, per_fedavg
from headstart.core import Diminishing, StepDecay

_LOCAL = {"local_steps": 2, "batch_size": 4}
_META = {"inner_lr": 0.2, "outer_lr": 0.1, **_LOCAL}
_ONE_STEP = _META | {"local_steps": 1}

CONTRACT = {
    "fedavg": fedavg(outer_lr=0.1, **_LOCAL),
    "fedprox": FedProx(mu=0.5, outer_lr=0.1, **_LOCAL),
    "per-fedavg, exact": per_fedavg(curvature="exact", **_META),
    "per-fedavg, first-order": per_fedavg(curvature="first-order", **_META),
    "per-fedavg, hessian-free": per_fedavg(curvature="hessian-free", **_META),
    "per-fedavg, shared batch": per_fedavg(shared_batch=True, **_META),
    "meta-fl, exact": MetaFL(inner_steps=2, random_iterate=True, **(_META | {"outer_lr": StepDecay(0.1, (1,))})),
    "meta-fl, first-order": MetaFL(
        inner_steps=3, curvature="first-order", **(_ONE_STEP | {"outer_lr": Diminishing(0.2, local_steps=1)})
    ),
    "meta-fl, hessian-free": MetaFL(
        inner_steps=2, curvature="hessian-free", inner_batch_size=(2, 3), curvature_batch_size=(1, 5), **_ONE_STEP
    ),
    "pfedme": PFedMe(penalty=2.0, inner_steps=3, inner_lr=0.1, outer_lr=0.1, server_mixing=0.8, **_LOCAL),
    "aruba": Aruba(initial_lr=0.1, **_LOCAL),
    "reptile": Reptile(inner_lr=0.1, outer_lr=0.5, **_LOCAL),
}
