"""FedAvg: generalized meta-FL with no fine-tuning step."""

from headstart.algorithms.meta_fl import MetaFL
from headstart.core import Optimizer, Size, StepSize

__all__ = ["fedavg"]


def fedavg(
    outer_lr: StepSize = 0.001,
    local_steps: int = 4,
    batch_size: Size = 40,
    inner_lr: float = 0.01,
    random_iterate: bool = False,
    client_optimizer: Optimizer | None = None,
    keep_client_optimizer: bool = False,
    server_optimizer: Optimizer | None = None,
) -> MetaFL:
    r"""Average the clients' models after ``local_steps`` steps of SGD.

    .. math:: w^i_{t} = w^i_{t-1} - \beta_k \nabla f_i(w^i_{t-1}, D), \qquad w_{k+1} = \text{mean}_i\, w^i_\tau

    Symbols: ``outer_lr`` beta, ``local_steps`` tau, ``batch_size`` D; ``inner_lr`` alpha is used only when a
    client personalizes, which is the papers' "FedAvg + update".

    McMahan et al. 2017, as fallah section 5 and jamali (nu = 0) use it.

    >>> fedavg(local_steps=10).cost()
    Cost(gradients=10, products=0, batches={40: 10})

    Deviations: none; clients count alike unless the run asks for weights by sample count. Optimisers are as in
    `MetaFL`.
    """
    return MetaFL(
        inner_steps=0,
        inner_lr=inner_lr,
        outer_lr=outer_lr,
        local_steps=local_steps,
        batch_size=batch_size,
        random_iterate=random_iterate,
        client_optimizer=client_optimizer,
        keep_client_optimizer=keep_client_optimizer,
        server_optimizer=server_optimizer,
    )
