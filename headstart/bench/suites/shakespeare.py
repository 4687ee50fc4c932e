"""(i) Shakespeare: FedAvg rounds of a GRU over 80 characters."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from headstart.algorithms import fedavg
from headstart.bench.cases import LOOP, VMAP, Bar, Case, Settings, Side
from headstart.bench.flops import round_flops
from headstart.bench.turns import cores
from headstart.data import Federation, shakespeare
from headstart.data.sources.shakespeare import CHARACTERS, one_hot_characters
from headstart.models import Recurrent
from headstart.problems import Classification, Examples
from headstart.simulate import Simulation

if TYPE_CHECKING:
    import torch

    from headstart.bench.plain import Batch, Params

__all__ = ["TITLE", "cases"]

TITLE = "Shakespeare: a GRU with 128 units over 80 characters, 4 clients x 5 steps, batches of 20"
LENGTH, UNITS, EMBEDDING = 80, 128, 8
CLIENTS, STEPS, BATCH, SAMPLES, BETA = 4, 5, 20, 100, 0.1
ROUNDS = 2


def cases(settings: Settings) -> Iterator[Case]:
    """FedAvg on codes of characters."""
    length, units, steps = (4, 8, 1) if settings.quick else (LENGTH, UNITS, STEPS)
    federation = _federation(None if settings.quick else settings.data, length)
    outputs = len(CHARACTERS)
    problem = Classification(Recurrent((length, outputs), outputs, embedding=EMBEDDING, hidden=(units,), cell="gru"))

    def ours() -> Side:
        algorithm = fedavg(BETA, local_steps=steps, batch_size=BATCH)
        simulation = Simulation(
            algorithm, problem, federation, cohort=CLIENTS, backend="sharded", devices=min(cores(), CLIENTS)
        )
        return Side(lambda: simulation.advance(ROUNDS, ROUNDS), ROUNDS, round_flops(simulation))

    def torch_side(mapped: bool) -> Side:
        import torch

        from headstart.bench import plain

        params = problem.init(jax.random.key(0))
        layer = params.layers[0]
        arrays = (params.embedding, layer.weight, layer.recurrent, layer.bias, layer.recurrent_bias, params.head.weight)
        weights = [torch.from_numpy(np.array(a, order="C")) for a in (*arrays, params.head.bias)]
        x = torch.randint(0, outputs, (CLIENTS, BATCH, length))
        y = torch.randint(0, outputs, (CLIENTS, BATCH))

        def step(calculus: plain.Calculus, loss: plain.Loss, w: Any, batch: Any) -> Any:
            return plain.descend(w, BETA, calculus.gradient(loss, w, batch))

        def run() -> Any:
            if mapped:
                w: Any = plain.stacked(weights, CLIENTS)
                turn = torch.func.vmap(lambda w, b: step(plain.BY_FUNCTION, _cell_by_cell, w, b))
                for _ in range(steps):
                    w = turn(w, (x, y))
                return [a.mean(0) for a in w]
            ends = []
            for client in range(CLIENTS):
                w = weights
                for _ in range(steps):
                    w = step(plain.BY_AUTOGRAD, _library, w, (x[client], y[client]))
                ends.append(w)
            return plain.averaged(ends)

        return Side(run)

    others = {LOOP: lambda: torch_side(False), VMAP: lambda: torch_side(True)}
    yield Case("GRU, FedAvg", "round", ours, others, (Bar("ratio", 1.0, LOOP),))


def _federation(folder: Path | None, length: int) -> Federation:
    """Roles of the plays where they are given; elsewhere random characters."""
    if folder is not None and (Path(folder) / "shakespeare.npz").exists():
        return shakespeare(context=length, folder=str(folder), max_samples=SAMPLES, held_out=0)
    rng = np.random.default_rng(0)
    x = rng.integers(0, len(CHARACTERS), (CLIENTS * SAMPLES, length), dtype=np.int32)
    y = rng.integers(0, len(CHARACTERS), len(x), dtype=np.int32)
    rows = np.split(np.arange(len(x)), CLIENTS)
    return Federation.from_arrays(Examples(x, y), rows, rows, transform=one_hot_characters)


def _library(weights: "Params", batch: "Batch") -> "torch.Tensor":
    """The loss with PyTorch's own GRU."""
    import torch
    from torch.nn import functional as F

    embedding, *layer, head, bias = weights
    embedded = F.embedding(batch[0], embedding)
    start = torch.zeros(1, len(embedded), head.shape[1])
    _, last = torch._VF.gru(embedded, start, layer, True, 1, 0.0, True, False, True)  # type: ignore[attr-defined]
    return F.cross_entropy(F.linear(last[0], head, bias), batch[1])


def _cell_by_cell(weights: "Params", batch: "Batch") -> "torch.Tensor":
    """The same cell by cell, for `vmap` has no rule for PyTorch's own."""
    import torch
    from torch.nn import functional as F

    embedding, into, own, into_bias, own_bias, head, bias = weights
    driven = F.linear(embedding[batch[0]], into, into_bias)
    h = torch.zeros(driven.shape[0], head.shape[1])
    for t in range(driven.shape[1]):
        (r, z, n), (hr, hz, hn) = driven[:, t].chunk(3, -1), F.linear(h, own, own_bias).chunk(3, -1)
        z = torch.sigmoid(z + hz)
        h = (1 - z) * torch.tanh(n + torch.sigmoid(r + hr) * hn) + z * h
    return F.cross_entropy(F.linear(h, head, bias), batch[1])
