"""A method in training across real sites: what the simulator's loop drives, one round at a time."""

import hmac
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
from jax import Array

from headstart.core import FULL, Cost, Phase, RefreshingAlgorithm, Round
from headstart.data import Federation
from headstart.deploy.messages import Fault, Tag
from headstart.deploy.patience import Patience
from headstart.deploy.receiving import Received, closed, norm_bound, opened, receive
from headstart.deploy.session import Asked, Session
from headstart.deploy.setup import Setup
from headstart.deploy.trees import to_arrays
from headstart.errors import UsageError
from headstart.simulate import Evaluation, RunState
from headstart.simulate.evaluate import score_table
from headstart.simulate.store import DiskStore

__all__ = ["FederatedRun", "Ledger"]

PHASES = (Phase.REFRESH, Phase.WORK)


class TooFew(dict[str, Fault]):
    """Of a round that cannot be closed: why each site was left out."""


class Ledger(NamedTuple):
    """The last answer of each site that has counted, in the order of the agreement; round -1 for none.

    It is part of the state that is checkpointed: a server that comes back tells every site where it had been.
    """

    round: Array
    attempt: Array
    phase: Array

    @classmethod
    def new(cls, sites: int) -> "Ledger":
        """Nothing has counted yet."""
        return cls(*(jnp.full((sites,), -1, jnp.int32) for _ in cls._fields))

    def tags(self, sites: list[str]) -> dict[str, Tag | None]:
        """By site."""
        rows = zip(*(np.asarray(column).tolist() for column in self), strict=True)
        return {
            site: None if round_ < 0 else Tag(round_, attempt, PHASES[phase].value)
            for site, (round_, attempt, phase) in zip(sites, rows, strict=False)
        }

    @classmethod
    def of(cls, tags: Mapping[str, Tag | None], sites: list[str]) -> "Ledger":
        """From the tags of all sites."""
        told = [tags.get(site) or Tag(-1, -1, Phase.WORK.value) for site in sites]
        rows = [(tag.round, tag.attempt, PHASES.index(Phase(tag.phase))) for tag in told]
        return cls(*(jnp.asarray(column, jnp.int32) for column in zip(*rows, strict=True)))


class FederatedRun:
    """Keeps the ``Run`` contract of the simulator's training loop; clients' memories are at the sites."""

    store: DiskStore | None = None

    def __init__(self, label: str, setup: Setup, session: Session, weighting: str, secret: bool = True):
        self.label, self.setup, self.session = label, setup, session
        self.algorithm, self.problem, self.evaluation_key = setup.algorithm, setup.problem, setup.evaluation_key
        self._weighting, self._secret = weighting, secret
        trained = range(setup.clients)
        self._sites = [
            site for site, own in session.agreement.sites.items() if any(client in trained for client in own)
        ]
        self.round = 0
        self.state = RunState(setup.start.server, Ledger.new(len(self._sites)))
        self._kept = self.state.clients
        """The ledger of the last checkpoint: what sites may make their base."""
        self._lost: set[str] = set()
        """Sites that begin anew, for they have lost their memories."""

    @property
    def federation(self) -> Federation:
        """The clients, without their samples; more of them once a site has joined."""
        return self.session.federation

    @property
    def one_round(self) -> Round:
        """The round as every driver has it."""
        return self.setup.round

    def largest_chunk(self) -> int:
        """One round: its memories and its checkpoint go together."""
        return 1

    def client_states(self, ids: np.ndarray) -> Any:
        """Memories do not leave their sites."""
        raise UsageError(
            "Clients' memories are at their sites.", "Make a site's own model with: headstart deploy adapt"
        )

    def return_to(self, round_: int, state: RunState) -> None:
        """Go back to the shared model of an earlier round; clients' memories stay at their sites as they are."""
        self.state, self.round = RunState(jax.tree.map(jnp.asarray, state.server), self.state.clients), round_

    def advance(self, rounds: int, capacity: int | None = None) -> pa.Table:
        """Run some rounds and return a row for each."""
        return pa.concat_tables([self._advance() for _ in range(rounds)])

    def evaluate(self, evaluation: Evaluation) -> pa.Table:
        """The scores, now, of all clients whose sites answer."""
        adapting = evaluation.adapting(self.algorithm)
        down = to_arrays(adapting.broadcast(self.setup.round.of_method(self.state.server), self.evaluation_key), "down")
        how = {"steps": list(evaluation.steps), "size": evaluation.batch_size, "inner_lr": evaluation.inner_lr}
        patience = self._patience()
        while True:
            self.session.look()
            ids = evaluation.clients(self.federation)
            members = self.session.by_site(ids.tolist())
            counted, start = self._kept.tags(self._sites), self.state.clients.tags(self._sites)
            asked = {
                site: Asked({"members": own, "counted": counted.get(site), "start": start.get(site), **how}, down)
                for site, own in members.items()
            }
            attempt = self.session.book.attempts
            answers = self.session.ask("evaluate", asked, method=self.label, round_=self.round, attempt=attempt)
            scores = self._scores(evaluation, members, answers.good)
            if scores:
                break
            what = f"No site has evaluated its clients after round {self.round}"
            patience.wait(what, "one is needed at least", answers.faults, **self._about(attempt))
        came = [client for client in ids.tolist() if client in scores]
        by_steps = [
            {
                name: np.asarray([scores[client][position][name] for client in came])
                for name in scores[came[0]][position]
            }
            for position in range(len(evaluation.steps))
        ]
        self.session.events.tell("evaluated", method=self.label, round=self.round, clients=len(came), asked=len(ids))
        return score_table(evaluation, self.federation, np.asarray(came), self.round, by_steps)

    def _scores(
        self, evaluation: Evaluation, members: Mapping[str, list[int]], answers: Mapping[str, Any]
    ) -> dict[int, list[dict[str, float]]]:
        """By client, for each number of steps its metrics; answers that are none are left out."""
        names = sorted(metric.name for metric in self.problem.metrics)
        scores: dict[int, list[dict[str, float]]] = {}
        for site, answer in answers.items():
            wanted = {f"{position}/{name}" for position in range(len(evaluation.steps)) for name in names}
            shapes = {array.shape for array in answer.arrays.values()}
            if set(answer.arrays) != wanted or shapes != {(len(members[site]),)}:
                fault = Fault("arrays", "its scores are not those asked for")
                self.session.leave_out(site, fault, method=self.label, round_=self.round, attempt=0, phase="evaluate")
                continue
            for place, client in enumerate(members[site]):
                scores[client] = [
                    {name: float(answer.arrays[f"{position}/{name}"][place]) for name in names}
                    for position in range(len(evaluation.steps))
                ]
        return scores

    def _advance(self) -> pa.Table:
        began = time.perf_counter()
        self._kept = self.state.clients  # the loop has checkpointed it
        patience = self._patience()
        while True:
            attempt = self.session.book.next_attempt()
            done = self._attempt(attempt)
            if not isinstance(done, TooFew):
                break
            patience.wait(f"Too few updates came in round {self.round}", self._needs(), done, **self._about(attempt))
        server, tags, metrics, phases = done
        self.state = RunState(server, Ledger.of(tags, self._sites))
        row = self._account(metrics, phases, time.perf_counter() - began)
        last = phases[-1]
        self.session.events.tell(
            "closed", method=self.label, round=self.round, attempt=attempt, clients=len(last.clients),
            sites=len(last.sites), loss=float(metrics["loss"]), seconds=round(row["seconds"], 3),
            bytes_up=row["bytes_up"], bytes_down=row["bytes_down"],
        )  # fmt: skip
        self.round += 1
        return pa.table({name: [value] for name, value in row.items()})

    def _attempt(self, attempt: int) -> tuple[Any, dict[str, Tag | None], dict[str, Any], list[Received]] | TooFew:
        """A round, if enough of it comes: the server's next state, what has counted, metrics, and the phases."""
        k, setup, session = self.round, self.setup, self.session
        now = setup.round.at(k)
        down = opened(setup, k, self.state.server)
        bound = norm_bound(setup.round.wire, getattr(down, "wire", ()), session.settings.max_update_norm)
        arrays = to_arrays(down, "down")
        counted = self.state.clients.tags(self._sites)
        start, anew = dict(counted), set(self._lost)
        for site in anew:
            counted[site] = start[site] = None
        phases: list[Received] = []
        for phase in setup.round.phases:
            received = Received(phase, np.asarray(now.cohort(phase, setup.clients, setup.cohort)).tolist())
            members = session.by_site(received.cohort)
            asked = {
                site: Asked(
                    {"members": own, "counted": counted[site], "start": start[site], "anew": site in anew}, arrays
                )
                for site, own in members.items()
            }
            session.events.tell(
                "opened", method=self.label, round=k, attempt=attempt, phase=phase.value, clients=len(received.cohort),
                sites=sorted(members),
            )  # fmt: skip
            about: dict[str, Any] = {"method": self.label, "round_": k, "attempt": attempt, "phase": phase.value}
            answers = session.ask("work", asked, **about)
            received.bytes_up, received.bytes_down = answers.bytes_up, answers.bytes_down
            wrong = receive(setup, k, received, members, answers.good, bound)
            for site, fault in wrong.items():
                session.leave_out(site, fault, **about)
            self._notice_lost(answers.faults)
            if len(received.clients) < self._needed:
                return TooFew(answers.faults | wrong)
            for site in received.sites:
                start[site] = Tag(k, attempt, phase.value)
            anew -= set(received.sites)
            phases.append(received)
        counts = self._counts if self._weighting == "samples" else None
        server, metrics = closed(setup, k, self.state.server, phases, counts, self._noise_key(phases))
        self._lost -= {site for received in phases for site in received.sites}
        return server, start, metrics, phases

    def _notice_lost(self, faults: Mapping[str, Fault]) -> None:
        """Sites without their memories begin anew from the next time they are asked, where that is wanted."""
        if self.session.settings.lost_memory == "begin-anew":
            for site in (site for site, fault in faults.items() if fault.reason == "memory"):
                self._lost.add(site)
                self.session.events.tell("anew", method=self.label, round=self.round, site=site)

    def _noise_key(self, phases: list[Received]) -> Array | None:
        """A key of the server's own for noise at the server: sites, who know the seed, must not be able to take it off.

        It depends on whose updates are hidden by it: a round that is closed again with others gets other noise.
        """
        if self.setup.round.wire is None or not self._secret:
            return None
        about = f"{self.session.book.run}:{self.label}:{self.round}:{[received.clients for received in phases]}"
        bits = hmac.digest(self.session.book.secret, about.encode(), "sha256")
        size = jax.random.key_data(jax.random.key(0)).size
        return jax.random.wrap_key_data(jnp.asarray(np.frombuffer(bits, np.uint32)[:size]))

    @property
    def _needed(self) -> int:
        """How many clients' updates a round needs."""
        cohort = self.setup.cohort
        return cohort if self.algorithm.needs_everyone else self.session.settings.needed(cohort)

    def _needs(self) -> str:
        if self.algorithm.needs_everyone:
            return f"{self.label} needs all clients in every round"
        return f"a round needs {self._needed} clients"

    def _patience(self) -> Patience:
        return Patience(self.session.settings, self.session.events)

    def _about(self, attempt: int) -> dict[str, Any]:
        return {"method": self.label, "round": self.round, "attempt": attempt}

    def _account(self, metrics: Mapping[str, Any], phases: list[Received], seconds: float) -> dict[str, Any]:
        """What the round's row says."""
        cost, members = self.algorithm.cost(), len(phases[-1].clients)
        if isinstance(self.algorithm, RefreshingAlgorithm):
            refresh = self.algorithm.refresh_cost()
            samples = self._samples(cost.without(refresh), phases[1]) + self._samples(refresh, phases[0])
        else:
            samples = self._samples(cost, phases[0])
        return {
            "round": self.round,
            **{name: float(value) for name, value in metrics.items()},
            "gradients": round(members * cost.gradients),
            "products": round(members * cost.products),
            "samples": round(samples),
            "bytes_up": sum(received.bytes_up for received in phases),
            "bytes_down": sum(received.bytes_down for received in phases),
            "seconds": seconds,
            "clients": members,
        }

    def _samples(self, cost: Cost, received: Received) -> float:
        everything = self._counts[received.clients].sum() if FULL in cost.batches else 0
        return cost.samples(0) * len(received.clients) + cost.batches.get(FULL, 0) * everything

    @property
    def _counts(self) -> np.ndarray:
        """Clients' numbers of training samples, as agreed and not as told with an update."""
        assert self.federation.counts is not None
        return self.federation.counts["train"]
