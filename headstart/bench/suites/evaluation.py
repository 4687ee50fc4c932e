"""(f) Evaluation: 1,000 clients adapt for 10 steps and are scored."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from headstart.algorithms import per_fedavg
from headstart.bench.cases import LOOP, VMAP, Case, Settings, Side
from headstart.bench.flops import flops
from headstart.bench.pools import images, scaled
from headstart.data import Federation
from headstart.models import MLP
from headstart.problems import Classification, Examples
from headstart.simulate import Evaluation, Simulation

if TYPE_CHECKING:
    import torch

__all__ = ["TITLE", "cases"]

TITLE = "Evaluation: 1,000 clients x 10 steps on 50 images each, scored on 10, MLP 80-60"
CLIENTS, STEPS, SUPPORT, QUERY, ALPHA = 1000, 10, 50, 10, 0.01
TORCH_SHARE = 20
"""PyTorch's loop does one of so many clients, each of which takes the same time."""


def cases(settings: Settings) -> Iterator[Case]:
    """All clients, adapted and scored."""
    clients = 20 if settings.quick else CLIENTS
    x, y, _ = images("mnist", settings.data, 2000)
    drawn = np.random.default_rng(0).integers(0, len(x), (clients, SUPPORT + QUERY))
    federation = Federation.from_arrays(
        Examples(x, y), list(drawn[:, :SUPPORT]), list(drawn[:, SUPPORT:]), transform=scaled
    )
    problem = Classification(MLP(x.shape[1], 10))

    def ours() -> Side:
        simulation = Simulation(per_fedavg(inner_lr=ALPHA), problem, federation, cohort=1)
        evaluation = Evaluation(steps=(STEPS,))
        params = simulation.state.server.params
        support = jax.tree.map(lambda a: jax.ShapeDtypeStruct((SUPPORT, *a.shape[1:]), a.dtype), scaled(Examples(x, y)))
        each = STEPS * flops(jax.grad(problem.loss), params, support)
        return Side(lambda: simulation.evaluate(evaluation), 1, clients * each)

    def torch_side(mapped: bool) -> Side:
        import torch

        from headstart.bench import plain

        params = plain.parameters(problem.init(jax.random.key(0)))
        pool, labels = torch.from_numpy(x).float().div_(255), torch.from_numpy(y.astype(np.int64))
        rows = torch.from_numpy(drawn)

        def score(calculus: plain.Calculus, xs: "torch.Tensor", ys: "torch.Tensor") -> Any:
            w = list(params)
            for _ in range(STEPS):
                w = plain.descend(w, ALPHA, calculus.gradient(plain.CLASSIFIER, w, (xs[:SUPPORT], ys[:SUPPORT])))
            return plain.CLASSIFIER(w, (xs[SUPPORT:], ys[SUPPORT:]))

        if mapped:
            each = torch.func.vmap(lambda a, b: score(plain.BY_FUNCTION, a, b), chunk_size=50)
            return Side(lambda: each(pool[rows], labels[rows]))
        some = rows[: max(1, clients // TORCH_SHARE)]

        def loop() -> None:
            for own in some:
                score(plain.BY_AUTOGRAD, pool[own], labels[own])

        # Seconds of a whole evaluation, from a part of it.
        return Side(loop, len(some) / clients)

    yield Case(
        f"{clients:,} clients", "evaluation", ours, {LOOP: lambda: torch_side(False), VMAP: lambda: torch_side(True)}
    )
