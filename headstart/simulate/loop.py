"""The debugging backend: one client at a time, nothing compiled, and every failure named."""

from collections.abc import Callable
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from headstart.core import Algorithm, client_key, round_key, tree, weighing
from headstart.data import Clients
from headstart.errors import ClientFailure, HeadstartError
from headstart.problems import Problem
from headstart.simulate.rounds import Keys, RoundPlan, RunState, cohort_weights

__all__ = ["run_loop"]


def run_loop(
    problem: Problem,
    plan: RoundPlan,
    algorithm: Algorithm,
    clients: Clients,
    state: RunState,
    keys: Keys,
    cohorts: Array,
    first: int,
    rounds: int,
    name: Callable[[int], str],
) -> tuple[RunState, dict[str, Array]]:
    """What ``run_chunk`` does, round by round and client by client, in plain Python."""
    history = []
    with jax.disable_jit():
        for i in range(rounds):
            state, metrics = _round(problem, plan, algorithm, clients, state, keys, cohorts[i], first + i, name)
            history.append(metrics)
    return state, jax.tree.map(lambda *values: jnp.stack(values), *history)


def _round(
    problem: Problem,
    plan: RoundPlan,
    algorithm: Algorithm,
    clients: Clients,
    state: RunState,
    keys: Keys,
    cohort: Array,
    k: int,
    name: Callable[[int], str],
) -> tuple[RunState, dict[str, Array]]:
    loss = weighing(problem.loss)
    down = algorithm.broadcast(state.server, round_key(keys.server, k))
    weights = cohort_weights(plan, clients, cohort)
    share = weights / jnp.sum(weights)
    states, sent = state.clients, []
    for member, part in zip(np.asarray(cohort).tolist(), share, strict=True):
        if member >= plan.clients:
            continue
        result = _client(loss, algorithm, clients, down, states, round_key(keys.client, k), member, k, name)
        states = jax.tree.map(lambda all_, new, i=member: all_.at[i].set(new), states, result.state)
        sent.append(tree.scale(part, (result.up, result.metrics)))
    mean_up, metrics = reduce(tree.add, sent)
    wire = {"bytes_down": tree.nbytes(down), "bytes_up": tree.nbytes(mean_up)}
    metrics = metrics | {n: jnp.asarray(size, jnp.int32) for n, size in wire.items()}
    return RunState(algorithm.server_update(state.server, mean_up), states), metrics


def _client(
    loss: Any,
    algorithm: Algorithm,
    clients: Clients,
    down: Any,
    states: Any,
    key: Array,
    member: int,
    k: int,
    name: Callable[[int], str],
) -> Any:
    """One client's update; an exception or a value that is not finite becomes an error that names it."""
    client = jnp.asarray(member, jnp.int32)
    own = jax.tree.map(lambda all_: all_[member], states)
    try:
        result = algorithm.client_update(loss, down, own, clients.view("train", client), client_key(key, client))
    except HeadstartError:
        raise
    except Exception as error:
        raise ClientFailure(name(member), k, f"{type(error).__name__}: {error}") from error
    for path, leaf in jax.tree_util.tree_leaves_with_path(result):
        if not np.isfinite(np.asarray(leaf)).all():
            where = jax.tree_util.keystr(path).lstrip(".")
            raise ClientFailure(name(member), k, f"{where} is not finite; lower the step sizes or look at its data.")
    return result
