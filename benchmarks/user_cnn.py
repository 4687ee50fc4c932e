"""Users' own convolutional networks, unchanged, against a plain PyTorch loop doing the same arithmetic.

    python -m benchmarks.user_cnn [--repeats 9] [--model cnn] [--framework nnx] [--algorithm fedavg]

The FedAvg papers' CNN (5x5 convolutions 3-32-64 with max pooling, dense 4096-256-10) and a ResNet-20 with group
normalisation, on images of CIFAR-10's shape, as Flax NNX and as Equinox modules. A round is 4 clients x 5 local steps
with batches of 20. Bars: at most PyTorch's time (ratio 1.0, goal 0.6), and 1.5 everywhere. It also shows that both
sides compute the same gradient.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

import headstart as hs
from benchmarks.common import interleaved, parser

hs.use_cpu_devices(2)  # before the networks below are built, which starts JAX

CLIENTS, STEPS, BATCH, ROUNDS, SAMPLES = 4, 5, 20, 2, 200
ALPHA, BETA, RADIUS = 0.01, 0.001, 1e-3
BLOCKS, WIDTHS, GROUPS = 3, (16, 32, 64), 4
EPSILON = 1e-5


class NNXCNN(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.Conv(3, 32, (5, 5), rngs=rngs)
        self.second = nnx.Conv(32, 64, (5, 5), rngs=rngs)
        self.dense = nnx.Linear(4096, 256, rngs=rngs)
        self.head = nnx.Linear(256, 10, rngs=rngs)

    def __call__(self, x):
        for convolution in (self.first, self.second):
            x = nnx.max_pool(nnx.relu(convolution(x)), (2, 2), (2, 2))
        return self.head(nnx.relu(self.dense(x.reshape(x.shape[0], -1))))


class EquinoxCNN(eqx.Module):
    first: eqx.nn.Conv2d
    second: eqx.nn.Conv2d
    dense: eqx.nn.Linear
    head: eqx.nn.Linear

    def __init__(self, key):
        keys = jax.random.split(key, 4)
        self.first = eqx.nn.Conv2d(3, 32, 5, padding=2, key=keys[0])
        self.second = eqx.nn.Conv2d(32, 64, 5, padding=2, key=keys[1])
        self.dense = eqx.nn.Linear(4096, 256, key=keys[2])
        self.head = eqx.nn.Linear(256, 10, key=keys[3])

    def __call__(self, x):
        x, pool = jnp.transpose(x, (2, 0, 1)), eqx.nn.MaxPool2d(2, 2)
        for convolution in (self.first, self.second):
            x = pool(jax.nn.relu(convolution(x)))
        return self.head(jax.nn.relu(self.dense(x.reshape(-1))))


class NNXBlock(nnx.Module):
    def __init__(self, before, width, rngs):
        stride = 1 if before == width else 2
        norm = partial(nnx.GroupNorm, width, GROUPS, epsilon=EPSILON, rngs=rngs)
        padding = ((1, 1), (1, 1))
        self.first = nnx.Conv(before, width, (3, 3), stride, padding=padding, use_bias=False, rngs=rngs)
        self.second = nnx.Conv(width, width, (3, 3), padding=padding, use_bias=False, rngs=rngs)
        self.norms = nnx.List([norm(), norm()])
        short = nnx.Conv(before, width, (1, 1), stride, padding="VALID", use_bias=False, rngs=rngs)
        self.short = short if stride > 1 else None

    def __call__(self, x):
        y = nnx.relu(self.norms[0](self.first(x)))
        return nnx.relu(self.norms[1](self.second(y)) + (x if self.short is None else self.short(x)))


class NNXResNet(nnx.Module):
    def __init__(self, rngs):
        self.stem = nnx.Conv(3, WIDTHS[0], (3, 3), use_bias=False, rngs=rngs)
        self.norm = nnx.GroupNorm(WIDTHS[0], GROUPS, epsilon=EPSILON, rngs=rngs)
        self.blocks = nnx.List([NNXBlock(before, width, rngs) for before, width in widths()])
        self.head = nnx.Linear(WIDTHS[-1], 10, rngs=rngs)

    def __call__(self, x):
        x = nnx.relu(self.norm(self.stem(x)))
        for block in self.blocks:
            x = block(x)
        return self.head(jnp.mean(x, (1, 2)))


class EquinoxBlock(eqx.Module):
    first: eqx.nn.Conv2d
    second: eqx.nn.Conv2d
    norms: list[eqx.nn.GroupNorm]
    short: eqx.nn.Conv2d | None

    def __init__(self, before, width, key):
        stride, keys = 1 if before == width else 2, jax.random.split(key, 3)
        self.first = eqx.nn.Conv2d(before, width, 3, stride, 1, use_bias=False, key=keys[0])
        self.second = eqx.nn.Conv2d(width, width, 3, 1, 1, use_bias=False, key=keys[1])
        self.norms = [eqx.nn.GroupNorm(GROUPS, width, eps=EPSILON) for _ in range(2)]
        self.short = eqx.nn.Conv2d(before, width, 1, stride, use_bias=False, key=keys[2]) if stride > 1 else None

    def __call__(self, x):
        y = jax.nn.relu(self.norms[0](self.first(x)))
        return jax.nn.relu(self.norms[1](self.second(y)) + (x if self.short is None else self.short(x)))


class EquinoxResNet(eqx.Module):
    stem: eqx.nn.Conv2d
    norm: eqx.nn.GroupNorm
    blocks: list[EquinoxBlock]
    head: eqx.nn.Linear

    def __init__(self, key):
        stem, head, *keys = jax.random.split(key, 2 + BLOCKS * len(WIDTHS))
        self.stem = eqx.nn.Conv2d(3, WIDTHS[0], 3, padding=1, use_bias=False, key=stem)
        self.norm = eqx.nn.GroupNorm(GROUPS, WIDTHS[0], eps=EPSILON)
        self.blocks = [EquinoxBlock(*pair, k) for pair, k in zip(widths(), keys, strict=True)]
        self.head = eqx.nn.Linear(WIDTHS[-1], 10, key=head)

    def __call__(self, x):
        x = jax.nn.relu(self.norm(self.stem(jnp.transpose(x, (2, 0, 1)))))
        for block in self.blocks:
            x = block(x)
        return self.head(jnp.mean(x, (1, 2)))


def widths() -> list[tuple[int, int]]:
    """Channels before and after each block of the ResNet."""
    after = [width for width in WIDTHS for _ in range(BLOCKS)]
    return list(zip([WIDTHS[0], *after], after, strict=False))


MODELS: dict[tuple[str, str], hs.models.Model] = {
    ("cnn", "nnx"): hs.NNXModel(NNXCNN),
    ("cnn", "equinox"): hs.EquinoxModel(EquinoxCNN),
    ("resnet", "nnx"): hs.NNXModel(NNXResNet),
    ("resnet", "equinox"): hs.EquinoxModel(EquinoxResNet),
}


def _curvature(name: str) -> Any:
    """By name; the radius is the one that PyTorch's side has too."""
    return hs.HessianFree(RADIUS) if name == "hessian-free" else name


ALGORITHMS: dict[str, tuple[Any, str | None]] = {
    "fedavg": (hs.fedavg(outer_lr=BETA, local_steps=STEPS, batch_size=BATCH), None),
    **{
        curvature: (
            hs.per_fedavg(
                inner_lr=ALPHA, outer_lr=BETA, local_steps=STEPS, batch_size=BATCH, curvature=_curvature(curvature)
            ),
            curvature,
        )
        for curvature in ("first-order", "exact", "hessian-free")
    },
}


def torch_cnn(weights, batch):
    """The loss of the FedAvg papers' CNN in PyTorch."""
    from torch.nn import functional as F

    x, (w1, b1, w2, b2, w3, b3, w4, b4) = batch[0], weights
    x = F.max_pool2d(F.relu(F.conv2d(x, w1, b1, padding=2)), 2)
    x = F.max_pool2d(F.relu(F.conv2d(x, w2, b2, padding=2)), 2)
    return F.cross_entropy(F.linear(F.relu(F.linear(x.flatten(1), w3, b3)), w4, b4), batch[1])


def torch_resnet(weights, batch):
    """The loss of the ResNet in PyTorch."""
    from torch.nn import functional as F

    given = iter(weights)

    def convolved(x, stride=1, padding=1):
        return F.conv2d(x, next(given), stride=stride, padding=padding)

    def normalised(x):
        return F.group_norm(x, GROUPS, next(given), next(given), EPSILON)

    x = F.relu(normalised(convolved(batch[0])))
    for before, after in widths():
        stride = 1 if before == after else 2
        y = F.relu(normalised(convolved(x, stride)))
        y = normalised(convolved(y))
        x = F.relu(y + (x if stride == 1 else convolved(x, stride, 0)))
    return F.cross_entropy(F.linear(x.mean((2, 3)), next(given), next(given)), batch[1])


TORCH_LOSSES: dict[str, Callable] = {"cnn": torch_cnn, "resnet": torch_resnet}


def torch_weights(model: str, tree: Any) -> list:
    """An Equinox network's parameters (or gradient), in the order in which PyTorch's loss takes them."""
    import torch

    def of(layer):
        return [a for a in (layer.weight, layer.bias) if a is not None]

    if model == "cnn":
        arrays = [a for layer in (tree.first, tree.second, tree.dense, tree.head) for a in of(layer)]
    else:
        arrays = [*of(tree.stem), *of(tree.norm)]
        for block in tree.blocks:
            arrays += [*of(block.first), *of(block.norms[0]), *of(block.second), *of(block.norms[1])]
            arrays += [] if block.short is None else of(block.short)
        arrays += of(tree.head)
    # Equinox keeps a convolution's bias as (channels, 1, 1).
    return [torch.from_numpy(np.array(a if a.ndim != 3 else a[:, 0, 0], order="C")) for a in arrays]


def largest_difference(model: str, problem: hs.problems.Problem, batch: hs.Examples) -> float:
    """Both sides' gradients of one batch: the largest difference, relative."""
    from benchmarks import plain_torch as plain

    params = problem.init(jax.random.key(0))
    ours = torch_weights(model, jax.jit(jax.grad(problem.objective()))(params, batch))
    x, y = plain.to_torch(batch)
    loss = TORCH_LOSSES[model]
    theirs = plain.gradient(loss, torch_weights(model, params), (x.permute(0, 3, 1, 2).contiguous(), y))
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in zip(ours, theirs, strict=True))


def torch_round(loss, x, y, params, curvature, rng):
    """One round in PyTorch: the mean of the clients' models."""
    import torch

    from benchmarks import plain_torch as plain

    def batch(client):
        rows = torch.from_numpy(client * SAMPLES + rng.integers(0, SAMPLES, BATCH))
        return x[rows], y[rows]

    total = [torch.zeros_like(p) for p in params]
    for client in range(CLIENTS):
        w = params
        for _ in range(STEPS):
            if curvature is None:
                d = plain.gradient(loss, w, batch(client))
                w = [a - BETA * b for a, b in zip(w, d, strict=True)]
            elif curvature == "first-order":
                u = [a - ALPHA * b for a, b in zip(w, plain.gradient(loss, w, batch(client)), strict=True)]
                w = [a - BETA * b for a, b in zip(w, plain.gradient(loss, u, batch(client)), strict=True)]
            else:
                radius = RADIUS if curvature == "hessian-free" else None
                batches = (batch(client) for _ in range(3))
                w = plain.per_fedavg_step(loss, w, *batches, ALPHA, BETA, radius)
        total = [a + b / CLIENTS for a, b in zip(total, w, strict=True)]
    return total


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--model", choices=sorted(TORCH_LOSSES), help="only this network")
    options.add_argument("--framework", choices=("nnx", "equinox"), help="only modules of this library")
    options.add_argument("--algorithm", choices=list(ALGORITHMS), help="only this algorithm")
    options.add_argument("--patience", type=float, default=300, help="seconds to wait for a quiet machine, per row")
    chosen = options.parse_args()
    import torch

    rng = np.random.default_rng(0)
    pixels = rng.random((CLIENTS * SAMPLES, 32, 32, 3), np.float32)
    labels = rng.integers(0, 10, len(pixels), dtype=np.int32)
    rows = np.array_split(np.arange(len(pixels)), CLIENTS)
    federation = hs.Federation.from_arrays(hs.Examples(pixels, labels), rows, rows)
    x = torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous()
    y = torch.from_numpy(labels.astype(np.int64))

    print(f"{'':32}{'PyTorch':>10}{'vmap':>10}{'sharded':>10}{'ratios':>16}")
    for model, loss in TORCH_LOSSES.items():
        if chosen.model not in (None, model):
            continue
        reference = hs.Classification(MODELS[model, "equinox"])
        weights = torch_weights(model, reference.init(jax.random.key(0)))
        difference = largest_difference(model, reference, hs.Examples(pixels[:BATCH], labels[:BATCH]))
        print(f"{model}: gradients differ by {difference:.1e}")
        for name, (algorithm, curvature) in ALGORITHMS.items():
            if chosen.algorithm not in (None, name):
                continue
            sides: dict[str, Callable[[], object]] = {
                "PyTorch": partial(torch_round, loss, x, y, weights, curvature, np.random.default_rng(0))
            }
            frameworks = [f for f in ("nnx", "equinox") if chosen.framework in (None, f)]
            for framework in frameworks:
                problem = hs.Classification(MODELS[model, framework])
                for backend, devices in (("vmap", 1), ("sharded", 2)):
                    simulation = hs.Simulation(
                        algorithm, problem, federation, cohort=CLIENTS, backend=backend, devices=devices
                    )
                    sides[f"{framework} {backend}"] = partial(simulation.advance, ROUNDS, ROUNDS)
            for side in sides.values():
                side()
            times = interleaved(sides, chosen.repeats, chosen.patience)
            theirs = times["PyTorch"]
            for framework in frameworks:
                ours = [times[f"{framework} {backend}"] / ROUNDS for backend in ("vmap", "sharded")]
                print(
                    f"{f'{model}, {framework}, {name}':32}"
                    + "".join(f"{1e3 * seconds:7.0f} ms" for seconds in (theirs, *ours))
                    + "".join(f"{seconds / theirs:8.2f}" for seconds in ours),
                    flush=True,
                )


if __name__ == "__main__":
    main()
