"""A round of Per-FedAvg against a plain PyTorch loop doing the same arithmetic.

    python -m benchmarks.per_fedavg_round [--data DIR] [--repeats 9]

10 of 50 clients, 10 local steps, three batches of 40, MLP 80-60 ELU, uint8 images gathered and scaled on the fly.
Bars: MNIST Hessian-free 5x; CIFAR-10 Hessian-free 2.5x, exact 3x. It also shows that both sides compute the same
numbers, and which share of the machine's large matrix product each reaches.
"""

import jax
import numpy as np

import headstart as hs
from benchmarks.common import dataset, interleaved, parser, scaled, sgemm_peak
from headstart.core import FirstOrder, HessianFree, tree

CLIENTS, COHORT, STEPS, BATCH = 50, 10, 10, 40
BARS = {
    ("mnist", "hessian-free"): 5.0,
    ("mnist", "exact"): None,
    ("cifar10", "hessian-free"): 2.5,
    ("cifar10", "exact"): 3.0,
}
ROUNDS = 5
"""Rounds a compiled chunk, as training runs them."""


def flops(features: int, curvature: str) -> float:
    """Multiplications and additions of the matrix products of one round."""
    first, rest = features * 80, 80 * 60 + 60 * 10
    forward, weights, inputs = first + rest, first + rest, rest
    gradient = forward + weights + inputs
    product = forward + inputs + (first + 2 * rest) + (first + 2 * rest) + 2 * rest
    step = 2 * gradient + (2 * gradient if curvature == "hessian-free" else product)
    return 2.0 * BATCH * step * COHORT * STEPS


def torch_round(x, y, rows, params, radius, rng):
    """The same round in PyTorch: the mean of ten clients' models."""
    import torch

    from benchmarks import plain_torch as plain

    def batch(own):
        chosen = own[torch.from_numpy(rng.integers(0, len(own), BATCH))]
        return x[chosen].float().div_(255), y[chosen]

    total = [torch.zeros_like(p) for p in params]
    for client in rng.choice(CLIENTS, COHORT, replace=False):
        w, own = params, rows[client]
        for _ in range(STEPS):
            w = plain.per_fedavg_step(plain.CLASSIFIER, w, batch(own), batch(own), batch(own), 0.01, 0.001, radius)
        total = [a + b / COHORT for a, b in zip(total, w, strict=True)]
    return total


def largest_difference(simulation) -> float:
    """Both sides on the same batches from the same start: the largest difference of a client's move, relative."""
    from benchmarks import plain_torch as plain

    algorithm, params = simulation.algorithm, simulation.state.server.params
    view, key = simulation.federation.clients.view("train", jax.numpy.asarray(3)), jax.random.key(7)
    down = algorithm.broadcast(simulation.state.server, key)
    moved = jax.jit(lambda v: algorithm.client_update(simulation.problem.objective(), down, (), v, key).up.moved)(view)
    ours = tree.add(params, moved)
    w = plain.parameters(params)
    radius = algorithm.curvature.radius if isinstance(algorithm.curvature, HessianFree) else None
    assert not isinstance(algorithm.curvature, FirstOrder)
    for t in range(STEPS):
        episode = algorithm.batches.draw(view, jax.random.fold_in(key, t), 1, algorithm.curvature.looks_at)
        inner, curvature = (jax.tree.map(lambda a: a[0], part) for part in (episode.inner, episode.curvature))
        batches = [plain.to_torch(part) for part in (inner, curvature, episode.outer)]
        w = plain.per_fedavg_step(plain.CLASSIFIER, w, *batches, 0.01, 0.001, radius)
    start = [p.numpy() for p in plain.parameters(params)]
    moves = [(a.numpy() - s, b.numpy() - s) for a, b, s in zip(w, plain.parameters(ours), start, strict=True)]
    return max(np.abs(a - b).max() / np.abs(a).max() for a, b in moves)


def main() -> None:
    options = parser(__doc__).parse_args()
    hs.use_cpu_devices(2)
    import torch

    from benchmarks import plain_torch as plain

    print(f"{'':28}{'headstart':>11}{'PyTorch loop':>14}{'ratio':>8}{'bar':>6}{'of peak':>14}{'difference':>12}")
    for name in ("mnist", "cifar10"):
        x, y, source = dataset(name, options.data)
        rows = np.array_split(np.random.default_rng(0).permutation(len(x)), CLIENTS)
        federation = hs.Federation.from_arrays(hs.Examples(x, y), rows, rows, transform=scaled)
        problem = hs.Classification(hs.MLP(x.shape[1], 10))
        images, labels = torch.from_numpy(x), torch.from_numpy(y.astype(np.int64))
        tensors = [torch.from_numpy(own) for own in rows]
        for curvature in ("hessian-free", "exact"):
            chosen = HessianFree(1e-3) if curvature == "hessian-free" else curvature
            algorithm = hs.per_fedavg(local_steps=STEPS, batch_size=BATCH, curvature=chosen)
            simulation = hs.Simulation(algorithm, problem, federation, cohort=COHORT, backend="sharded", devices=2)
            difference = largest_difference(simulation)
            params = plain.parameters(simulation.state.server.params)
            radius = 1e-3 if curvature == "hessian-free" else None
            rng = np.random.default_rng(0)

            def ours(simulation=simulation):
                simulation.advance(ROUNDS, ROUNDS)

            def theirs(images=images, labels=labels, tensors=tensors, params=params, radius=radius, rng=rng):
                torch_round(images, labels, tensors, params, radius, rng)

            ours(), theirs()
            times = interleaved({"ours": ours, "theirs": theirs}, options.repeats)
            peak = sgemm_peak()
            seconds = {"ours": times["ours"] / ROUNDS, "theirs": times["theirs"]}
            shares = [flops(x.shape[1], curvature) / seconds[side] / 1e9 / peak for side in ("ours", "theirs")]
            bar = BARS[name, curvature]
            print(
                f"{name + ', ' + curvature:28}{1e3 * seconds['ours']:8.1f} ms{1e3 * seconds['theirs']:11.1f} ms"
                f"{seconds['theirs'] / seconds['ours']:7.1f}x{f'{bar}x' if bar else '-':>6}"
                f"{shares[0]:7.0%} /{shares[1]:4.0%}{difference:12.1e}"
            )
        print(f"  {source}; large matrix product {peak:.0f} GFLOP/s")


if __name__ == "__main__":
    main()
