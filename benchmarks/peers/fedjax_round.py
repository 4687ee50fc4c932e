"""A round of FedAvg beside FedJAX's, taking turns in one process: the bar is 4 times as fast.

    python -m venv .cache/fedjax && .cache/fedjax/bin/pip install . 'fedjax @ git+https://github.com/google/fedjax'
    .cache/fedjax/bin/python -m benchmarks.peers.fedjax_round [--data DIR]

MNIST, 10 of 50 clients, 10 local steps, batches of 40, MLP 80-60 with ELU. FedJAX is measured with both of its
compiled backends, on one device and on all, and the faster one counts. Each side draws its own cohorts and batches, as
its users have it: FedJAX shuffles on the host, headstart draws in the compiled chunk of 5 rounds. PyPI's FedJAX is
older than its repository. Two functions of JAX that FedJAX's second backend calls are gone, and given back here.
"""

from collections.abc import Callable, Sequence

import fedjax
import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import headstart as hs
from benchmarks.common import dataset, interleaved, parser
from headstart.bench.pools import image_federation
from headstart.bench.turns import cores
from headstart.core import Batch, Params
from headstart.models import Model

CLIENTS, COHORT, STEPS, BATCH, RATE = 50, 10, 10, 40, 0.001
ROUNDS = 5
BAR = 4.0


def ours(problem: hs.Classification, x: np.ndarray, y: np.ndarray) -> Callable[[], object]:
    """Rounds as `headstart run` has them."""
    federation, _ = image_federation(x, y, CLIENTS)
    algorithm = hs.fedavg(RATE, local_steps=STEPS, batch_size=BATCH)
    run = hs.Simulation(algorithm, problem, federation, cohort=COHORT, backend="sharded", devices=cores())
    return lambda: run.advance(ROUNDS, ROUNDS)


def theirs(model: Model, x: np.ndarray, y: np.ndarray, backend: str) -> Callable[[], object]:
    """The same rounds by FedJAX's own FedAvg."""
    scaled = (x / 255).astype(np.float32)
    rows = np.array_split(np.random.default_rng(0).permutation(len(x)), CLIENTS)
    data = fedjax.InMemoryFederatedData({f"{i}".encode(): {"x": scaled[r], "y": y[r]} for i, r in enumerate(rows)})

    def loss(params: Params, batch: dict[str, Batch], key: jax.Array) -> jax.Array:
        logits = model.apply(params, batch["x"])
        return -jax.numpy.mean(jax.numpy.sum(jax.nn.log_softmax(logits) * jax.nn.one_hot(batch["y"], 10), -1))

    with fedjax.for_each_client_backend(backend):
        averaging = fedjax.algorithms.fed_avg.federated_averaging(
            jax.grad(loss),
            fedjax.optimizers.sgd(RATE),
            fedjax.optimizers.sgd(1.0),
            fedjax.ShuffleRepeatBatchHParams(batch_size=BATCH, num_epochs=None, num_steps=STEPS),
        )
    sampler = fedjax.client_samplers.UniformGetClientSampler(data, num_clients=COHORT, seed=0)
    state = averaging.init(model.init(jax.random.key(0)))

    def run() -> None:
        nonlocal state
        for _ in range(ROUNDS):
            state, _ = averaging.apply(state, sampler.sample())
        jax.block_until_ready(state)

    return run


def sharded(shards: Sequence[Params], devices: Sequence[jax.Device]) -> Params:
    """What `jax.device_put_sharded` did."""
    mesh = jax.make_mesh((len(devices),), ("devices",), axis_types=(AxisType.Auto,), devices=devices)
    split = NamedSharding(mesh, PartitionSpec("devices"))
    return jax.tree.map(lambda *each: jax.device_put(np.stack(each), split), *shards)


def replicated(tree: Params, devices: Sequence[jax.Device]) -> Params:
    """What `jax.device_put_replicated` did."""
    return sharded([tree] * len(devices), devices)


def main() -> None:
    options = parser(__doc__).parse_args()
    x, y, source = dataset("mnist", options.data)
    problem = hs.Classification(hs.MLP(x.shape[1], 10))
    sides = {"headstart": ours(problem, x, y)}
    sides |= {f"FedJAX, {name}": theirs(problem.model, x, y, name) for name in ("jit", "pmap")}
    vars(jax).update(device_put_sharded=sharded, device_put_replicated=replicated)
    for side in sides.values():
        side()
    seconds = interleaved(sides, options.repeats)
    own = seconds.pop("headstart") / ROUNDS
    for name, taken in seconds.items():
        print(f"  {name}: {1e3 * taken / ROUNDS:.1f} ms a round")
    ratio = min(seconds.values()) / ROUNDS / own
    print(
        f"FedAvg, MNIST ({source}), {COHORT} clients x {STEPS} steps, batches of {BATCH}: headstart {1e3 * own:.1f} ms "
        f"a round, {ratio:.1f} times as fast as FedJAX (bar: {BAR:g})"
    )


if __name__ == "__main__":
    main()
