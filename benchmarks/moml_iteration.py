"""A meta-iteration of MOML on sine waves against a plain PyTorch autograd loop, and MOML v2 against v1.

    python -m benchmarks.moml_iteration [--repeats 9]

3 tasks an iteration, K = 1 and 10 samples a batch, MLP 40-40 ReLU, second order. Bars: v1 20x faster than the loop;
v2 within 1.25x of v1 at n = 25 and n = 10,000 tasks.
"""

import numpy as np

import headstart as hs
from benchmarks.common import interleaved, parser

TASKS, ITERATIONS, TORCH_ITERATIONS = 3, 400, 60
MODEL = hs.MLP(inputs=1, outputs=1, hidden=(40, 40), activation="relu")


def simulation(algorithm, tasks: int):
    return hs.Simulation(algorithm, hs.Regression(MODEL), hs.data.sine(clients=tasks, held_out=0), cohort=TASKS)


def torch_iterations(params, samples: int, count: int):
    """MOML v1 in PyTorch: tasks drawn, sampled, remembered and differentiated one after the other."""
    from benchmarks import plain_torch as plain

    loss, alpha, eta, beta = plain.REGRESSOR, 0.01, 0.001, 0.5
    memories: list = [None] * 25
    rng = np.random.default_rng()

    def batch(task):
        return plain.sine_batch(task, samples)

    for _ in range(count):
        total = None
        for task in rng.choice(25, TASKS, replace=False):
            v = [a - alpha * b for a, b in zip(params, plain.gradient(loss, params, batch(task)), strict=True)]
            old = memories[task]
            u = v if old is None else [(1 - beta) * a + beta * b for a, b in zip(old, v, strict=True)]
            memories[task] = u
            d = plain.pull(loss, params, plain.gradient(loss, u, batch(task)), batch(task), alpha, None)
            total = d if total is None else [a + b for a, b in zip(total, d, strict=True)]
        params = [a - eta / TASKS * b for a, b in zip(params, total, strict=True)]
    return params


def main() -> None:
    options = parser(__doc__).parse_args()
    from benchmarks import plain_torch as plain

    print("a meta-iteration of MOML v1, 3 tasks, second order")
    for samples in (1, 10):
        ours = simulation(hs.MOML(batch_size=samples), 25)
        params = plain.parameters(ours.state.server.params)
        sides = {
            "ours": lambda s=ours: s.advance(ITERATIONS, ITERATIONS),
            "theirs": lambda p=params, k=samples: torch_iterations(p, k, TORCH_ITERATIONS),
        }
        for side in sides.values():
            side()
        times = interleaved(sides, options.repeats)
        mine, other = times["ours"] / ITERATIONS, times["theirs"] / TORCH_ITERATIONS
        print(f"  K = {samples:<3} headstart {1e6 * mine:7.0f} us   PyTorch loop {1e6 * other:7.0f} us"
              f"   ratio {other / mine:5.1f}x (bar: 20x)")  # fmt: skip
    print("MOML v2 against v1, K = 10")
    for tasks in (25, 10_000):
        pair = {
            "v1": simulation(hs.MOML(batch_size=10), tasks),
            "v2": simulation(hs.MOMLv2(batch_size=10), tasks),
        }
        sides = {name: (lambda s=s: s.advance(ITERATIONS, ITERATIONS)) for name, s in pair.items()}
        for side in sides.values():
            side()
        times = interleaved(sides, options.repeats)
        first, second = (1e6 * times[name] / ITERATIONS for name in ("v1", "v2"))
        print(f"  n = {tasks:<6,} v1 {first:6.0f} us   v2 {second:6.0f} us   ratio {second / first:.2f} (bar: 1.25)")


if __name__ == "__main__":
    main()
