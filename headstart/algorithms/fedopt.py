"""Adaptive federated optimisation: FedAvg whose server moves with momentum or with adaptive step sizes."""

from collections.abc import Mapping

from headstart.algorithms.fedavg import fedavg
from headstart.algorithms.meta_fl import MetaFL
from headstart.core import Size, StepSize, as_optimizer

__all__ = ["fedadagrad", "fedadam", "fedavgm", "fedyogi"]


def fedavgm(
    server_lr: StepSize = 1.0,
    momentum: float = 0.9,
    outer_lr: StepSize = 0.001,
    local_steps: int = 4,
    batch_size: Size = 40,
    inner_lr: float = 0.01,
) -> MetaFL:
    r"""FedAvg with momentum at the server.

    .. math:: v_{k+1} = \mu v_k + \text{mean}_i\, w^i_\tau - w_k, \qquad w_{k+1} = w_k + \eta\, v_{k+1}

    Symbols: ``server_lr`` eta, ``momentum`` mu (Hsu's beta), ``outer_lr`` the clients' step size; the others are
    `fedavg`'s. ``momentum = 0, server_lr = 1`` is FedAvg.

    Hsu, Qi and Brown 2019, section 4.3. As a setting of any method: ``server_optimizer = { name = "sgd",
    learning_rate = 1.0, momentum = 0.9 }``.

    >>> fedavgm(local_steps=10).cost()
    Cost(gradients=10, products=0, batches={40: 10})

    Deviations: the server has a step size of its own; the paper's is 1.
    """
    return _fedavg(
        {"name": "sgd", "learning_rate": server_lr, "momentum": momentum}, outer_lr, local_steps, batch_size, inner_lr
    )


def fedadagrad(
    server_lr: StepSize = 0.01,
    momentum: float = 0.0,
    tau: float = 1e-3,
    outer_lr: StepSize = 0.001,
    local_steps: int = 4,
    batch_size: Size = 40,
    inner_lr: float = 0.01,
) -> MetaFL:
    r"""FedAvg whose server divides by the root of the summed squares of its moves.

    .. math::
        m_k = \beta_1 m_{k-1} + (1 - \beta_1) \Delta_k, \qquad v_k = v_{k-1} + \Delta_k^2, \qquad
        w_{k+1} = w_k + \eta\, m_k / (\sqrt{v_k} + \tau), \qquad \Delta_k = \text{mean}_i\, w^i_\tau - w_k

    Symbols: ``server_lr`` eta, ``momentum`` beta_1, ``tau`` tau, ``outer_lr`` the clients' step size; the others are
    `fedavg`'s.

    Reddi et al. 2021, Algorithm 2.

    >>> fedadagrad(local_steps=10).cost()
    Cost(gradients=10, products=0, batches={40: 10})

    Deviations: none; :math:`v_{-1} = \tau^2`, the least that the paper allows.
    """
    settings = {"name": "fedadagrad", "learning_rate": server_lr, "b1": momentum, "tau": tau}
    return _fedavg(settings, outer_lr, local_steps, batch_size, inner_lr)


def fedadam(
    server_lr: StepSize = 0.01,
    momentum: float = 0.9,
    averaging: float = 0.99,
    tau: float = 1e-3,
    outer_lr: StepSize = 0.001,
    local_steps: int = 4,
    batch_size: Size = 40,
    inner_lr: float = 0.01,
) -> MetaFL:
    r"""FedAvg whose server divides by the root of the mean square of its moves.

    As `fedadagrad`, with :math:`v_k = \beta_2 v_{k-1} + (1 - \beta_2) \Delta_k^2`.

    Symbols: ``averaging`` beta_2; the others are `fedadagrad`'s.

    Reddi et al. 2021, Algorithm 2.

    >>> fedadam(local_steps=10).cost()
    Cost(gradients=10, products=0, batches={40: 10})

    Deviations: none. Optax's Adam (``server_optimizer = { name = "adam", ... }``) also corrects the first steps' bias.
    """
    settings = {"name": "fedadam", "learning_rate": server_lr, "b1": momentum, "b2": averaging, "tau": tau}
    return _fedavg(settings, outer_lr, local_steps, batch_size, inner_lr)


def fedyogi(
    server_lr: StepSize = 0.01,
    momentum: float = 0.9,
    averaging: float = 0.99,
    tau: float = 1e-3,
    outer_lr: StepSize = 0.001,
    local_steps: int = 4,
    batch_size: Size = 40,
    inner_lr: float = 0.01,
) -> MetaFL:
    r"""FedAvg whose server divides by a mean square of its moves that changes slowly.

    As `fedadagrad`, with :math:`v_k = v_{k-1} - (1 - \beta_2) \Delta_k^2\, \text{sign}(v_{k-1} - \Delta_k^2)`.

    Symbols: ``averaging`` beta_2; the others are `fedadagrad`'s.

    Reddi et al. 2021, Algorithm 2.

    >>> fedyogi(local_steps=10).cost()
    Cost(gradients=10, products=0, batches={40: 10})

    Deviations: none.
    """
    settings = {"name": "fedyogi", "learning_rate": server_lr, "b1": momentum, "b2": averaging, "tau": tau}
    return _fedavg(settings, outer_lr, local_steps, batch_size, inner_lr)


def _fedavg(
    server: Mapping[str, object], outer_lr: StepSize, local_steps: int, batch_size: Size, inner_lr: float
) -> MetaFL:
    return fedavg(outer_lr, local_steps, batch_size, inner_lr, server_optimizer=as_optimizer(server))
