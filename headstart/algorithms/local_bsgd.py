"""Local-BSGD: Local-SCGDM with neither memory nor momentum; on a plain loss, Local-MAML."""

from headstart.algorithms.local_scgdm import LocalSCGDM
from headstart.core import Curvature, Optimizer, Size, StepSize, as_curvature

__all__ = ["local_bsgd"]


def local_bsgd(
    outer_lr: StepSize = 0.01,
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
    r"""Descend a function of an expectation by the gradient on a batch, which is biased.

    .. math::
        x_{t+1} = x_t - \beta\, \nabla g(x_t; \xi_t)^\top \nabla f(g(x_t; \xi_t); \zeta_t)

    on every client; every p iterations x is averaged. Nothing else is kept or sent. The bias does not go away with more
    steps, only with larger batches :math:`\xi`. Of several tasks in a step, each has its own g.

    Symbols: ``outer_lr`` beta, ``local_steps`` p, ``inner_lr`` lambda, ``inner_batch_size`` xi, ``batch_size`` zeta.

    Huang, Li and Huang 2021 (ComFedL), which gao section 5 calls Local-BSGD and, on a plain loss, Local-MAML:
    Local-SCGDM with alpha eta = gamma eta = 1.

    >>> local_bsgd(local_steps=5, batch_size=10).cost()
    Cost(gradients=10, products=5, batches={10: 10})

    Deviations: none. Per-FedAvg is the same on a plain loss with a batch of its own for the Hessian.
    """
    return LocalSCGDM(
        outer_lr=outer_lr,
        averaging=None,
        momentum=None,
        local_steps=local_steps,
        inner_lr=inner_lr,
        curvature=as_curvature(curvature),
        batch_size=batch_size,
        inner_batch_size=inner_batch_size,
        separate_states=True,
        tasks_per_client=tasks_per_client,
        tasks_per_step=tasks_per_step,
        client_optimizer=client_optimizer,
        keep_client_optimizer=keep_client_optimizer,
        server_optimizer=server_optimizer,
    )
