"""The debugging driver: one client at a time, nothing compiled, and every failure named."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from headstart.core import Algorithm, Channel, ClientResult, Keys, Phase, Round, RoundAt
from headstart.core.round import weighted
from headstart.data import Clients
from headstart.errors import ClientFailure, HeadstartError
from headstart.problems import Problem
from headstart.simulate.rounds import Cohorts, RoundPlan, RunState, cohort_weights

__all__ = ["run_loop"]


def run_loop(
    problem: Problem,
    plan: RoundPlan,
    algorithm: Algorithm,
    wire: Channel | None,
    clients: Clients,
    state: RunState,
    keys: Keys,
    cohorts: Cohorts,
    first: int,
    rounds: int,
    name: Callable[[int], str],
) -> tuple[RunState, dict[str, Array]]:
    """What ``run_chunk`` does, round by round and client by client, in plain Python."""
    round_ = Round(algorithm, problem.objective(), keys, wire, plan.participation)
    history = []
    with jax.disable_jit():
        for i in range(rounds):
            cohort = jax.tree.map(lambda rows, i=i: rows[i], cohorts)
            now, k = round_.at(first + i), first + i
            down, everyone = now.open(state.server), state.clients
            means: list[Any] = []
            metrics: dict[str, Array] = {}
            for phase in round_.phases:
                members = cohort if phase is Phase.WORK else cohort.refresh
                mean, metrics, everyone = _work(now, phase, plan, problem, clients, down, everyone, members, k, name)
                means.append(mean)
            state = RunState(now.close(state.server, tuple(means), plan.cohort), everyone)
            history.append(metrics)
    return state, jax.tree.map(lambda *values: jnp.stack(values), *history)


def _work(
    now: RoundAt,
    phase: Phase,
    plan: RoundPlan,
    problem: Problem,
    clients: Clients,
    down: Any,
    everyone: Any,
    cohort: Cohorts,
    k: int,
    name: Callable[[int], str],
) -> tuple[Any, Any, Any]:
    """Let a cohort work: what is made of all that it sends, what it reports, and everyone's states after it."""
    ups, reports, weights = [], [], []
    counts = cohort_weights(plan, clients, cohort)
    members = zip(cohort.clients.tolist(), cohort.slots.tolist(), cohort.places, counts, strict=True)
    for member, slot, place, weight in members:
        if member >= plan.clients:
            continue
        own = jax.tree.map(lambda all_, i=slot: all_[i], everyone)
        with _blaming(name(member), k):
            samples = problem.view(clients.view("train", place))
            result = now.work(phase, down, own, samples, jnp.asarray(member, jnp.int32))
        _check_finite(result, name(member), k)
        if result.state is not None:
            everyone = jax.tree.map(lambda all_, new, i=slot: all_.at[i].set(new), everyone, result.state)
        ups.append(result.up)
        reports.append(result.metrics)
        weights.append(weight)
    stacked, told = (jax.tree.map(lambda *leaves: jnp.stack(leaves), *each) for each in (ups, reports))
    share = jnp.stack(weights)
    return now.combine(stacked, share), weighted(share / jnp.sum(share), told), everyone


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
        if not np.isfinite(np.asarray(leaf, np.float64)).all():
            where = jax.tree_util.keystr(path).lstrip(".")
            raise ClientFailure(client, k, f"{where} is not finite; lower the step sizes or look at its data.")
