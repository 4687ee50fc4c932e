"""Per-FedAvg: generalized meta-FL with one fine-tuning step."""

from headstart.algorithms.meta_fl import MetaFL
from headstart.core import Curvature, Optimizer, Size, StepSize, as_curvature

__all__ = ["per_fedavg"]


def per_fedavg(
    inner_lr: float = 0.01,
    outer_lr: StepSize = 0.001,
    local_steps: int = 4,
    curvature: Curvature | str = "exact",
    batch_size: Size = 40,
    inner_batch_size: Size | None = None,
    curvature_batch_size: Size | None = None,
    shared_batch: bool = False,
    reuse_batch: bool = False,
    random_iterate: bool = False,
    client_optimizer: Optimizer | None = None,
    keep_client_optimizer: bool = False,
    server_optimizer: Optimizer | None = None,
) -> MetaFL:
    r"""Train a model to be good after one gradient step on each client's own data.

    .. math::
        w^i_{t} = w^i_{t-1} - \beta \bigl(I - \alpha \nabla^2 f_i(w^i_{t-1}, D'')\bigr)
        \nabla f_i\bigl(w^i_{t-1} - \alpha \nabla f_i(w^i_{t-1}, D), D'\bigr)

    Symbols: ``inner_lr`` alpha, ``outer_lr`` beta, ``local_steps`` tau, ``inner_batch_size`` D, ``batch_size``
    D', ``curvature_batch_size`` D''. ``curvature`` is ``"exact"`` (8), ``"first-order"`` (112) or
    ``"hessian-free"`` (119)-(121).

    Fallah, Mokhtari and Ozdaglar 2020, Algorithm 1.

    >>> per_fedavg(local_steps=10, curvature="exact").cost()
    Cost(gradients=20, products=10, batches={40: 30})

    Deviations: none. ``shared_batch`` (one batch for D, D' and D'') is not the paper's, nor is ``reuse_batch``
    (every local step of a round looks at the same samples, as in the code released with wang), nor are optimisers,
    which are as in `MetaFL`.
    """
    return MetaFL(
        inner_steps=1,
        inner_lr=inner_lr,
        outer_lr=outer_lr,
        local_steps=local_steps,
        curvature=as_curvature(curvature),
        batch_size=batch_size,
        inner_batch_size=inner_batch_size,
        curvature_batch_size=curvature_batch_size,
        shared_batch=shared_batch,
        reuse_batch=reuse_batch,
        random_iterate=random_iterate,
        client_optimizer=client_optimizer,
        keep_client_optimizer=keep_client_optimizer,
        server_optimizer=server_optimizer,
    )
