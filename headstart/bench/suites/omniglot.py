"""(d) Omniglot: a second-order meta-gradient of conv-4 on a 5-way 1-shot task, 33 clients."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from headstart.algorithms import per_fedavg
from headstart.bench.cases import LOOP, VMAP, Bar, Case, Settings, Side
from headstart.bench.flops import round_flops
from headstart.bench.turns import cores
from headstart.core import FULL
from headstart.data import Episodes, Federation, Samples, omniglot
from headstart.models import Conv
from headstart.models.conv import EPSILON
from headstart.problems import Classification
from headstart.simulate import Simulation

if TYPE_CHECKING:
    import torch

    from headstart.bench.plain import Batch, Params

__all__ = ["TITLE", "cases"]

TITLE = "Omniglot: conv-4 with 64 filters, 5-way 1-shot, 15 queries a class, second order, 33 clients"
CLIENTS, WAYS, QUERIES, SIDE, ALPHA, BETA = 33, 5, 15, 28, 0.1, 0.01


def cases(settings: Settings) -> Iterator[Case]:
    """One meta-gradient of every client; times are a client's."""
    clients, filters = (2, 4) if settings.quick else (CLIENTS, 64)
    federation = _federation(settings.data, clients)
    problem = Classification(Conv((SIDE, SIDE), WAYS, filters=filters))

    def ours() -> Side:
        algorithm = per_fedavg(ALPHA, BETA, local_steps=1, curvature="automatic", batch_size=FULL)
        simulation = Simulation(
            algorithm, problem, federation, cohort=clients, backend="sharded", devices=min(cores(), clients)
        )
        return Side(lambda: simulation.advance(1, 1), clients, round_flops(simulation) / clients)

    others = {LOOP: lambda: _torch(problem, clients, False), VMAP: lambda: _torch(problem, clients, True)}
    bars = (Bar("seconds", 0.055), Bar("ratio", 1.0, LOOP, goal=0.5))
    yield Case("conv-4, exact", "client", ours, others, bars)


def _federation(folder: Path | None, clients: int) -> Federation:
    """Omniglot's alphabets where they are given; elsewhere random ones, twice the classes of a task each."""
    if folder is not None and (Path(folder) / "omniglot.npz").exists():
        return omniglot(folder=str(folder))
    rng = np.random.default_rng(0)
    classes = np.arange(clients * 2 * WAYS)
    y = np.repeat(classes, 20)
    x = rng.random((len(y), SIDE, SIDE), np.float32)
    samples = Samples("random images", x, y, tuple(map(str, classes)))
    return Federation.from_episodes(samples, np.split(np.arange(len(y)), clients), Episodes(WAYS, 1, QUERIES))


def _loss(weights: "Params", batch: "Batch") -> "torch.Tensor":
    """Of conv-4: convolution, normalisation by the batch, ReLU and pooling, four times, and a dense layer."""
    from torch.nn import functional as F

    x = batch[0]
    for i in range(0, len(weights) - 2, 3):
        weight, scale, shift = weights[i : i + 3]
        x = F.batch_norm(F.conv2d(x, weight, padding=1), None, None, scale, shift, training=True, eps=EPSILON)
        x = F.max_pool2d(F.relu(x), 2)
    return F.cross_entropy(F.linear(x.flatten(1), weights[-2], weights[-1]), batch[1])


def _torch(problem: Classification, clients: int, mapped: bool) -> Side:
    import torch

    from headstart.bench import plain

    weights = [torch.from_numpy(np.array(a, order="C")) for a in _arrays(problem.init(jax.random.key(0)))]

    def batch(each: int) -> "Batch":
        labels = torch.arange(WAYS).repeat_interleave(each)
        shape = (WAYS * each, 1, SIDE, SIDE)
        return (torch.rand(clients, *shape), labels.expand(clients, -1)) if mapped else (torch.rand(shape), labels)

    def step(calculus: plain.Calculus, w: Any, batches: Any) -> list["torch.Tensor"]:
        # The pullback looks at the batch of the inner step again.
        support, query = batches
        return plain.local_step(calculus, _loss, w, [support, query, support], 1, ALPHA, BETA, "exact")

    def run() -> Any:
        if mapped:
            return torch.func.vmap(lambda w, b: step(plain.BY_FUNCTION, w, b), in_dims=(None, 0), chunk_size=4)(
                weights, (batch(1), batch(QUERIES))
            )
        return plain.averaged([step(plain.BY_AUTOGRAD, weights, (batch(1), batch(QUERIES))) for _ in range(clients)])

    return Side(run, clients)


def _arrays(params: Any) -> Iterator[Any]:
    """The parameters of conv-4 in the order in which PyTorch's loss takes them."""
    for block in params.blocks:
        yield from (jnp.transpose(block.weight, (3, 2, 0, 1)), block.scale, block.shift)
    yield from (params.head.weight, params.head.bias)
