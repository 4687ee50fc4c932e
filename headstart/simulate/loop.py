"""The debugging backend: one client at a time, nothing compiled, and every failure named."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from headstart.core import Algorithm, ClientResult, Objective, RefreshingAlgorithm, client_key, round_key, tree
from headstart.data import Clients
from headstart.errors import ClientFailure, HeadstartError
from headstart.problems import Problem
from headstart.simulate.rounds import Cohorts, Keys, RoundPlan, RunState, cohort_weights, wire_bytes

__all__ = ["run_loop"]


def run_loop(
    problem: Problem,
    plan: RoundPlan,
    algorithm: Algorithm,
    clients: Clients,
    state: RunState,
    keys: Keys,
    cohorts: Cohorts,
    first: int,
    rounds: int,
    name: Callable[[int], str],
) -> tuple[RunState, dict[str, Array]]:
    """What ``run_chunk`` does, round by round and client by client, in plain Python."""
    objective = problem.objective()
    history = []
    with jax.disable_jit():
        for i in range(rounds):
            cohort = jax.tree.map(lambda rows, i=i: rows[i], cohorts)
            state, metrics = _round(objective, plan, algorithm, clients, state, keys, cohort, first + i, name)
            history.append(metrics)
    return state, jax.tree.map(lambda *values: jnp.stack(values), *history)


def _round(
    objective: Objective,
    plan: RoundPlan,
    algorithm: Algorithm,
    clients: Clients,
    state: RunState,
    keys: Keys,
    cohort: Cohorts,
    k: int,
    name: Callable[[int], str],
) -> tuple[RunState, dict[str, Array]]:
    down = algorithm.broadcast(state.server, round_key(keys.server, k))
    everyone = state.clients
    work = partial(_work, objective, plan, clients, down, k, name)
    refreshed: Any = None
    if isinstance(algorithm, RefreshingAlgorithm):
        assert cohort.refresh is not None
        update = partial(algorithm.refresh, participation=plan.cohort / plan.clients)
        (refreshed, _), everyone = work(update, everyone, cohort.refresh, round_key(keys.refresh, k))
    (mean_up, metrics), everyone = work(algorithm.client_update, everyone, cohort, round_key(keys.client, k))
    if isinstance(algorithm, RefreshingAlgorithm):
        mean_up = (refreshed, mean_up)
    return RunState(algorithm.server_update(state.server, mean_up), everyone), metrics | wire_bytes(down, mean_up)


def _work(
    objective: Objective,
    plan: RoundPlan,
    clients: Clients,
    down: Any,
    k: int,
    name: Callable[[int], str],
    update: Callable[..., ClientResult],
    everyone: Any,
    cohort: Cohorts,
    key: Array,
) -> tuple[Any, Any]:
    weights = cohort_weights(plan, clients, cohort)
    share = weights / jnp.sum(weights)
    sent = []
    members = zip(cohort.clients.tolist(), cohort.slots.tolist(), cohort.places, share, strict=True)
    for member, slot, place, part in members:
        if member >= plan.clients:
            continue
        own = jax.tree.map(lambda all_, i=slot: all_[i], everyone)
        client = jnp.asarray(member, jnp.int32)
        with _blaming(name(member), k):
            result = update(objective, down, own, clients.view("train", place), client_key(key, client))
        _check_finite(result, name(member), k)
        if result.state is not None:
            everyone = jax.tree.map(lambda all_, new, i=slot: all_.at[i].set(new), everyone, result.state)
        sent.append(tree.scale(part, (result.up, result.metrics)))
    return reduce(tree.add, sent), everyone


@contextmanager
def _blaming(client: str, k: int) -> Iterator[None]:
    """Turn whatever a client's update raises into an error that names the client."""
    try:
        yield
    except HeadstartError:
        raise
    except Exception as error:
        raise ClientFailure(client, k, f"{type(error).__name__}: {error}") from error


def _check_finite(result: ClientResult, client: str, k: int) -> None:
    for path, leaf in jax.tree_util.tree_leaves_with_path(result):
        if not np.isfinite(np.asarray(leaf)).all():
            where = jax.tree_util.keystr(path).lstrip(".")
            raise ClientFailure(client, k, f"{where} is not finite; lower the step sizes or look at its data.")
