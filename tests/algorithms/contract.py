"""Every method once in each of its forms.

Every row goes through the tests of cost, hyperparameters, backends, optimisers, wire and the round. A method of the
catalogue that is not listed has one row all the same, with small numbers for those settings that most methods have.
"""

import inspect

import jax.numpy as jnp

import headstart as hs
from headstart.algorithms import (
    ALGORITHMS,
    MOML,
    NASA,
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
    scgd,
)
from headstart.core import Diminishing, StepDecay
from tests import toy

_LOCAL = {"local_steps": 2, "batch_size": 4}
_META = {"inner_lr": 0.2, "outer_lr": 0.1, **_LOCAL}
_ONE_STEP = _META | {"local_steps": 1}
_TASKS = {"inner_lr": 0.2, "outer_lr": 0.1, "batch_size": 4}

CONTRACT = {
    "fedavg": fedavg(outer_lr=0.1, **_LOCAL),
    "fedprox": FedProx(mu=0.5, outer_lr=0.1, **_LOCAL),
    "per-fedavg, exact": per_fedavg(curvature="exact", **_META),
    "per-fedavg, first-order": per_fedavg(curvature="first-order", **_META),
    "per-fedavg, hessian-free": per_fedavg(curvature="hessian-free", **_META),
    "per-fedavg, shared batch": per_fedavg(shared_batch=True, **_META),
    "per-fedavg, reused batch": per_fedavg(reuse_batch=True, **_META),
    "meta-fl, exact": MetaFL(inner_steps=2, random_iterate=True, **(_META | {"outer_lr": StepDecay(0.1, (1,))})),
    "meta-fl, first-order": MetaFL(
        inner_steps=3, curvature="first-order", **(_ONE_STEP | {"outer_lr": Diminishing(0.2, local_steps=1)})
    ),
    "meta-fl, hessian-free": MetaFL(
        inner_steps=2, curvature="hessian-free", inner_batch_size=(2, 3), curvature_batch_size=(1, 5), **_ONE_STEP
    ),
    "pfedme": PFedMe(penalty=2.0, inner_steps=3, inner_lr=0.1, outer_lr=0.1, server_mixing=0.8, **_LOCAL),
    "pfedme, reused batch": PFedMe(penalty=2.0, inner_steps=2, outer_lr=0.1, reuse_batch=True, **_LOCAL),
    "aruba": Aruba(initial_lr=0.1, **_LOCAL),
    "reptile": Reptile(inner_lr=0.1, outer_lr=0.5, **_LOCAL),
    "local-scgdm": LocalSCGDM(averaging=0.7, momentum=0.8, **_META),
    "local-scgdm, hessian-free": LocalSCGDM(
        scale=0.5, averaging=0.9, momentum=1.2, curvature="hessian-free", inner_batch_size=3, **_META
    ),
    "local-scgdm, separate states": LocalSCGDM(averaging=0.7, momentum=0.8, separate_states=True, **_META),
    "local-scgd": local_scgd(averaging=0.7, **_META),
    "local-bsgd": local_bsgd(**_META),
    "maml": maml(**_TASKS),
    "bspiderboost": BSpiderBoost(period=2, large_batch_size=5, **_TASKS),
    "scgd": scgd(averaging=0.7, **_TASKS),
    "nasa": NASA(averaging=0.7, momentum=0.6, **_TASKS),
    "moml": MOML(averaging=0.7, inner_batch_size=3, curvature_batch_size=2, **_TASKS),
    "moml, first-order": MOML(averaging=0.7, curvature="first-order", shared_batch=True, **_TASKS),
    "moml-v2": MOMLv2(averaging=0.3, inner_batch_size=3, curvature_batch_size=2, **_TASKS),
    "moml-v2, gradient-lipschitz": MOMLv2(smoothness=0.5, hessian_lipschitz=0.4, **(_TASKS | {"outer_lr": 0.5})),
    "local-moml, cross-device": LocalMOML(averaging=0.7, memory_batch_size=5, **_META),
    "local-moml, cross-silo": LocalMOML(averaging=0.7, keep_memory=True, **_META),
    "local-moml, reused batch": LocalMOML(averaging=0.7, memory_batch_size=5, reuse_batch=True, **_META),
    "local-only": LocalOnly(learning_rate=0.1, own_steps=3, batch_size=4),
    "protonet": ProtoNet(outer_lr=0.1, batch_size=4, inner_batch_size=3),
}


def _with_usual_settings(build):
    taken = inspect.signature(build).parameters
    return build(**{name: value for name, value in _META.items() if name in taken})


_LISTED = {name.split(",")[0] for name in CONTRACT}
CONTRACT |= {name: _with_usual_settings(entry.build) for name, entry in ALGORITHMS.items() if name not in _LISTED}

_PROTOTYPES = hs.Prototypes(hs.MLP(inputs=toy.FEATURES, outputs=2, hidden=(4,), activation="tanh"), ways=2)


def _with_classes(batch):
    """The toy's labels -1 and 1 as classes 0 and 1."""
    return hs.Examples(batch.x, (batch.y > 0).astype(jnp.int32))


def setting(name):
    """The problem and the federation that a row is tested on."""
    if name == "protonet":
        return _PROTOTYPES, toy.federation(transform=_with_classes)
    return toy.LOGISTIC, toy.federation()
