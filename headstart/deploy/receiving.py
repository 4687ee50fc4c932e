"""What the server makes of a round: what it sends, which answers it takes, and its next state."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from headstart.core import Algorithm, Channel, Keys, Phase, Round, RoundAt, Wired
from headstart.deploy.messages import Fault, Message
from headstart.deploy.setup import Setup
from headstart.deploy.trees import WrongArrays, below, by_client, from_arrays, length, refuse_infinite
from headstart.problems import Problem
from headstart.wire import Wire
from headstart.wire.clip import Clipping
from headstart.wire.noise import GaussianMechanism

__all__ = ["Received", "closed", "norm_bound", "opened", "receive"]

ROUNDING = 1.001
"""By how much a clipped update may be longer than the norm, for it was computed in single precision."""


@dataclass
class Received:
    """What has come of one phase of a round."""

    phase: Phase
    cohort: list[int]
    clients: list[int] = field(default_factory=list)
    """Whose updates count, in the order of the cohort."""
    sites: list[str] = field(default_factory=list)
    ups: dict[int, Any] = field(default_factory=dict)
    metrics: dict[int, Any] = field(default_factory=dict)
    bytes_up: int = 0
    bytes_down: int = 0


def opened(setup: Setup, k: int, server: Any) -> Any:
    """What is sent to everyone who takes part in round ``k``."""
    round_ = setup.round
    return _open(setup.problem, round_.participation, round_.algorithm, round_.wire, round_.keys, _number(k), server)


def receive(
    setup: Setup,
    k: int,
    received: Received,
    members: Mapping[str, list[int]],
    answers: Mapping[str, Message],
    bound: float | None,
) -> dict[str, Fault]:
    """Take the answers that are what was asked for; the rest is returned, with what is wrong with it."""
    faults = {}
    for site, answer in answers.items():
        try:
            told = by_client(answer.arrays, members[site])
            taken = {client: _taken(setup, k, received.phase, told[client], client, bound) for client in members[site]}
        except WrongArrays as error:
            faults[site] = error.fault
            continue
        received.sites.append(site)
        received.ups |= {client: up for client, (up, _) in taken.items()}
        received.metrics |= {client: metrics for client, (_, metrics) in taken.items()}
    received.clients = [client for client in received.cohort if client in received.ups]
    return faults


def _taken(
    setup: Setup, k: int, phase: Phase, arrays: Mapping[str, np.ndarray], client: int, bound: float | None
) -> tuple[Any, dict[str, Any]]:
    """One client's update and what it reports, once all of it has been looked at."""
    sent, round_ = setup.sent[phase], setup.round
    metrics = from_arrays(below(arrays, f"{client}/metrics"), sent.metrics, f"{client}/metrics")
    payload = from_arrays(
        {name: array for name, array in arrays.items() if not name.startswith(f"{client}/metrics")}, sent.up,
        f"{client}/up",
    )  # fmt: skip
    refuse_infinite(payload)
    refuse_infinite(metrics)
    up = payload
    if round_.wire is not None and phase is Phase.WORK:
        like = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), setup.start.ups[-1])
        up = jax.device_get(_unpack(phase, setup.problem, round_.participation, round_.algorithm, round_.wire,
                                    round_.keys, _number(k), payload, like))  # fmt: skip
        refuse_infinite(up)
    size = length(up.method if isinstance(up, Wired) else up)
    if bound is not None and not size <= bound:
        raise WrongArrays(Fault("too large", f"the norm of client {client}'s update is {size:.3g}, above {bound:.3g}"))
    return up, metrics


def norm_bound(wire: Any, announced: Any, largest: float | None) -> float | None:
    """The largest norm that an update may have: as set, or as the wire clips it where nothing after that adds to it."""
    bound = largest
    parts = wire.parts if isinstance(wire, Wire) else ()
    for place, part in enumerate(parts):
        noised = isinstance(part, GaussianMechanism) and part.noise.at == "client"
        clip = part.clip if isinstance(part, GaussianMechanism) else part
        if isinstance(clip, Clipping) and not noised and not any(after.may_lengthen() for after in parts[place + 1 :]):
            clipped = float(clip.bound(announced[place])) * ROUNDING
            bound = clipped if bound is None else min(bound, clipped)
    return bound


def closed(
    setup: Setup, k: int, server: Any, phases: list[Received], counts: np.ndarray | None, noise_key: Array | None
) -> tuple[Any, dict[str, Any]]:
    """The server's next state, and the mean of what clients report of their work.

    ``counts`` are clients' numbers of training samples, where they count by those.
    """
    stacked, weights = [], []
    for received in phases:
        members = received.clients
        filling = setup.cohort - len(members)
        rows = [received.ups[client] for client in members]
        stacked.append(jax.tree.map(lambda *leaves: np.stack([*leaves, *[np.zeros_like(leaves[0])] * filling]), *rows))  # noqa: B023
        weight = np.ones(len(members)) if counts is None else counts[members].astype(float)
        weights.append(jnp.asarray(np.pad(weight, (0, filling)), jnp.result_type(float)))
    last = phases[-1]
    reported = jax.tree.map(
        lambda *values: np.stack([*values, *[np.zeros_like(values[0])] * (setup.cohort - len(last.clients))]),
        *[last.metrics[client] for client in last.clients],
    )
    round_ = setup.round
    state, metrics = _close(
        setup.problem, round_.participation, round_.algorithm, round_.wire, round_.keys, _number(k), server,
        tuple(stacked), tuple(weights), _number(len(last.clients)), reported, noise_key,
    )  # fmt: skip
    return state, jax.device_get(metrics)


def _number(value: int) -> Array:
    return jnp.asarray(value, jnp.int32)


def _at(
    problem: Problem, participation: float, algorithm: Algorithm, wire: Channel | None, keys: Keys, k: Array
) -> RoundAt:
    return Round(algorithm, problem.objective(), keys, wire, participation).at(k)


@partial(jax.jit, static_argnames=("problem", "participation"))
def _open(
    problem: Problem,
    participation: float,
    algorithm: Algorithm,
    wire: Channel | None,
    keys: Keys,
    k: Array,
    server: Any,
) -> Any:
    return _at(problem, participation, algorithm, wire, keys, k).open(server)


@partial(jax.jit, static_argnames=("phase", "problem", "participation"))
def _unpack(
    phase: Phase,
    problem: Problem,
    participation: float,
    algorithm: Algorithm,
    wire: Channel,
    keys: Keys,
    k: Array,
    payload: Any,
    like: Any,
) -> Any:
    return _at(problem, participation, algorithm, wire, keys, k).unpack(phase, payload, like)


@partial(jax.jit, static_argnames=("problem", "participation"))
def _close(
    problem: Problem,
    participation: float,
    algorithm: Algorithm,
    wire: Channel | None,
    keys: Keys,
    k: Array,
    server: Any,
    stacked: tuple[Any, ...],
    weights: tuple[Array, ...],
    members: Array,
    reported: Any,
    noise_key: Array | None,
) -> tuple[Any, Any]:
    now = _at(problem, participation, algorithm, wire, keys, k)
    if noise_key is not None:
        now = now._replace(keys=now.keys._replace(receiving=noise_key))
    means = tuple(now.combine(ups, weight) for ups, weight in zip(stacked, weights, strict=True))
    bare = Round(algorithm, problem.objective(), keys, None, participation).at(k)
    return now.close(server, means, members), bare.combine(reported, weights[-1])
