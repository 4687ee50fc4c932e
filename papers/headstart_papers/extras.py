"""What some experiments look at beside clients' scores."""

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from headstart.core import Algorithm, Params, Purpose, client_key, run_key
from headstart.data import Clients, WaveTasks
from headstart.simulate import Simulation, Sweep

if TYPE_CHECKING:
    from headstart_papers.record import Unit
    from headstart_papers.unit import Job

__all__ = ["EXTRAS", "MEASURES"]

FITTED_TASKS = 5
TIMED_ROUNDS = 1000


def fits(job: "Job", done: Sweep, unit: "Unit") -> dict[str, Any]:
    """The adapted models of the first seed as curves over the first unseen tasks, for every point of the grid."""
    evaluation, problem = job.final or job.experiment.settings.evaluate, job.experiment.problem
    tested = job.experiment.federation.tasks or job.experiment.federation
    x = jnp.linspace(-5.0, 5.0, 81)[:, None]
    steps = max(evaluation.steps)
    key = run_key(unit.seeds[0], Purpose.EVALUATE)
    tasks = tested.trained + np.arange(FITTED_TASKS)

    @jax.jit
    def fitted(algorithm: Algorithm, server: Any, clients: Clients) -> Array:
        down = algorithm.broadcast(server, key)

        def curve(client: Array) -> Array:
            own = algorithm.personalize(
                problem.objective(), down, algorithm.init_client(down.params), clients.view("support", client),
                client_key(key, client), steps, evaluation.batch_size,
            )  # fmt: skip
            return problem.model.apply(own, x)[:, 0]  # type: ignore[attr-defined]

        return jax.lax.map(curve, jnp.asarray(tasks, jnp.int32))

    def of_point(point: int) -> list[list[float]]:
        server = jax.tree.map(lambda leaf: leaf[point * len(unit.seeds)], done.server)
        return [_short(curve) for curve in fitted(evaluation.adapting(job.algorithms[point]), server, tested.clients)]

    truth = jax.tree.map(lambda leaf: np.asarray(leaf)[tasks], tested.clients.tasks)  # type: ignore[union-attr]
    return {
        "x": _short(x[:, 0]),
        "amplitude": _short(truth["amplitude"]),
        "phase": _short(truth["phase"]),
        "curves": [of_point(point) for point in range(len(job.points))],
    }


def milliseconds(job: "Job", done: Sweep, unit: "Unit") -> list[float]:
    """Milliseconds an iteration (a local step) takes in a run of its own; five repetitions."""
    simulation = Simulation(
        job.algorithms[0],
        job.experiment.problem,
        job.experiment.federation,
        cohort=job.experiment.settings.train.cohort,
        seed=unit.seeds[0],
        devices=1,
    )
    rounds = min(TIMED_ROUNDS, job.experiment.settings.train.rounds)
    times = []
    for repetition in range(6):
        began = time.perf_counter()
        simulation.advance(rounds, rounds)
        if repetition:  # the first compiles
            times.append(round(1000 * (time.perf_counter() - began) / (rounds * job.local_steps), 5))
    return times


def gradient_norm(unit: "Unit") -> Callable[[Params], dict[str, Array]]:
    """The norm of the exact gradient of the meta-objective, on data of which it is known."""
    settings = {key: value for key, value in unit.settings["data"].items() if key != "name"}
    return WaveTasks.spread_out(**settings).gradient_norm(unit.settings["common"]["inner_lr"])


def _short(values: Any) -> list[float]:
    return [float(f"{value:.4g}") for value in np.asarray(values).tolist()]


EXTRAS: Mapping[str, Callable[["Job", Sweep, "Unit"], Any]] = {"fits": fits, "milliseconds": milliseconds}
"""By the name a record asks for them."""

MEASURES: Mapping[str, Callable[["Unit"], Callable[[Params], dict[str, Array]]]] = {"gradient-norm": gradient_norm}
"""Numbers of the shared model itself, by name."""
