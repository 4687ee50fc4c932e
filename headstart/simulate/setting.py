"""A run before its first round: everything that is settled, whoever drives its rounds."""

import inspect
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa

from headstart.core import (
    FULL,
    Algorithm,
    Cost,
    Keys,
    Params,
    Purpose,
    RefreshingAlgorithm,
    Round,
    Weighting,
    checks,
    cohort_size,
    run_key,
    tree,
)
from headstart.core.cores import say_what_is_idle
from headstart.data import Federation
from headstart.errors import UsageError, did_you_mean
from headstart.problems import Problem
from headstart.simulate.rounds import Backend, Cohorts, RoundPlan, clients_at_once
from headstart.wire import Wire, check_wire

__all__ = ["Setting", "check", "owned", "reported_type"]

WORTH_SHARING = 2**19
"""Samples times parameters of a round from which on it is quicker on several devices than on one."""


def check(
    algorithm: Algorithm,
    problem: Problem,
    federation: Federation,
    cohort: float | int,
    weighting: Weighting,
    wire: Wire | None = None,
) -> None:
    """Refuse what cannot be trained, saying why and what to do instead."""
    name = type(algorithm).__name__
    if weighting not in get_args(Weighting):
        raise UsageError(f"There is no weighting {weighting!r}.", did_you_mean(weighting, get_args(Weighting)))
    if federation.endless and not isinstance(cohort, int):
        raise UsageError(
            f"cohort = {cohort} is a share, but these tasks are endlessly many.", "Give cohort as a number of clients."
        )
    size = cohort_size(cohort, federation.trained)
    if algorithm.needs_everyone and size < federation.trained:
        raise UsageError(
            f"{name} needs all {federation.trained} clients in every round, but cohort = {cohort}.",
            "Set cohort to 1.0.",
        )
    objective = problem.objective()
    if not inspect.isfunction(objective) and not isinstance(objective, algorithm.objectives):
        raise UsageError(
            f"{name} minimises a loss; it cannot work on a {type(problem).__name__}.",
            "Choose an algorithm for such problems; `headstart algorithms` says what each one does.",
        )
    cost = algorithm.cost()
    federation.check_batch(cost.largest_batch())
    if federation.counts is None and (weighting == "samples" or FULL in cost.batches):
        raise UsageError(
            "These clients generate their samples and have no sample count.",
            "Use weighting = 'uniform' and give batch sizes as numbers.",
        )
    if wire is not None:
        check_wire(wire, name, algorithm.refuses, weighting, size)
    slots, drawn = algorithm.task_slots()
    fewest, most = federation.tasks_per_client
    if slots < most or drawn > fewest:
        raise UsageError(
            f"{name} has room for {slots} tasks per client and looks at {drawn} per step, but clients have {fewest} to "
            f"{most} tasks.",
            f"Use a method that has tasks_per_client and set it to {most}, and tasks_per_step to at most {fewest}.",
        )


class Setting:
    """What a run is: a method prepared for its problem, how a round is planned, its keys and where it starts."""

    def __init__(
        self,
        algorithm: Algorithm,
        problem: Problem,
        federation: Federation,
        *,
        cohort: float | int,
        weighting: Weighting,
        seed: int,
        params: Params | None,
        backend: Backend,
        devices: int | None,
        at_once: int | None,
        wire: Wire | None,
        hosts: int = 1,
    ):
        checks.whole("seed", seed, 0)
        self.seed = seed
        self.problem, self.federation, self.wire = problem, federation, wire
        check(algorithm, problem, federation, cohort, weighting, wire)
        if wire is not None and not wire.parts and wire.aggregator is None:
            self.wire = None  # as if there were none, to the bit
        if params is None:
            params = problem.init(run_key(seed, Purpose.INIT))
        params = jax.tree.map(owned, params)
        if at_once is None:
            at_once = clients_at_once(params)
        else:
            checks.whole("at_once", at_once, 1)
        size = cohort_size(cohort, federation.trained)
        self.backend = _chosen(backend, devices, size, size * _products(algorithm, params, federation))
        self.plan = RoundPlan(
            clients=federation.trained,
            cohort=size,
            weighting=weighting,
            devices=_device_count(self.backend, devices),
            at_once=at_once,
            refreshes=isinstance(algorithm, RefreshingAlgorithm),
            hosts=hosts,
        )
        self.keys = Keys.of(seed)
        self.evaluation_key = run_key(seed, Purpose.EVALUATE)
        samples = problem.view(federation.clients.shapes())
        self.algorithm = algorithm.prepare(problem.objective(), params, samples)
        self.start = self.one_round.start(params, samples)
        if federation.endless and jax.tree.leaves(self.start.client):
            raise UsageError(
                f"{type(algorithm).__name__} keeps a memory for every client, but these tasks are endlessly many.",
                "Use a method without memories between rounds, or a federation of finitely many tasks.",
            )

    @property
    def one_round(self) -> Round:
        """The round as every driver has it."""
        return Round(self.algorithm, self.problem.objective(), self.keys, self.wire, self.plan.participation)

    def new_states(self, ids: np.ndarray) -> Any:
        """The method's states of clients that have never taken part, stacked."""
        fresh = self.one_round.of_method(self.start.client)
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (len(ids), *leaf.shape)), fresh)

    def account(self, first: int, metrics: dict[str, np.ndarray], cohorts: Cohorts, seconds: float) -> pa.Table:
        """The table of some rounds, from the ``first`` on: metrics, cost, bytes and seconds."""
        rounds, members = len(metrics["loss"]), self.plan.cohort
        total = self.algorithm.cost()
        phases, bytes_up = 1, self.one_round.up_bytes(self.start)
        if cohorts.refresh is not None:
            phases, bytes_up = 2, bytes_up + tree.nbytes(self.start.ups[0])
        columns = {
            "round": np.arange(first, first + rounds),
            **metrics,
            "gradients": np.full(rounds, round(members * total.gradients), np.int64),
            "products": np.full(rounds, round(members * total.products), np.int64),
            "samples": np.rint(self.samples(cohorts, rounds)).astype(np.int64),
            "bytes_up": np.full(rounds, members * bytes_up, np.int64),
            "bytes_down": np.full(rounds, phases * members * self.one_round.down_bytes(self.start), np.int64),
            "seconds": np.full(rounds, seconds),
        }
        return pa.table(columns)

    def samples(self, cohorts: Cohorts, rounds: int) -> np.ndarray:
        """The samples drawn in each of the first ``rounds`` rounds, by clients that refresh their memories too."""
        total = self.algorithm.cost()
        if cohorts.refresh is None:
            return self._samples(total, cohorts, rounds)
        assert isinstance(self.algorithm, RefreshingAlgorithm)
        refresh = self.algorithm.refresh_cost()
        work = self._samples(total.without(refresh), cohorts, rounds)
        return work + self._samples(refresh, cohorts.refresh, rounds)

    def _samples(self, cost: Cost, cohorts: Cohorts, rounds: int) -> np.ndarray:
        """The samples that a cohort draws in each round."""
        if FULL not in cost.batches:
            return np.full(rounds, self.plan.cohort * cost.samples(0))
        assert self.federation.counts is not None
        counts = self.federation.counts["train"][np.asarray(cohorts.clients)[:rounds, : self.plan.cohort]]
        return cost.samples(0) * self.plan.cohort + cost.batches[FULL] * counts.sum(axis=1)


def reported_type(column: jax.Array) -> Any:
    """As what type a metric is reported."""
    return column.dtype if column.dtype in (jnp.float32, jnp.float64) else jnp.float32


def owned(leaf: Any) -> jax.Array:
    """A copy, since a chunk is given the state's buffers, of a type that is not weak, since a chunk returns none."""
    array = jnp.array(leaf, copy=True)
    return jax.lax.convert_element_type(array, array.dtype)


def _products(algorithm: Algorithm, params: Params, federation: Federation) -> float:
    """What a client's round costs, roughly: the samples it draws times the parameters each one meets."""
    has = 1 if federation.counts is None else float(np.mean(federation.counts["train"][: federation.trained]))
    return algorithm.cost().samples(round(has)) * sum(leaf.size for leaf in jax.tree.leaves(params))


def _chosen(backend: Backend, devices: int | None, cohort: int, work: float) -> Backend:
    """What ``auto`` stands for: several devices, unless a round is over before they have agreed on its sums."""
    if backend not in get_args(Backend):
        raise UsageError(f"There is no backend {backend!r}.", f"Choose one of: {', '.join(get_args(Backend))}.")
    if backend != "auto":
        return backend
    if devices is None:
        say_what_is_idle()
    several = devices is not None or (jax.device_count() > 1 and cohort > 1 and work >= WORTH_SHARING)
    return "sharded" if several else "vmap"


def _device_count(backend: Backend, devices: int | None) -> int:
    if backend != "sharded":
        if devices not in (None, 1):
            raise UsageError(f"backend = {backend!r} runs on one device, not {devices}.", "Set backend = 'sharded'.")
        return 1
    here = jax.device_count()
    if devices is not None and not 1 <= devices <= here:
        raise UsageError(
            f"{devices} devices are asked for, but JAX sees {here}.",
            "Call headstart.use_cpu_devices(n) before anything touches JAX, or ask for fewer.",
        )
    return devices or here
