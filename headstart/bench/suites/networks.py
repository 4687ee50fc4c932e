"""Users' own networks, unchanged: a CNN and a ResNet-20 as Flax NNX and as Equinox modules."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from headstart.algorithms import fedavg, per_fedavg
from headstart.bench.cases import LOOP, VMAP, Bar, Case, Settings, Side
from headstart.bench.flops import round_flops
from headstart.bench.suites._networks import equinox_models, torch_losses, torch_weights
from headstart.bench.turns import cores
from headstart.core import Algorithm, HessianFree
from headstart.data import Federation
from headstart.models import Model
from headstart.problems import Classification, Examples
from headstart.simulate import Simulation

if TYPE_CHECKING:
    import torch

    from headstart.bench.plain import Calculus

__all__ = ["TITLE", "cases"]

TITLE = "Users' networks on images of CIFAR-10's shape, 4 clients x 5 steps, batches of 20"
CLIENTS, STEPS, BATCH, SAMPLES, ROUNDS = 4, 5, 20, 200, 1
ALPHA, BETA, RADIUS = 0.01, 0.001, 1e-3
METHODS: dict[str, tuple[int, Any]] = {
    "FedAvg": (0, "first-order"),
    "first-order": (1, "first-order"),
    "Hessian-free": (1, HessianFree(RADIUS)),
    "exact": (1, "exact"),
}


def cases(settings: Settings) -> Iterator[Case]:
    """Every method with either network as either library's module."""
    steps, samples, batch = (1, 20, 4) if settings.quick else (STEPS, SAMPLES, BATCH)
    rng = np.random.default_rng(0)
    x = rng.random((CLIENTS * samples, 32, 32, 3), np.float32)
    y = rng.integers(0, 10, len(x), dtype=np.int32)
    rows = np.split(np.arange(len(x)), CLIENTS)
    federation = Federation.from_arrays(Examples(x, y), rows, rows)
    methods = ["FedAvg"] if settings.quick else list(METHODS)
    for network, libraries in _models(settings.quick).items():
        for method in methods:
            for library, model in libraries.items():
                algorithm = _algorithm(method, steps, batch)
                # PyTorch has no library of modules to choose between: its side is measured beside each.
                others = {
                    side: partial(_torch, network, method, x, y, samples, steps, batch, mapped)
                    for side, mapped in ((LOOP, False), (VMAP, True))
                    if not (mapped and library == "Equinox")
                }
                yield Case(
                    f"{network}, {library}, {method}", "round", partial(_ours, algorithm, model, federation), others,
                    (Bar("ratio", 1.0, LOOP, goal=0.6),),
                )  # fmt: skip


def _models(quick: bool) -> dict[str, dict[str, Model]]:
    """Networks by name and library; Flax's where it is installed."""
    found = {name: {"Equinox": model} for name, model in equinox_models().items() if not (quick and name != "CNN")}
    if find_spec("flax") is not None:
        from headstart.bench.suites._networks_nnx import nnx_models

        for name, model in nnx_models().items():
            if name in found:
                found[name] = {"NNX": model, **found[name]}
    return found


def _algorithm(method: str, steps: int, batch: int) -> Algorithm:
    inner_steps, curvature = METHODS[method]
    if inner_steps == 0:
        return fedavg(BETA, local_steps=steps, batch_size=batch)
    return per_fedavg(ALPHA, BETA, steps, curvature=curvature, batch_size=batch)


def _ours(algorithm: Algorithm, model: Model, federation: Federation) -> Side:
    simulation = Simulation(
        algorithm, Classification(model), federation, cohort=CLIENTS, backend="sharded", devices=min(cores(), CLIENTS)
    )
    return Side(lambda: simulation.advance(ROUNDS, ROUNDS), ROUNDS, round_flops(simulation))


def _torch(
    network: str, method: str, x: np.ndarray, y: np.ndarray, samples: int, steps: int, batch: int, mapped: bool
) -> Side:
    """One round in PyTorch: the mean of the clients' models."""
    import torch

    from headstart.bench import plain

    loss: Callable[..., Any] = torch_losses()[network]
    params = torch_weights(network, Classification(equinox_models()[network]).init(jax.random.key(0)))
    pool = torch.from_numpy(x).permute(0, 3, 1, 2).contiguous()
    labels = torch.from_numpy(y.astype(np.int64))
    inner_steps, curvature = METHODS[method]
    curvature = curvature if isinstance(curvature, str) else "hessian-free"
    derivatives = 1 + inner_steps * (1 if curvature == "first-order" else 2)
    rng = np.random.default_rng(0)

    def drawn(clients: Sequence[int]) -> tuple["torch.Tensor", "torch.Tensor"]:
        rows = torch.from_numpy(np.stack([client * samples + rng.integers(0, samples, batch) for client in clients]))
        return (pool[rows], labels[rows]) if mapped else (pool[rows[0]], labels[rows[0]])

    def step(calculus: "Calculus", w: Any, batches: Any) -> Any:
        return plain.local_step(calculus, loss, w, batches, inner_steps, ALPHA, BETA, curvature, RADIUS)

    def local(w: Any, clients: Sequence[int]) -> Any:
        turn = torch.func.vmap(partial(step, plain.BY_FUNCTION)) if mapped else partial(step, plain.BY_AUTOGRAD)
        for _ in range(steps):
            w = turn(w, [drawn(clients) for _ in range(derivatives)])
        return w

    def one_round() -> Any:
        if mapped:
            return [a.mean(0) for a in local(plain.stacked(params, CLIENTS), range(CLIENTS))]
        return plain.averaged([local(params, [client]) for client in range(CLIENTS)])

    return Side(one_round)
