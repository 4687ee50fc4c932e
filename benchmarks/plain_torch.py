"""The other side: the same arithmetic as a plain PyTorch autograd loop, client by client and step by step."""

from collections.abc import Callable, Sequence

import numpy as np

try:
    import torch
    from torch.nn import functional as F
except ImportError as error:
    raise SystemExit("PyTorch is not installed. It is what we compare with: pip install --group bench") from error

__all__ = ["gradient", "hvp", "mlp", "parameters", "per_fedavg_step", "sine_batch", "to_torch"]

Params = list["torch.Tensor"]
Loss = Callable[[Params, tuple["torch.Tensor", "torch.Tensor"]], "torch.Tensor"]


def mlp(activation: Callable, last: Callable) -> Loss:
    """The loss of a perceptron whose parameters are weight, bias, weight, bias, ..."""

    def loss(params: Params, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        x, y = batch
        for i in range(0, len(params) - 2, 2):
            x = activation(F.linear(x, params[i], params[i + 1]))
        return last(F.linear(x, params[-2], params[-1]), y)

    return loss


CLASSIFIER = mlp(F.elu, F.cross_entropy)
REGRESSOR = mlp(F.relu, F.mse_loss)


def parameters(perceptron) -> Params:
    """The parameters of one of our perceptrons."""
    return [
        torch.from_numpy(np.array(array, order="C"))
        for layer in perceptron.layers
        for array in (np.asarray(layer.weight), np.asarray(layer.bias))
    ]


def to_torch(batch) -> tuple[torch.Tensor, torch.Tensor]:
    """One of our batches."""
    x, y = np.array(batch.x), np.array(batch.y)
    return torch.from_numpy(x), torch.from_numpy(y.astype(np.int64) if y.dtype.kind == "i" else y)


def sine_batch(task: int, samples: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A batch of one of the 25 sine waves."""
    x = torch.rand(samples, 1) * 10 - 5
    return x, (1 + task % 5) * torch.sin(x + np.pi / 5 * (1 + task // 5))


def gradient(loss: Loss, params: Params, batch) -> Sequence[torch.Tensor]:
    leaves = [p.detach().requires_grad_() for p in params]
    return torch.autograd.grad(loss(leaves, batch), leaves)


def hvp(loss: Loss, params: Params, v: Sequence[torch.Tensor], batch) -> Sequence[torch.Tensor]:
    leaves = [p.detach().requires_grad_() for p in params]
    first = torch.autograd.grad(loss(leaves, batch), leaves, create_graph=True)
    return torch.autograd.grad(first, leaves, v)


def pull(loss: Loss, w: Params, v, batch, alpha: float, radius: float | None) -> Params:
    """``(I - alpha H) v``, exact or by a central difference."""
    if radius is None:
        return [a - alpha * b for a, b in zip(v, hvp(loss, w, v, batch), strict=True)]
    ahead = gradient(loss, [a + radius * b for a, b in zip(w, v, strict=True)], batch)
    behind = gradient(loss, [a - radius * b for a, b in zip(w, v, strict=True)], batch)
    return [a - alpha / (2 * radius) * (p - m) for a, p, m in zip(v, ahead, behind, strict=True)]


def per_fedavg_step(loss: Loss, w: Params, inner, curvature, outer, alpha, beta, radius) -> Params:
    """One local step of Per-FedAvg."""
    u = [a - alpha * b for a, b in zip(w, gradient(loss, w, inner), strict=True)]
    d = pull(loss, w, gradient(loss, u, outer), curvature, alpha, radius)
    return [a - beta * b for a, b in zip(w, d, strict=True)]
