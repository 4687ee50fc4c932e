"""Both sides of the comparison compute the same numbers."""

import operator

import jax
import numpy as np
import pytest

import headstart as hs
from headstart.core import HessianFree, tree

torch = pytest.importorskip("torch")
plain = pytest.importorskip("headstart.bench.plain")

STEPS, BATCH, RADIUS = 2, 8, 1e-3


def taken(batches: object, steps: int) -> list:
    """One of the stacked batches for each inner step."""
    return [plain.to_torch(jax.tree.map(operator.itemgetter(j), batches)) for j in range(steps)]


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize(
    ("inner_steps", "curvature"), [(0, "first-order"), (1, "first-order"), (1, "hessian-free"), (2, "exact")]
)
def test_a_local_step_of_a_perceptron(inner_steps: int, curvature: str, mapped: bool) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.random((30, 6), np.float32), rng.integers(0, 3, 30, dtype=np.int32)
    federation = hs.Federation.from_arrays(hs.Examples(x, y), [np.arange(30)], [np.arange(30)])
    problem = hs.Classification(hs.MLP(6, 3))
    chosen = HessianFree(RADIUS) if curvature == "hessian-free" else curvature
    algorithm = hs.MetaFL(
        inner_steps=inner_steps, inner_lr=0.1, outer_lr=0.1, local_steps=STEPS, batch_size=BATCH, curvature=chosen
    )
    params, view, key = problem.init(jax.random.key(0)), federation.clients.view("train", 0), jax.random.key(7)
    down = algorithm.broadcast(algorithm.init_server(params), key)
    ours = tree.add(params, algorithm.client_update(problem.objective(), down, (), view, key).up.moved)
    w = plain.parameters(params)
    for t in range(STEPS):
        episode = algorithm.batches.draw(view, jax.random.fold_in(key, t), inner_steps, algorithm.curvature.looks_at)

        batches = [*taken(episode.inner, inner_steps), plain.to_torch(episode.outer)]
        if curvature != "first-order":
            batches += reversed(taken(episode.curvature, inner_steps))

        def step(calculus, w, batches):
            return plain.local_step(calculus, plain.CLASSIFIER, w, batches, inner_steps, 0.1, 0.1, curvature, RADIUS)

        if mapped:
            together = torch.func.vmap(lambda w, b: step(plain.BY_FUNCTION, w, b))
            w = [a[0] for a in together(plain.stacked(w, 1), [tuple(a[None] for a in b) for b in batches])]
        else:
            w = step(plain.BY_AUTOGRAD, w, batches)
    for a, b, start in zip(w, plain.parameters(ours), plain.parameters(params), strict=True):
        assert float((a - b).abs().max()) < 2e-3 * float((a - start).abs().max()) + 1e-7
