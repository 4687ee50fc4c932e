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
from headstart.errors import UsageError
from headstart.problems import Examples, SupervisedTask

__all__ = ["mnist_small", "sine"]


def mnist_small(
    *, clients: int = 50, held_out: int = 10, validation: int = 0, a: int = 14, test_a: int = 7, seed: int = 0
) -> Federation:
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
    return replace(partition, held_out=held_out, validation=validation).federation()


def sine(
    *,
    clients: int = 25,
    held_out: int = 5,
    validation: int = 0,
    owners: int | None = None,
    support_size: int = 10,
    query_size: int = 100,
    noise: float = 0.0,
    held_out_amplitudes: tuple[float, float] = (1.0, 5.0),
    held_out_phases: tuple[float, float] = (1.0, 5.0),
    seed: int = 0,
) -> Federation:
    """Sine waves ``y = A sin(x + b pi / 5)``, ``x`` uniform in [-5, 5]: wang section 6.1.

    The training tasks have amplitudes A = 1 .. 5 and phases b = 1 .. 5; A and b of held-out tasks are drawn
    uniformly from ``held_out_amplitudes`` and ``held_out_phases``. A task is adapted to on ``support_size`` samples
    and scored on ``query_size`` others.

    A client is a task, unless ``owners`` is given: then the training tasks are dealt out at random and evenly to so
    many clients, who still are judged on single tasks. Gao section 5.1 has 5 owners and draws its 600 held-out tasks
    from amplitudes (0.1, 5) and phases (0, 5).
    """
    checks.whole("clients", clients, 1)
    checks.whole("held_out", held_out, 0)
    checks.at_least("noise", noise, 0)
    _check_range("held_out_amplitudes", held_out_amplitudes)
    _check_range("held_out_phases", held_out_phases)
    grid = np.arange(clients)
    amplitude_key, phase_key, owner_key = jax.random.split(run_key(seed, Purpose.DATA), 3)
    amplitudes = _uniform(amplitude_key, held_out, held_out_amplitudes)
    phases = _uniform(phase_key, held_out, held_out_phases)
    tasks = {
        "amplitude": jnp.concatenate([1.0 + grid % 5, amplitudes]),
        "phase": np.pi / 5 * jnp.concatenate([1.0 + grid // 5 % 5, phases]),
    }
    if noise:
        tasks["noise"] = jnp.full(clients + held_out, noise)
    drawn = Federation.from_tasks(
        tasks,
        _draw_noisy_sine if noise else _draw_sine,
        support_size=support_size,
        query_size=query_size,
        held_out=held_out,
        task=SupervisedTask("regression", 1, 1),
    )
    federation = replace(drawn, validation=validation)
    if owners is None:
        return federation
    checks.whole("owners", owners, 1)
    if owners > clients:
        raise UsageError(
            f"owners = {owners} leaves some without a task: there are {clients}.",
            f"Set owners to at most {clients}, or clients, the number of tasks, to {owners} or more.",
        )
    dealt = np.asarray(jax.random.permutation(owner_key, clients))
    return federation.grouped([group.tolist() for group in np.array_split(dealt, owners)])


def _check_range(name: str, ends: tuple[float, float]) -> None:
    if len(ends) != 2 or not 0 <= ends[0] <= ends[1] < np.inf:
        raise UsageError(f"{name} = {ends!r} is not a range.", "Give a lowest value of 0 or more, and a highest one.")


def _uniform(key: Array, count: int, ends: tuple[float, float]) -> Array:
    return jax.random.uniform(key, (count,), minval=ends[0], maxval=ends[1])


def _draw_sine(task: dict[str, Array], key: Array, size: int) -> Examples:
    x_key, _ = jax.random.split(key)
    x = jax.random.uniform(x_key, (size, 1), minval=-5.0, maxval=5.0)
    return Examples(x, task["amplitude"] * jnp.sin(x + task["phase"]))


def _draw_noisy_sine(task: dict[str, Array], key: Array, size: int) -> Examples:
    # Not for noise = 0 as well: random numbers are a good part of what a step on one sample costs.
    x, y = _draw_sine(task, key, size)
    _, noise_key = jax.random.split(key)
    return Examples(x, y + task["noise"] * jax.random.normal(noise_key, x.shape))
