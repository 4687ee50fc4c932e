"""What server and sites each make of the same experiment and the same agreement, so that their numbers fit."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
from jax import Array

from headstart.config import Plan
from headstart.core import (
    Algorithm,
    ClientResult,
    Keys,
    Phase,
    Purpose,
    Round,
    Start,
    cohort_size,
    run_key,
)
from headstart.data import Federation
from headstart.errors import UsageError
from headstart.experiment import Settings
from headstart.problems import Problem
from headstart.wire import Wire

__all__ = ["Setup", "digest_of", "noise_at_clients", "settings_of", "without_place"]

PLACES = ("path", "folder")
"""Settings of [data] that are each site's own."""


@dataclass(frozen=True)
class Setup:
    """One method on a federation whose samples are elsewhere."""

    algorithm: Algorithm
    """As it works on the problem."""
    problem: Problem
    round: Round
    start: Start
    sent: dict[Phase, ClientResult]
    """The shapes of what a client sends in each phase, as it travels."""
    clients: int
    """Training clients."""
    cohort: int
    """Clients per round."""
    evaluation_key: Array

    @classmethod
    def of(
        cls, algorithm: Algorithm, problem: Problem, federation: Federation, settings: Settings, wire: Wire | None
    ) -> "Setup":
        """All that follows from the shapes of samples, as the simulator has it."""
        if wire is not None and not wire.parts and wire.aggregator is None:
            wire = None
        params = problem.init(run_key(settings.seed, Purpose.INIT))
        samples = problem.view(federation.clients.shapes())
        prepared = algorithm.prepare(problem.objective(), params, samples)
        cohort = cohort_size(settings.train.cohort, federation.trained)
        round_ = Round(prepared, problem.objective(), Keys.of(settings.seed), wire, cohort / federation.trained)
        # Not of a weak type, as the start's numbers may be: what is compiled for them serves later rounds too.
        start = jax.tree.map(
            lambda leaf: leaf if isinstance(leaf, jax.ShapeDtypeStruct) else jax.numpy.asarray(leaf).astype(leaf.dtype),
            round_.start(params, samples),
        )

        def travelling(server: Any, client: Any) -> list[ClientResult]:
            now = round_.at(0)
            down = now.open(server)
            return [now.pack(phase, down, client, samples, 0)._replace(state=None) for phase in round_.phases]

        sent = dict(zip(round_.phases, jax.eval_shape(travelling, start.server, start.client), strict=True))
        key = run_key(settings.seed, Purpose.EVALUATE)
        return cls(prepared, problem, round_, start, sent, federation.trained, cohort, key)


def noise_at_clients(wire: Any) -> bool:
    """Whether clients add noise of their own, which takes a key that nobody else knows."""
    mechanism = wire.mechanism() if isinstance(wire, Wire) else None
    return mechanism is not None and mechanism.noise.at == "client"


def settings_of(tables: Mapping[str, Any]) -> Settings:
    """Checked settings of an experiment whose data is at the sites."""

    def elsewhere() -> Federation:
        raise UsageError("The data of a federation is at its sites.", "Give each site its own with site.toml.")

    section = without_place(tables.get("data", {}))
    return Settings.from_tables(tables, Plan(elsewhere, {}, section))


def without_place(section: Mapping[str, Any]) -> dict[str, Any]:
    """The section [data] without where the data lies, which is each site's own business."""
    return {key: value for key, value in section.items() if key not in PLACES}


def digest_of(*parts: Any) -> str:
    """Of JSON values; equal ones have the same."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]
