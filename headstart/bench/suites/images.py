"""Rounds of FedAvg and Per-FedAvg on images with a perceptron."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from headstart.algorithms import MetaFL, fedavg, per_fedavg
from headstart.bench.cases import LOOP, VMAP, Bar, Case, Settings, Side
from headstart.bench.flops import round_flops
from headstart.bench.pools import image_federation, images
from headstart.bench.turns import cores
from headstart.core import Algorithm, Exact, HessianFree
from headstart.models import MLP
from headstart.problems import Classification
from headstart.simulate import Simulation

if TYPE_CHECKING:
    import torch

    from headstart.bench.plain import Batch, Calculus

__all__ = ["image_cases"]

ALPHA, BETA, RADIUS = 0.01, 0.001, 1e-3
ROUNDS = 5
"""Rounds a compiled chunk, as training runs them."""


class Size(NamedTuple):
    """How much work a round is."""

    clients: int
    cohort: int
    steps: int
    batch: int


FULL, QUICK = Size(50, 10, 10, 40), Size(4, 2, 2, 8)


class Method(NamedTuple):
    """The same method on both sides."""

    name: str
    inner_steps: int
    curvature: str
    algorithm: Callable[[Size], Algorithm]


def _per_fedavg(curvature: Any, size: Size) -> Algorithm:
    return per_fedavg(inner_lr=ALPHA, outer_lr=BETA, local_steps=size.steps, batch_size=size.batch, curvature=curvature)


def _three_steps(size: Size) -> Algorithm:
    return MetaFL(
        inner_steps=3, inner_lr=ALPHA, outer_lr=BETA, local_steps=size.steps, batch_size=size.batch,
        curvature=Exact(),
    )  # fmt: skip


METHODS = (
    Method("FedAvg", 0, "first-order", lambda size: fedavg(BETA, local_steps=size.steps, batch_size=size.batch)),
    Method("first-order", 1, "first-order", partial(_per_fedavg, "first-order")),
    Method("Hessian-free", 1, "hessian-free", partial(_per_fedavg, HessianFree(RADIUS))),
    Method("exact", 1, "exact", partial(_per_fedavg, "exact")),
    Method("exact, nu = 3", 3, "exact", _three_steps),
)


def image_cases(settings: Settings, name: str, bars: dict[str, tuple[Bar, ...]]) -> Iterator[Case]:
    """Every method on one data set, with the bars of each by its name."""
    size = QUICK if settings.quick else FULL
    x, y, _ = images(name, settings.data, 400 if settings.quick else None)
    federation, rows = image_federation(x, y, size.clients)
    problem = Classification(MLP(x.shape[1], 10))
    for method in METHODS[-1:] if settings.quick else METHODS:
        algorithm = method.algorithm(size)

        def ours(algorithm: Algorithm = algorithm) -> Side:
            simulation = Simulation(
                algorithm, problem, federation, cohort=size.cohort, backend="sharded", devices=cores()
            )
            return Side(lambda: simulation.advance(ROUNDS, ROUNDS), ROUNDS, round_flops(simulation))

        others = {
            LOOP: partial(_torch, x, y, rows, problem, method, size, False),
            VMAP: partial(_torch, x, y, rows, problem, method, size, True),
        }
        yield Case(method.name, "round", ours, others, bars.get(method.name, ()))


def _torch(
    x: np.ndarray, y: np.ndarray, rows: Sequence[np.ndarray], problem: Classification, method: Method, size: Size,
    mapped: bool,
) -> Side:  # fmt: skip
    import jax
    import torch

    from headstart.bench import plain

    params = plain.parameters(problem.init(jax.random.key(0)))
    pool, labels = torch.from_numpy(x), torch.from_numpy(y.astype(np.int64))
    owned = [torch.from_numpy(own) for own in rows]
    rng = np.random.default_rng(0)
    derivatives = 1 + method.inner_steps * (1 if method.curvature == "first-order" else 2)

    def chosen(client: int) -> "torch.Tensor":
        own = owned[client]
        return own[torch.from_numpy(rng.integers(0, len(own), size.batch))]

    def batch(members: Sequence[int]) -> "Batch":
        drawn = torch.stack([chosen(client) for client in members]) if mapped else chosen(members[0])
        return pool[drawn].float().div_(255), labels[drawn]

    def step(calculus: "Calculus", w: Any, batches: Any) -> list["torch.Tensor"]:
        return plain.local_step(
            calculus, plain.CLASSIFIER, w, batches, method.inner_steps, ALPHA, BETA, method.curvature, RADIUS
        )

    def local(w: Any, members: Sequence[int]) -> Any:
        turn = torch.func.vmap(partial(step, plain.BY_FUNCTION)) if mapped else partial(step, plain.BY_AUTOGRAD)
        for _ in range(size.steps):
            w = turn(w, [batch(members) for _ in range(derivatives)])
        return w

    def one_round() -> list["torch.Tensor"]:
        members = rng.choice(size.clients, size.cohort, replace=False).tolist()
        if mapped:
            return [a.mean(0) for a in local(plain.stacked(params, size.cohort), members)]
        return plain.averaged([local(params, [client]) for client in members])

    return Side(one_round)
