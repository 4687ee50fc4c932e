"""Serving a federation: the agreement, then every method of the experiment, then the models to the sites."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from headstart.deploy.events import Events
from headstart.deploy.federated import FederatedRun
from headstart.deploy.fleet import Fleet
from headstart.deploy.messages import Fault
from headstart.deploy.patience import PASSING, BelowQuorum
from headstart.deploy.roster import LiveRoster
from headstart.deploy.session import Asked, Book, Session
from headstart.deploy.settings import DeploySettings
from headstart.deploy.setup import Setup, settings_of
from headstart.deploy.welcome import Welcome
from headstart.errors import Diverged, UsageError
from headstart.experiment import RunDirectory, RunResult, read_tables
from headstart.experiment.record import MethodJournal
from headstart.experiment.running import Job, OneJournal, Trainer
from headstart.experiment.startup import start_jax
from headstart.simulate import Callback, Result
from headstart.simulate.callbacks import Run
from headstart.simulate.train import Diverging, identity_of, train_run

__all__ = ["serve"]

OWN = {"name": "own"}
LOOK_SECONDS = 0.5


def serve(folder: Path, fleet: Fleet) -> RunResult:
    """Train every method of a server's folder over its fleet, from wherever it has stopped, and keep the record there.

    The last event says how it ended: ``finished``, or ``stopped`` with the reason, and whether that is ``final`` since
    starting again cannot help.
    """
    events = Events(folder)
    try:
        result = _serve(folder, fleet, events)
    except (UsageError, BelowQuorum, Diverged) as error:
        events.tell("stopped", reason=str(error), final=True)
        raise
    except Exception as error:
        events.tell("stopped", reason=f"{type(error).__name__}: {error}", final=False)
        raise
    events.tell("finished", methods=list(result.results))
    return result


def _serve(folder: Path, fleet: Fleet, events: Events) -> RunResult:
    deploy, tables = DeploySettings.read(folder), read_tables(folder / "experiment.toml")
    settings = settings_of({**tables, "data": OWN | tables.get("data", {})})
    start_jax(replace(settings.train, backend="vmap"))
    config = json.loads(json.dumps(settings.resolved))
    book = Book.open(folder)
    welcome = Welcome(folder, config["data"], fleet, deploy, events, book)
    session = Session(fleet, config, welcome.agreement(), deploy, events, book, welcome.newcomers)
    # Sites know the seed, and so who takes part in which round.
    job = Job(settings, session.federation, _trainer(session), secret_cohorts=False)
    with _directory(folder / "run", config, job, book) as directory:
        result = job.run(directory, [_Telling(events)])
    _hand_out(folder, session, list(job.algorithms))
    return result


def _directory(path: Path, config: Mapping[str, Any], job: Job, book: Book) -> RunDirectory:
    if not (path / "run.json").exists():
        return RunDirectory.create(path, dict(config), list(job.algorithms), book.founding, job.privacy)
    directory = RunDirectory.open(path)
    directory.check(dict(config), book.founding)
    return directory


def _trainer(session: Session) -> Trainer:
    """What trains a method over the fleet."""

    def federated(
        job: Job, label: str, journal: OneJournal | None, callbacks: Sequence[Callback], diverging: Diverging
    ) -> Result:
        assert journal is None or isinstance(journal, MethodJournal)  # a server is one process
        algorithm, settings = job.algorithms[label], job.settings
        setup = Setup.of(algorithm, job.problem, job.federation, settings, job.wire)
        train = settings.train
        identity = identity_of(
            algorithm, job.problem, job.federation, train.cohort, train.weighting, settings.seed, None, job.wire
        )
        # Sites that join later change what is known of the clients, not who trains.
        return train_run(
            FederatedRun(label, setup, session, train.weighting),
            rounds=train.rounds,
            evaluation=job.evaluation(label),
            journal=journal,
            identity={**identity, "data": session.book.founding},
            chunk=1,
            callbacks=callbacks,
            diverging=diverging,
        )

    return federated


class _Telling(Callback):
    """Tells where a method begins or goes on."""

    def __init__(self, events: Events):
        self._events = events

    def on_start(self, run: Run, rounds: int) -> None:
        label = run.label if isinstance(run, FederatedRun) else ""
        self._events.tell("resumed" if run.round else "started", method=label, round=run.round, rounds=rounds)


def _hand_out(folder: Path, session: Session, methods: list[str]) -> None:
    """Every trained model to every site; those that are away are waited for, as long as before the agreement."""
    roster, settings = LiveRoster(folder), session.settings
    end = time.monotonic() + settings.join_timeout
    models = {label: path for label in methods if (path := folder / "run" / label / "model.safetensors").exists()}
    without = {label: set(session.agreement.sites) for label in models}
    while True:
        here = session.look()
        for label, path in models.items():
            asked = Asked({}, {"model": np.frombuffer(path.read_bytes(), np.uint8)})
            sites = without[label] & here
            answers = session.ask("model", dict.fromkeys(sorted(sites), asked), method=label, round_=0)
            without[label] -= sites - {site for site, fault in answers.faults.items() if fault.reason in PASSING}
        waiting = set().union(*without.values()) & set(roster.look().keys.values())
        if not waiting:
            return
        if time.monotonic() > end:
            break
        session.events.tell("waiting", reason="for sites to get the model", sites=sorted(waiting))
        time.sleep(max(LOOK_SECONDS, settings.retry_seconds))
    for site in sorted(waiting):
        fault = Fault("absent", "it has not got the model: start the server again when it is there")
        session.leave_out(site, fault, method="", round_=0, attempt=0, phase="model")
