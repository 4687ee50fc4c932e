"""Local-SCGD: Local-SCGDM without momentum."""

from headstart.algorithms.local_scgdm import LocalSCGDM
from headstart.core import Curvature, Optimizer, Size, StepSize, as_curvature

__all__ = ["local_scgd"]


def local_scgd(
    outer_lr: StepSize = 0.01,
    averaging: float = 0.9,
    local_steps: int = 5,
    inner_lr: float = 0.01,
    curvature: Curvature | str = "exact",
    batch_size: Size = 40,
    inner_batch_size: Size | None = None,
    tasks_per_client: int = 1,
    tasks_per_step: int = 1,
    client_optimizer: Optimizer | None = None,
    keep_client_optimizer: bool = False,
    server_optimizer: Optimizer | None = None,
) -> LocalSCGDM:
    r"""Descend a function of an expectation with a running average of its inner value.

    .. math::
        u_{t+1} = (1 - \gamma) u_t + \gamma\, g(x_t; \xi_t), \qquad
        x_{t+1} = x_t - \beta\, \nabla g(x_t; \xi_t)^\top \nabla f(u_{t+1}; \zeta_t)

    on every client; every p iterations x and u are averaged.

    Symbols: ``outer_lr`` beta, ``averaging`` gamma, ``local_steps`` p, ``inner_lr`` lambda, ``inner_batch_size`` xi,
    ``batch_size`` zeta.

    Wang, Fang and Liu 2017 (SCGD), made federated as gao section 5.1 does: Local-SCGDM with alpha eta = 1.

    >>> local_scgd(local_steps=5, batch_size=10).cost()
    Cost(gradients=10, products=5, batches={10: 10})

    Deviations: f is evaluated at the new u, as in gao's Algorithm 1; gao (2) evaluates it at the old one.
    """
    return LocalSCGDM(
        outer_lr=outer_lr,
        averaging=averaging,
        momentum=None,
        local_steps=local_steps,
        inner_lr=inner_lr,
        curvature=as_curvature(curvature),
        batch_size=batch_size,
        inner_batch_size=inner_batch_size,
        tasks_per_client=tasks_per_client,
        tasks_per_step=tasks_per_step,
        client_optimizer=client_optimizer,
        keep_client_optimizer=keep_client_optimizer,
        server_optimizer=server_optimizer,
    )
