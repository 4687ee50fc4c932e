"""The federations that need no download: a real subset of MNIST, and generated sine tasks."""

from dataclasses import replace
from importlib import resources

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from headstart.core import Purpose, checks, run_key
from headstart.data.federation import Federation
from headstart.data.partitions.two_groups import TwoGroups
from headstart.data.samples import Samples
from headstart.problems import Examples, SupervisedTask

__all__ = ["mnist_small", "sine"]


def mnist_small(*, clients: int = 50, held_out: int = 10, a: int = 14, test_a: int = 7, seed: int = 0) -> Federation:
    """4,000 training and 2,000 test images of MNIST, dealt out by fallah's two-group split.

    Half of the clients know the digits 0-4 evenly; each of the others has mostly one of the digits 5-9 and a
    few of one of 0-4. Clients adapt on their training images and are scored on their test images.
    """
    with resources.files("headstart.data").joinpath("mnist_small.npz").open("rb") as file:
        arrays = dict(np.load(file).items())
    samples = Samples(
        "mnist-small",
        x=np.concatenate([arrays["x_train"], arrays["x_test"]]),
        y=np.concatenate([arrays["y_train"], arrays["y_test"]]),
        classes=tuple("0123456789"),
        test=np.repeat([False, True], [len(arrays["y_train"]), len(arrays["y_test"])]),
    )
    # The split mixes both groups, so that the last clients are as good as any.
    partition = TwoGroups(clients=clients, a=a, test_a=test_a)(samples, seed)
    return replace(partition, held_out=held_out).federation()


def sine(
    *,
    clients: int = 25,
    held_out: int = 5,
    support_size: int = 10,
    query_size: int = 100,
    noise: float = 0.0,
    seed: int = 0,
) -> Federation:
    """Sine waves ``y = A sin(x + phase)``, ``x`` uniform in [-5, 5]: wang section 6.1.

    The training clients have amplitudes 1 .. 5 and phases ``i pi / 5``; amplitudes and phases of held-out
    clients are drawn uniformly from the same ranges. A client adapts on ``support_size`` samples and is scored on
    ``query_size`` others.
    """
    checks.whole("clients", clients, 1)
    checks.whole("held_out", held_out, 0)
    checks.at_least("noise", noise, 0)
    grid = np.arange(clients)
    amplitude_key, phase_key = jax.random.split(run_key(seed, Purpose.DATA))
    tasks = {
        "amplitude": jnp.concatenate(
            [1.0 + grid % 5, jax.random.uniform(amplitude_key, (held_out,), minval=1.0, maxval=5.0)]
        ),
        "phase": jnp.concatenate(
            [np.pi / 5 * (1 + grid // 5 % 5), jax.random.uniform(phase_key, (held_out,), minval=0.0, maxval=np.pi)]
        ),
        "noise": jnp.full(clients + held_out, noise),
    }
    return Federation.from_tasks(
        tasks,
        _draw_sine,
        support_size=support_size,
        query_size=query_size,
        held_out=held_out,
        task=SupervisedTask("regression", 1, 1),
    )


def _draw_sine(task: dict[str, Array], key: Array, size: int) -> Examples:
    x_key, noise_key = jax.random.split(key)
    x = jax.random.uniform(x_key, (size, 1), minval=-5.0, maxval=5.0)
    y = task["amplitude"] * jnp.sin(x + task["phase"]) + task["noise"] * jax.random.normal(noise_key, x.shape)
    return Examples(x, y)
