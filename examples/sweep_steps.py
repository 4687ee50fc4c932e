"""Which step sizes? A grid of them, each with several seeds, trained as one compiled program.

Validation clients choose; new clients then say what the choice is worth. Run it with
``python examples/sweep_steps.py``; it takes about a minute.
"""

from itertools import product

import numpy as np

import headstart as hs


def main(rounds: int = 60, sizes: tuple[float, ...] = (0.01, 0.03, 0.1, 0.3), seeds: int = 3) -> tuple[float, float]:
    """The best inner and outer step sizes of Per-FedAvg on handwritten digits."""
    grid = list(product(sizes, sizes))
    done = hs.sweep(
        [hs.per_fedavg(inner_lr=inner, outer_lr=outer, local_steps=4, batch_size=20) for inner, outer in grid],
        hs.Classification(hs.MLP(inputs=(28, 28), outputs=10, hidden=(32,))),
        hs.data.mnist_small(clients=40, held_out=20, validation=10),
        seeds=range(seeds),
        rounds=rounds,
        cohort=5,
        evaluation=hs.Evaluation(steps=(1,), every=rounds),
    )
    chosen = done.scores("accuracy", steps=1, group="validation").mean(axis=1)
    judged = done.scores("accuracy", steps=1, group="new")
    table = np.where(np.isnan(chosen), 0, chosen).reshape(len(sizes), len(sizes))
    print("accuracy of validation clients after one step; rows are inner, columns outer step sizes")
    print("       " + "".join(f"{outer:8g}" for outer in sizes))
    for inner, row in zip(sizes, table, strict=True):
        print(f"{inner:7g}" + "".join(f"{value:8.1%}" for value in row))
    best = int(np.nanargmax(chosen))
    print(f"best: inner_lr = {grid[best][0]:g}, outer_lr = {grid[best][1]:g}; new clients then have")
    print(f"accuracy {judged[best].mean():.1%}, from {judged[best].min():.1%} to {judged[best].max():.1%} over seeds")
    return grid[best]


if __name__ == "__main__":
    main()
