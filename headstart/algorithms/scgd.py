"""SCGD: MOML v1 with every task in every step."""

from headstart.algorithms.moml import MOML
from headstart.core import Curvature, Optimizer, Size, StepSize, as_curvature

__all__ = ["scgd"]


def scgd(
    inner_lr: float = 0.01,
    outer_lr: StepSize = 0.001,
    averaging: float = 0.5,
    curvature: Curvature | str = "exact",
    batch_size: Size = 10,
    inner_batch_size: Size | None = None,
    curvature_batch_size: Size | None = None,
    shared_batch: bool = False,
    server_optimizer: Optimizer | None = None,
) -> MOML:
    r"""Descend on :math:`f(\mathbb E\, g)` with a running average in place of the inner expectation.

    .. math::
        y^i_{k+1} = (1 - \beta) y^i_k + \beta\, g_i(x_k, S_1), \qquad
        x_{k+1} = x_k - \alpha_k\, \text{mean}_i\, \nabla g_i(x_k, S_2)^\top \nabla f_i(y^i_{k+1}, S_3)

    with :math:`g_i(x, S) = x - \lambda \nabla \mathcal L_i(x, S)` and :math:`f_i = \mathcal L_i`: the vector of all
    tasks' adapted models is the inner function, so every task takes part in every step.

    Symbols: ``inner_lr`` lambda, ``outer_lr`` alpha_k, ``averaging`` beta_k, ``inner_batch_size`` S_1,
    ``curvature_batch_size`` S_2, ``batch_size`` S_3.

    Wang, Fang and Liu 2017, Algorithm 1, applied to meta-learning as wang section 2 says. It is MOML v1 on all tasks.

    >>> scgd(batch_size=3).cost()
    Cost(gradients=2, products=1, batches={3: 3})

    Deviations: g and its Jacobian are drawn with batches of their own, as wang does; the paper takes both from one
    sample. The paper's projection onto a feasible set is left out. A memory begins with the first adapted model.
    """
    return MOML(
        inner_lr=inner_lr,
        outer_lr=outer_lr,
        averaging=averaging,
        curvature=as_curvature(curvature),
        batch_size=batch_size,
        inner_batch_size=inner_batch_size,
        curvature_batch_size=curvature_batch_size,
        shared_batch=shared_batch,
        server_optimizer=server_optimizer,
        every_task=True,
    )
