"""An iteration of Per-FedAvg with one local step (MAML) on sine waves against a plain PyTorch autograd loop.

    python -m benchmarks.sine_iteration [--repeats 9]

3 of 25 tasks an iteration, three batches of 10 samples, MLP 40-40 ReLU, second order. A model this small costs what
starting its operations costs, so this is what the engine itself adds to an iteration.
"""

import numpy as np

import headstart as hs
from benchmarks.common import interleaved, parser

TASKS, SAMPLES, ITERATIONS, TORCH_ITERATIONS = 3, 10, 2000, 100
ALPHA, BETA = 0.001, 0.001


def torch_iterations(params, count: int):
    """The same in PyTorch: tasks drawn, sampled and differentiated one after the other."""
    from benchmarks import plain_torch as plain

    rng = np.random.default_rng(0)
    for _ in range(count):
        ends = []
        for task in rng.choice(25, TASKS, replace=False):
            batches = [plain.sine_batch(task, SAMPLES) for _ in range(3)]
            ends.append(plain.per_fedavg_step(plain.REGRESSOR, params, *batches, ALPHA, BETA, None))
        params = [sum(same) / TASKS for same in zip(*ends, strict=True)]
    return params


def main() -> None:
    options = parser(__doc__).parse_args()
    from benchmarks import plain_torch as plain

    algorithm = hs.per_fedavg(inner_lr=ALPHA, outer_lr=BETA, local_steps=1, batch_size=SAMPLES)
    model = hs.MLP(inputs=1, outputs=1, hidden=(40, 40), activation="relu")
    ours = hs.Simulation(algorithm, hs.Regression(model), hs.data.sine(clients=25, held_out=0), cohort=TASKS)
    params = plain.parameters(ours.state.server.params)
    sides = {
        "ours": lambda: ours.advance(ITERATIONS, ITERATIONS),
        "theirs": lambda: torch_iterations(params, TORCH_ITERATIONS),
    }
    for side in sides.values():
        side()
    times = interleaved(sides, options.repeats)
    mine, other = times["ours"] / ITERATIONS, times["theirs"] / TORCH_ITERATIONS
    print(f"headstart {1e6 * mine:.0f} us an iteration, PyTorch loop {1e6 * other:.0f} us: {other / mine:.1f}x")


if __name__ == "__main__":
    main()
