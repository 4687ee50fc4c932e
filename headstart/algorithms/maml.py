"""MAML on tasks: generalized meta-FL with one local step."""

from headstart.algorithms.meta_fl import MetaFL
from headstart.core import Curvature, Optimizer, Size, StepSize, as_curvature

__all__ = ["maml"]


def maml(
    inner_lr: float = 0.01,
    outer_lr: StepSize = 0.001,
    inner_steps: int = 1,
    curvature: Curvature | str = "exact",
    batch_size: Size = 10,
    inner_batch_size: Size | tuple[int, ...] | None = None,
    curvature_batch_size: Size | tuple[int, ...] | None = None,
    shared_batch: bool = False,
    server_optimizer: Optimizer | None = None,
) -> MetaFL:
    r"""Step along the mean meta-gradient of a batch of tasks. Hu et al. call it BSGD.

    .. math::
        w_{t+1} = w_t - \eta_t\, \text{mean}_{i \in B_t} \bigl(I - \alpha \nabla^2 \mathcal L_i(w_t, S_2)\bigr)
        \nabla \mathcal L_i\bigl(w_t - \alpha \nabla \mathcal L_i(w_t, S_1), S_3\bigr)

    A client is a task and a round is one step: the mean of the tasks' models after one step is one step along the
    mean gradient. With a few samples a task the gradient is biased, and its norm stalls at a floor.

    Symbols: ``inner_lr`` alpha, ``outer_lr`` eta, ``inner_steps`` 1 in the formula, ``inner_batch_size`` S_1,
    ``curvature_batch_size`` S_2, ``batch_size`` S_3.

    Finn, Abbeel and Levine 2017, Algorithm 1; wang (2); Hu, Zhang, Chen and He 2020, Algorithm 1 (BSGD).

    >>> maml(batch_size=1).cost()
    Cost(gradients=2, products=1, batches={1: 3})

    Deviations: none. ``shared_batch`` (one batch for S_1, S_2 and S_3) is not wang's (2). A ``server_optimizer`` is
    given minus the step, so ``outer_lr = 1`` gives it the meta-gradient itself.
    """
    return MetaFL(
        inner_steps=inner_steps,
        inner_lr=inner_lr,
        outer_lr=outer_lr,
        local_steps=1,
        curvature=as_curvature(curvature),
        batch_size=batch_size,
        inner_batch_size=inner_batch_size,
        curvature_batch_size=curvature_batch_size,
        shared_batch=shared_batch,
        server_optimizer=server_optimizer,
    )
