"""The other side: the same arithmetic in plain PyTorch, as an autograd loop and by `torch.func`."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn import functional as F

__all__ = [
    "BY_AUTOGRAD", "BY_FUNCTION", "CLASSIFIER", "REGRESSOR", "Batch", "Calculus", "Loss", "Params", "averaged",
    "descend", "local_step", "mixed", "parameters", "stacked", "to_torch",
]  # fmt: skip

Params = Sequence[torch.Tensor]
Batch = tuple[torch.Tensor, torch.Tensor]
Loss = Callable[[Params, Batch], torch.Tensor]


def perceptron(activation: Callable[..., torch.Tensor], last: Callable[..., torch.Tensor]) -> Loss:
    """The loss of a perceptron whose parameters are weight, bias, weight, bias, ..."""

    def loss(params: Params, batch: Batch) -> torch.Tensor:
        x, y = batch
        for i in range(0, len(params) - 2, 2):
            x = activation(F.linear(x, params[i], params[i + 1]))
        return last(F.linear(x, params[-2], params[-1]), y)

    return loss


CLASSIFIER = perceptron(F.elu, F.cross_entropy)
REGRESSOR = perceptron(F.relu, F.mse_loss)


def descend(w: Params, lr: float, direction: Params) -> list[torch.Tensor]:
    """``w - lr * direction``."""
    return [a - lr * b for a, b in zip(w, direction, strict=True)]


def mixed(u: Params, v: Params, share: float) -> list[torch.Tensor]:
    """``(1 - share) u + share v``."""
    return [(1 - share) * a + share * b for a, b in zip(u, v, strict=True)]


def averaged(each: Sequence[Params]) -> list[torch.Tensor]:
    """The mean of several clients' parameters."""
    return [sum(same[1:], same[0]) / len(each) for same in zip(*each, strict=True)]


def stacked(w: Params, clients: int) -> list[torch.Tensor]:
    """The same parameters for each of some clients, along a leading axis."""
    return [a.expand(clients, *a.shape).contiguous() for a in w]


class Calculus(NamedTuple):
    """How derivatives are taken."""

    gradient: Callable[[Loss, Params, Batch], Params]
    product: Callable[[Loss, Params, Params, Batch], Params]
    """A Hessian-vector product."""

    def pull(self, loss: Loss, w: Params, v: Params, batch: Batch, alpha: float, radius: float | None) -> Params:
        """``(I - alpha H) v``, exact or by a central difference."""
        if radius is None:
            return descend(v, alpha, self.product(loss, w, v, batch))
        ahead = self.gradient(loss, descend(w, -radius, v), batch)
        behind = self.gradient(loss, descend(w, radius, v), batch)
        return [a - alpha / (2 * radius) * (p - m) for a, p, m in zip(v, ahead, behind, strict=True)]


def _gradient_by_autograd(loss: Loss, params: Params, batch: Batch) -> Params:
    leaves = [p.detach().requires_grad_() for p in params]
    return torch.autograd.grad(loss(leaves, batch), leaves)


def _product_by_autograd(loss: Loss, params: Params, v: Params, batch: Batch) -> Params:
    leaves = [p.detach().requires_grad_() for p in params]
    first = torch.autograd.grad(loss(leaves, batch), leaves, create_graph=True)
    return torch.autograd.grad(first, leaves, v)


def _gradient_by_function(loss: Loss, params: Params, batch: Batch) -> Params:
    found: Params = torch.func.grad(loss)(list(params), batch)
    return found


def _product_by_function(loss: Loss, params: Params, v: Params, batch: Batch) -> Params:
    # A Hessian is symmetric, so this is the product; the jvp of a gradient fails where a tangent is known to be zero.
    pulled: Any = torch.func.vjp(lambda w: torch.func.grad(loss)(w, batch), list(params))
    found: Params = pulled[1](list(v))[0]
    return found


BY_AUTOGRAD = Calculus(_gradient_by_autograd, _product_by_autograd)
BY_FUNCTION = Calculus(_gradient_by_function, _product_by_function)
"""What `torch.func.vmap` can map over clients."""


def local_step(
    calculus: Calculus,
    loss: Loss,
    w: Params,
    batches: Sequence[Batch],
    inner_steps: int,
    alpha: float,
    beta: float,
    curvature: str,
    radius: float = 1e-3,
) -> list[torch.Tensor]:
    """A local step of FedAvg, Per-FedAvg or nu-step meta-learning; a batch for every derivative, the last is judged."""
    given, path = iter(batches), [w]
    for _ in range(inner_steps):
        path.append(descend(path[-1], alpha, calculus.gradient(loss, path[-1], next(given))))
    v = calculus.gradient(loss, path[-1], next(given))
    if curvature != "first-order":
        for at in reversed(path[:-1]):
            v = calculus.pull(loss, at, v, next(given), alpha, radius if curvature == "hessian-free" else None)
    return descend(w, beta, v)


def parameters(model: Any) -> list[torch.Tensor]:
    """The parameters of one of our perceptrons."""
    return [
        torch.from_numpy(np.array(array, order="C"))
        for layer in model.layers
        for array in (np.asarray(layer.weight), np.asarray(layer.bias))
    ]


def to_torch(batch: Any) -> Batch:
    """One of our batches."""
    x, y = np.array(batch.x), np.array(batch.y)
    return torch.from_numpy(x), torch.from_numpy(y.astype(np.int64) if y.dtype.kind == "i" else y)
