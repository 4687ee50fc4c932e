"""What a site computes for its clients: their part of a round, and their scores."""

import hashlib
import hmac
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from headstart.core import Algorithm, Channel, Keys, Phase, Round, Size, client_key
from headstart.deploy.messages import Fault, Message, Tag
from headstart.deploy.setup import Setup
from headstart.deploy.trees import WrongArrays, from_arrays, to_arrays
from headstart.problems import Problem
from headstart.simulate import Evaluation, score_client

__all__ = ["Secret", "evaluated", "worked"]


class Secret:
    """Keys for noise that only the site knows.

    A key is made of the site's secret and of all that the answer depends on. Asked the same again, as by a server that
    was started again, a client sends the same noise; asked anything else, it draws new noise. So no two answers can be
    put together to take noise away.
    """

    def __init__(self, secret: bytes, question: Message, start: Tag | None):
        head = question.head
        content = hashlib.sha256()
        for name in sorted(question.arrays):
            content.update(f"{name}:{question.arrays[name].dtype}:".encode())
            content.update(np.ascontiguousarray(question.arrays[name]).tobytes())
        about = f"{head.run}:{head.digest}:{head.method}:{head.round}:{head.phase}:{start}:"
        self._secret, self._about = secret, about.encode() + content.digest()

    def key(self, client: int) -> Array:
        """A client's."""
        bits = hmac.digest(self._secret, self._about + str(client).encode(), "sha256")
        shape = jax.random.key_data(jax.random.key(0)).shape
        return jax.random.wrap_key_data(jnp.asarray(np.frombuffer(bits, np.uint32)[: shape[0]]))


@partial(jax.jit, static_argnames=("phase", "problem", "participation"))
def _work(
    phase: Phase,
    problem: Problem,
    participation: float,
    algorithm: Algorithm,
    wire: Channel | None,
    keys: Keys,
    k: Array,
    down: Any,
    state: Any,
    samples: Any,
    client: Array,
    secret: Array | None,
) -> Any:
    """Compiled once for all clients of a site; numbers are arguments, as in the simulator."""
    round_ = Round(algorithm, problem.objective(), keys, wire, participation)
    return round_.at(k).pack(phase, down, state, problem.view(samples), client, secret)


def worked(
    setup: Setup,
    question: Message,
    states: Mapping[int, Any],
    samples: Callable[[int], Any],
    secret: Secret | None,
) -> tuple[dict[int, Any], dict[str, np.ndarray]]:
    """What clients remember after a phase of a round, as far as it has changed, and what they send."""
    down = from_arrays(question.arrays, setup.start.down, "down")
    phase, round_ = Phase(question.head.phase), setup.round
    remembered: dict[int, Any] = {}
    arrays: dict[str, np.ndarray] = {}
    for client, state in states.items():
        result = _work(
            phase, setup.problem, round_.participation, round_.algorithm, round_.wire, round_.keys,
            jnp.asarray(question.head.round, jnp.int32), down, state, samples(client),
            jnp.asarray(client, jnp.int32), None if secret is None else secret.key(client),
        )  # fmt: skip
        if result.state is not None:
            remembered[client] = result.state
        arrays |= to_arrays(result.up, f"{client}/up") | to_arrays(result.metrics, f"{client}/metrics")
    return remembered, arrays


@partial(jax.jit, static_argnames=("problem", "steps", "size"))
def _score(
    problem: Problem,
    steps: tuple[int, ...],
    size: Size,
    algorithm: Algorithm,
    down: Any,
    state: Any,
    support: Any,
    query: Any,
    key: Array,
) -> list[dict[str, Array]]:
    return score_client(problem, algorithm, down, state, support, query, key, steps, size)


def evaluated(
    setup: Setup, question: Message, states: Mapping[int, Any], samples: Callable[[str, int], Any]
) -> dict[str, np.ndarray]:
    """The scores of clients after each number of steps, by the position of that number and the metric's name."""
    try:
        said = question.said
        evaluation = Evaluation(steps=tuple(said["steps"]), batch_size=said["size"], inner_lr=said["inner_lr"])
    except (KeyError, TypeError) as error:
        raise WrongArrays(Fault("refused", "it does not say how to evaluate")) from error
    algorithm = evaluation.adapting(setup.algorithm)
    server = setup.round.of_method(setup.start.server)
    like = jax.eval_shape(algorithm.broadcast, server, setup.evaluation_key)
    down = from_arrays(question.arrays, like, "down")
    scores = []
    for client, state in states.items():
        values = _score(
            setup.problem, evaluation.steps, evaluation.batch_size, algorithm, down, setup.round.of_method(state),
            samples("support", client), samples("query", client), client_key(setup.evaluation_key, client),
        )  # fmt: skip
        scores.append(jax.device_get(values))
    return {
        f"{position}/{name}": np.asarray([each[position][name] for each in scores], np.float64)
        for position in range(len(evaluation.steps))
        for name in scores[0][position]
    }
